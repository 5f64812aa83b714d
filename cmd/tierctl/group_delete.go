package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
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
			deleted, err := client.DeleteGroups(cmd.Context(), names...)
			if err != nil {
				return g.unreachable("delete groups", err)
			}
			var errs []error
			for _, r := range deleted.Sorted() {
				if r.Err == nil || ifExists && errors.Is(r.Err, kerr.GroupIDNotFound) {
					continue
				}
				errs = append(errs, fmt.Errorf("delete group %s: %w", r.Group, r.Err))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "a group that isn't there is fine")
	return cmd
}
