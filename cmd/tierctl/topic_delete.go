package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newTopicDelete(g *globals) *cobra.Command {
	var yes, ifExists bool
	cmd := &cobra.Command{
		Use:   "delete TOPIC...",
		Short: "Delete topics and, after the sweep delay, their objects in the bucket",
		Long: `Deletes topics. Clients see them go at once; their objects leave the bucket when
the broker's sweep-delay has passed. Asks first on a terminal; elsewhere --yes is
needed.`,
		Example: "  tierctl topic delete scratch --yes",
		Args:    args(1, -1, "at least one name"),
		RunE: func(cmd *cobra.Command, names []string) error {
			if !yes {
				if err := confirm(cmd, fmt.Sprintf("Delete %s with all records, also those in the bucket?", strings.Join(names, ", ")), "nothing was deleted"); err != nil {
					return err
				}
			}
			client, done, err := g.kadm()
			if err != nil {
				return err
			}
			defer done()
			deleted, err := client.DeleteTopics(cmd.Context(), names...)
			if err != nil {
				return g.unreachable("delete topics", err)
			}
			var errs []error
			for _, r := range deleted.Sorted() {
				if r.Err == nil || ifExists && errors.Is(r.Err, kerr.UnknownTopicOrPartition) {
					continue
				}
				errs = append(errs, fmt.Errorf("delete %s: %w", r.Topic, kafkaError(r.Err, r.ErrMessage)))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "a topic that isn't there is fine")
	return cmd
}
