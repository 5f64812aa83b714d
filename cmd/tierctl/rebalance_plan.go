package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newRebalancePlan(g *globals) *cobra.Command {
	var f goalFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show every move of a rebalance, and the brokers before and after; change nothing",
		Long: `Computes the fewest moves that even out the brokers and shows each with the goal it
serves first, then what every broker has before and after. Nothing is changed.

The plan may be kept and applied as it was seen:
  tierctl rebalance plan -o json > plan.json
  tierctl rebalance apply --plan plan.json`,
		Example: `  tierctl rebalance plan
  tierctl rebalance plan --goal partitions --goal labels`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := new(admin.RebalancePlan)
			if err := g.call(cmd.Context(), http.MethodGet, "/api/v1/rebalance/plan?"+f.query(), nil, p); err != nil {
				return err
			}
			planNote(cmd, p.LoadsKnown, p.LoadsError)
			if err := g.print(cmd, p, planTables(p)...); err != nil {
				return err
			}
			cmd.PrintErrln(planSummary(p))
			return nil
		},
	}
	f.add(cmd)
	return cmd
}
