package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type listedGroup struct {
	Group       string `json:"group"`
	Type        string `json:"type"`
	Protocol    string `json:"protocol"`
	State       string `json:"state"`
	Coordinator int32  `json:"coordinator"`
}

func newGroupList(g *globals) *cobra.Command {
	var states []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List groups with their states",
		Long: `Lists the groups of all coordinators. --state takes Empty, PreparingRebalance,
CompletingRebalance, Stable, Assigning, Reconciling or Dead, several separated by
commas.`,
		Example: "  tierctl group list\n  tierctl group list --state empty",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, done, err := g.kadm()
			if err != nil {
				return err
			}
			defer done()
			listed, err := coordinated(cmd.Context(), func(ctx context.Context) (kadm.ListedGroups, error) { return client.ListGroups(ctx, states...) })
			if err != nil {
				return g.unreachable("list groups", err)
			}
			groups := []listedGroup{}
			t := newTable("group", "type", "protocol", "state", "coordinator")
			for _, x := range listed {
				groups = append(groups, listedGroup{x.Group, strings.ToLower(x.GroupType), x.ProtocolType, x.State, x.Coordinator})
			}
			slices.SortFunc(groups, func(a, b listedGroup) int { return cmp.Compare(a.Group, b.Group) })
			for _, x := range groups {
				t.row(x.Group, dash(x.Type), dash(x.Protocol), dash(x.State), fmt.Sprintf("broker %d", x.Coordinator))
			}
			return g.print(cmd, groups, t)
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in these states")
	return cmd
}
