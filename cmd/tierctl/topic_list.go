package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tierbroker/tierbroker/admin"
)

func newTopicList(g *globals) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List topics with their hot and cold bytes",
		Long: `Lists topics. Hot bytes lie in the broker's commit log, cold ones in the bucket
(while the local copy is kept, a record counts in both); pending is what isn't
in the bucket yet. Records are offsets from start to end: those that a restore or
a forced move skipped count too. Sizes come from the admin API and are "-"
without it. In a cluster, records and bytes are those of the partitions at the
node that is asked (--admin); a note says how many are elsewhere.`,
		Example: "  tierctl topic list\n  tierctl topic list -o json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			topics, err := g.adminTopics(cmd.Context())
			if err != nil && !errors.Is(err, errNoAdmin) {
				return err
			}
			sized := err == nil
			if err != nil {
				cmd.PrintErrf("note: sizes are missing: %s\n", err)
				topics, err = g.kafkaTopics(cmd)
			}
			if err != nil {
				return err
			}
			t := newTable("name", "partitions", "durability", "records", "hot", "cold", "pending", "roll lag", "state")
			shown, all, here := []admin.Topic{}, 0, 0
			for _, x := range topics {
				if x.Internal && !internal {
					continue
				}
				shown = append(shown, x)
				all, here = all+int(x.Partitions), here+x.Local
				t.row(x.Name, x.Partitions, dash(x.Durability), x.Offsets, size(x.LocalBytes), size(x.ArchiveBytes), size(x.PendingBytes),
					age(x.RollLagMs), topicState(&x))
			}
			if sized {
				noteElsewhere(cmd, all, here)
			}
			return g.print(cmd, shown, t)
		},
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "list internal topics too")
	return cmd
}

// noteElsewhere says that a node told only of its own partitions.
func noteElsewhere(cmd *cobra.Command, all, here int) {
	if here < all {
		cmd.PrintErrf("note: this is about %d of %d partitions; the others are at other nodes: ask each with --admin\n", here, all)
	}
}

// topicState sums up the states of a topic's partitions.
func topicState(t *admin.Topic) string {
	if t.Deleting {
		return "deleting"
	}
	if len(t.States) == 1 && t.States["writing"] > 0 {
		return "ok"
	}
	var parts []string
	for _, state := range []string{"writing", "starting", "recovering", "draining", "failed", "closed"} {
		if n := t.States[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return dash(strings.Join(parts, ", "))
}

// kafkaTopics lists topics by the Kafka protocol, which knows no sizes.
func (g *globals) kafkaTopics(cmd *cobra.Command) ([]admin.Topic, error) {
	client, done, err := g.kadm()
	if err != nil {
		return nil, err
	}
	defer done()
	details, err := client.ListTopicsWithInternal(cmd.Context())
	if err != nil {
		return nil, g.unreachable("list topics", err)
	}
	topics := []admin.Topic{}
	for _, d := range details.Sorted() {
		topics = append(topics, unsized(d))
	}
	return topics, nil
}

func unsized(d kadm.TopicDetail) admin.Topic {
	return admin.Topic{Name: d.Topic, ID: d.ID.String(), Partitions: int32(len(d.Partitions)), Internal: d.IsInternal,
		LocalBytes: -1, ArchiveBytes: -1, PendingBytes: -1}
}
