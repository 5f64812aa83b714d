package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newGroupDelete(g *globals) *cobra.Command {
	var yes, ifExists bool
	cmd := &cobra.Command{
		Use:     "delete GROUP...",
		Short:   "Delete groups with their offsets",
		Long:    `Deletes groups that have no members, with all their offsets. Asks first on a terminal; elsewhere --yes is needed.`,
		Example: "  tierctl group delete billing --yes",
		Args:    args(1, -1, "at least one name"),
		RunE: func(cmd *cobra.Command, names []string) error {
			if !yes {
				if err := confirm(cmd, fmt.Sprintf("Delete %s with all offsets?", strings.Join(names, ", ")), "nothing was deleted"); err != nil {
					return err
				}
			}
			client, done, err := g.kadm()
			if err != nil {
				return err
			}
			defer done()
			var errs []error
			for _, name := range names {
				_, err := coordinated(cmd.Context(), func(ctx context.Context) (kadm.DeleteGroupResponse, error) { return client.DeleteGroup(ctx, name) })
				if err != nil && !(ifExists && errors.Is(err, kerr.GroupIDNotFound)) {
					errs = append(errs, g.unreachable("delete group "+name, err))
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "a group that isn't there is fine")
	return cmd
}
