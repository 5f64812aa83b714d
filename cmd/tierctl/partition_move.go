package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newPartitionMove(g *globals) *cobra.Command {
	var to int32
	var goal string
	var noWait bool
	cmd := &cobra.Command{
		Use:   "move TOPIC PARTITION...",
		Short: "Move partitions to a broker",
		Long: `Asks the controller to move partitions, and waits until they are there. Nothing is
copied, nothing is lost; producers see a gap of well under a second and go on. The
automatic rebalance leaves them there ("tierctl rebalance apply" does not).

The controller makes at most tierbroker.moves.max moves at a time. Ctrl-C stops the
waiting, not the moves ("tierctl partition cancel" does that). A partition whose
owner is dead and whose last records are on that disk only is not moved: see
"tierctl partition force-move".`,
		Example: `  tierctl partition move audit 3 --to 2
  tierctl partition move audit 0 1 2 --to 3 --no-wait`,
		Args: args(2, -1, "the name of a topic and the numbers of partitions"),
		RunE: func(cmd *cobra.Command, list []string) error {
			numbers, err := partitionNumbers(list[1:])
			if err != nil {
				return err
			}
			if to < 0 {
				return usagef("--to ID says where to (tierctl broker list shows the brokers)")
			}
			moves := make([]admin.MoveRequest, 0, len(numbers))
			for _, n := range numbers {
				moves = append(moves, admin.MoveRequest{Topic: list[0], Partition: n, To: to, Keep: true, Goal: goal})
			}
			return g.movePartitions(cmd, moves, noWait)
		},
	}
	cmd.Flags().Int32Var(&to, "to", -1, "id of the broker to move them to")
	cmd.Flags().StringVar(&goal, "why", "asked for by tierctl", "a note for other operators")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the controller has been told")
	return cmd
}

// movePartitions asks for moves and waits for them.
func (g *globals) movePartitions(cmd *cobra.Command, moves []admin.MoveRequest, noWait bool) error {
	set, err := g.wishMoves(cmd.Context(), moves)
	if err != nil {
		return fmt.Errorf("move: %w", err)
	}
	if noWait {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s asked for, %d there already (tierctl partition moves shows them)\n", plural(set, "move"), len(moves)-set)
		return err
	}
	bar := newProgress("move", int64(len(moves)), func(n int64) string { return strconv.FormatInt(n, 10) })
	lost, err := g.awaitMoves(cmd, moves, bar)
	bar.finish()
	if err != nil {
		if cmd.Context().Err() != nil {
			cmd.PrintErrln("no longer waiting; the moves go on (tierctl partition moves shows them, tierctl partition cancel takes them back)")
		}
		return err
	}
	if err := cameToNothing(lost, len(moves)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s at broker %d\n", plural(len(moves), "partition"), moves[0].To)
	return err
}
