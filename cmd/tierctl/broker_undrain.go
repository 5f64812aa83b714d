package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newBrokerUndrain(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "undrain ID...",
		Short: "Take drain and remove back",
		Long: `Lets a broker have partitions again. Nothing moves back at once: new partitions go
there, and "tierctl rebalance" evens out what there is.`,
		Example: "  tierctl broker undrain 3",
		Args:    args(1, -1, "the ids of brokers"),
		RunE: func(cmd *cobra.Command, list []string) error {
			for _, text := range list {
				id, err := brokerID(text)
				if err != nil {
					return err
				}
				d, err := g.wishBroker(cmd.Context(), id, "undrain", "")
				if err != nil {
					return fmt.Errorf("undrain broker %d: %w", id, err)
				}
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "broker %d is %s and owns %s\n", id, d.Status, plural(d.Partitions, "partition")); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
