package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newRebalanceStop(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Take back the moves of a rebalance",
		Long: `Takes back every move that a rebalance, also an automatic one, has asked for and that
is not done. Each partition stays where it is served. An automatic rebalance begins
again when it is due: "tierctl rebalance auto off" ends that.`,
		Example: "  tierctl rebalance auto off && tierctl rebalance stop",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var r admin.CancelResult
			if err := g.call(cmd.Context(), http.MethodPost, "/api/v1/rebalance/stop", struct{}{}, &r); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s taken back; %d of them were nearly done and end as they began\n", plural(r.Canceled, "move"), r.Ending)
			return err
		},
	}
}
