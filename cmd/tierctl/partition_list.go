package main

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

func newPartitionList(g *globals) *cobra.Command {
	var broker int32
	var state string
	var problem, moving bool
	cmd := &cobra.Command{
		Use:   "list [TOPIC]",
		Short: "List partitions with their owners",
		Long: `Lists the partitions of the cluster, or of a topic.

  LEADER   the broker that serves it, "-" while none does
  OWNER    the broker it belongs to
  EPOCH    number of the ownership; it rises each time a broker takes it up
  SAFE     everything acknowledged is in the bucket: if its broker dies, another one
           takes it over by itself. Otherwise it waits for its broker
  TARGET   the broker it moves to
  PROBLEM  why nobody serves it: "waiting" for its dead broker, "failing over",
           "being opened", "failed" (with the reason), "unplaced", "restarting"`,
		Example: `  tierctl partition list audit
  tierctl partition list --problem
  tierctl partition list --broker 3 -o json`,
		Args: args(0, 1, "at most the name of a topic"),
		RunE: func(cmd *cobra.Command, names []string) error {
			query := url.Values{}
			if len(names) > 0 {
				query.Set("topic", names[0])
			}
			if cmd.Flags().Changed("broker") {
				query.Set("broker", strconv.Itoa(int(broker)))
			}
			if state != "" {
				query.Set("state", state)
			}
			query.Set("problem", strconv.FormatBool(problem))
			query.Set("moving", strconv.FormatBool(moving))
			list, err := g.adminAssignments(cmd.Context(), query)
			if err != nil {
				return err
			}
			return g.print(cmd, list, assignmentTable(list))
		},
	}
	f := cmd.Flags()
	f.Int32Var(&broker, "broker", 0, "only what this broker owns; -1 for what nobody owns")
	f.StringVar(&state, "state", "", "only this state: unassigned, starting, recovering, writing, draining, failed, deleted")
	f.BoolVar(&problem, "problem", false, "only those that nobody serves")
	f.BoolVar(&moving, "moving", false, "only those that move or are to be moved")
	return cmd
}

func assignmentTable(list []admin.Assignment) *table {
	t := newTable("topic", "partition", "state", "leader", "owner", "epoch", "durability", "safe", "target", "problem")
	for i := range list {
		p := &list[i]
		owner := nodeID(p.Owner)
		if p.Owner >= 0 && !p.OwnerAlive {
			owner += " (dead)"
		}
		target := nodeID(p.Target)
		if p.Target < 0 && p.Wished >= 0 && p.Wished != p.Owner {
			target = fmt.Sprintf("%d (waits)", p.Wished)
		}
		why := dash(p.Problem)
		if p.Reason != "" {
			why += ": " + p.Reason
		}
		t.row(p.Topic, p.Partition, p.State, nodeID(p.Leader), owner, nodeID(p.Epoch), p.Durability, yesNo(p.Safe), target, why)
	}
	return t
}

// nodeID prints an id, "-" for none.
func nodeID(n int32) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(int(n))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
