package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newRebalanceAuto(g *globals) *cobra.Command {
	var threshold int
	cmd := &cobra.Command{
		Use:   "auto on|off",
		Short: "Let the controller even out by itself, or not",
		Long: `Switches the controller's own rebalance: when a broker is more than --threshold percent
off its share of partitions, and every broker has been up for a while
(tierbroker.rebalance.delay.ms), it evens out labels and numbers of partitions. Bytes
are evened out by "tierctl rebalance apply" only.`,
		Example: "  tierctl rebalance auto on --threshold 30\n  tierctl rebalance auto off",
		Args:    args(1, 1, "on or off"),
		RunE: func(cmd *cobra.Command, list []string) error {
			if list[0] != "on" && list[0] != "off" {
				return usagef("auto is on or off, not %q", list[0])
			}
			body := map[string]any{"on": list[0] == "on"}
			if cmd.Flags().Changed("threshold") {
				body["threshold_percent"] = threshold
			}
			s := new(admin.RebalanceStatus)
			if err := g.call(cmd.Context(), http.MethodPost, "/api/v1/rebalance/auto", body, s); err != nil {
				return err
			}
			return g.print(cmd, s, rebalanceTables(s)...)
		},
	}
	cmd.Flags().IntVar(&threshold, "threshold", 20, "percent that a broker must be off its share")
	return cmd
}
