package main

import (
	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newPartitionMoves(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "moves",
		Short: "List moves under way and waiting",
		Long: `Lists moves, whoever wished them, those under way first.

  STATE  waiting: the controller has not begun it (WAITS says for what)
         warming: the target loads what it needs; the owner serves
         draining: the owner brings its last records into the bucket
         opening: the target has it and brings it in order
         stuck: under way for more than half a minute. It is given up after
         tierbroker.moves.timeout.ms; mostly the bucket takes no data`,
		Example: "  tierctl partition moves\n  tierctl partition moves -o json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := g.adminMoves(cmd.Context())
			if err != nil {
				return err
			}
			return g.print(cmd, list, moveTable(list))
		},
	}
}

func moveTable(list []admin.MoveInfo) *table {
	t := newTable("topic", "partition", "from", "to", "state", "for", "goal", "waits")
	for i := range list {
		m := &list[i]
		goal := dash(m.Goal)
		if m.Force {
			goal += " (forced)"
		}
		t.row(m.Topic, m.Partition, nodeID(m.From), m.To, m.State, age(m.AgeMs), goal, dash(m.Waits))
	}
	return t
}
