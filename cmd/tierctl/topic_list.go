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
without it. Every broker is asked; a note names those that did not answer, whose
partitions are missing from records and bytes and count as "unknown".`,
		Example: "  tierctl topic list\n  tierctl topic list -o json",
		Args:    args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := g.adminTopics(cmd.Context())
			if err != nil && !errors.Is(err, errNoAdmin) {
				return err
			}
			if err != nil {
				cmd.PrintErrf("note: sizes are missing: %s\n", err)
				list, err = g.kafkaTopics(cmd)
			}
			if err != nil {
				return err
			}
			noteUnanswered(cmd, list.Unanswered)
			t := newTable("name", "partitions", "durability", "records", "hot", "cold", "pending", "roll lag", "state")
			shown := []*admin.Topic{}
			for _, x := range list.Topics {
				if x.Internal && !internal {
					continue
				}
				shown = append(shown, x)
				t.row(x.Name, x.Partitions, dash(x.Durability), number(x.Offsets), size(x.LocalBytes), size(x.ArchiveBytes), size(x.PendingBytes),
					age(x.RollLagMs), topicState(x))
			}
			return g.print(cmd, shown, t)
		},
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "list internal topics too")
	return cmd
}

// noteUnanswered names the brokers that something is missing from.
func noteUnanswered(cmd *cobra.Command, silent []admin.Silent) {
	for _, s := range silent {
		cmd.PrintErrf("note: broker %d did not answer, so what its partitions hold is missing here: %s\n", s.Broker, s.Error)
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
	for _, state := range []string{"writing", "starting", "recovering", "draining", "failed", "closed", "unknown"} {
		if n := t.States[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return dash(strings.Join(parts, ", "))
}

// kafkaTopics lists topics by the Kafka protocol, which knows no sizes.
func (g *globals) kafkaTopics(cmd *cobra.Command) (*admin.TopicList, error) {
	client, done, err := g.kadm()
	if err != nil {
		return nil, err
	}
	defer done()
	details, err := client.ListTopicsWithInternal(cmd.Context())
	if err != nil {
		return nil, g.unreachable("list topics", err)
	}
	list := &admin.TopicList{Topics: []*admin.Topic{}}
	for _, d := range details.Sorted() {
		list.Topics = append(list.Topics, unsized(d))
	}
	return list, nil
}

func unsized(d kadm.TopicDetail) *admin.Topic {
	return &admin.Topic{Name: d.Topic, ID: d.ID.String(), Partitions: int32(len(d.Partitions)), Internal: d.IsInternal,
		Offsets: -1, LocalBytes: -1, ArchiveBytes: -1, PendingBytes: -1}
}
