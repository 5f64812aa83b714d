package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newPartitionCancel(g *globals) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "cancel [TOPIC PARTITION...]",
		Short: "Take moves back",
		Long: `Takes back moves that were wished for, by tierctl or by a Kafka client. What is under
way stops where it is, except that an owner that already refuses writes goes through
with it: that takes a moment. What moves because a broker is drained is taken back by
"tierctl broker undrain".`,
		Example: "  tierctl partition cancel audit 3\n  tierctl partition cancel --all",
		Args:    args(0, -1, "the name of a topic and the numbers of partitions, or --all"),
		RunE: func(cmd *cobra.Command, list []string) error {
			if all == (len(list) > 0) || len(list) == 1 {
				return usagef("give a topic and the numbers of its partitions, or --all")
			}
			body := map[string]any{"all": true}
			if !all {
				numbers, err := partitionNumbers(list[1:])
				if err != nil {
					return err
				}
				moves := []map[string]any{}
				for _, n := range numbers {
					moves = append(moves, map[string]any{"topic": list[0], "partition": n})
				}
				body = map[string]any{"moves": moves}
			}
			r, err := g.cancel(cmd, body)
			if err != nil {
				return err
			}
			text := plural(r.Canceled, "move") + " taken back"
			if r.Ending > 0 {
				text += fmt.Sprintf("; %d of them were nearly done and end as they began", r.Ending)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that were wished for")
	return cmd
}

func (g *globals) cancel(cmd *cobra.Command, body any) (*admin.CancelResult, error) {
	r := new(admin.CancelResult)
	return r, g.call(cmd.Context(), http.MethodPost, "/api/v1/moves/cancel", body, r)
}
