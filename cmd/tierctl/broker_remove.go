package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newBrokerRemove(g *globals) *cobra.Command {
	var why string
	var noWait, yes bool
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Take a broker out of the cluster for good",
		Long: `Drains a broker like "drain"; when it owns nothing it is out of the cluster, and its
registration is refused from then on. Then stop its process and keep or delete its
data directory: it holds nothing that the bucket doesn't have.

A dead broker can be removed when no partition waits for it. If one does, start the
broker again, or give up with "tierctl partition force-move" what only its disk has.`,
		Example: `  tierctl broker remove 4
  tierctl broker remove 4 --yes --why "machine returned"`,
		Args: args(1, 1, "the id of a broker"),
		RunE: func(cmd *cobra.Command, list []string) error {
			id, err := brokerID(list[0])
			if err != nil {
				return err
			}
			d, err := g.adminBroker(cmd.Context(), id)
			if err != nil {
				return err
			}
			if !d.Alive && d.OnlyHere > 0 {
				return fmt.Errorf("broker %d is dead, and %s may have their last records on its disk only: start it again, then remove it. "+
					"If its disk is lost: tierctl partition list --broker %d --problem, then tierctl partition force-move for each of them", id, plural(d.OnlyHere, "partition"), id)
			}
			if !yes {
				if err := confirm(cmd, fmt.Sprintf("Remove broker %d, which owns %s, from the cluster for good?", id, plural(d.Partitions, "partition")), "nothing was changed"); err != nil {
					return err
				}
			}
			return g.empty(cmd, list, emptying{verb: "remove", done: "removed", why: why, noWait: noWait,
				next: "stop its process; tierctl broker undrain %d would let it in again"})
		},
	}
	cmd.Flags().StringVar(&why, "why", "", "a note for other operators")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the controller has been told")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}
