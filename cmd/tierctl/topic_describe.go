package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/admin"
)

// topicConfig is one setting of a topic.
type topicConfig struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

type topicDescription struct {
	admin.TopicDetail
	Configs []topicConfig `json:"configs"`
}

func newTopicDescribe(g *globals) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "describe TOPIC",
		Short: "Show a topic's settings and where each partition's records lie",
		Long: `Shows a topic's settings (those that differ from the defaults, or all with
--all) and its partitions. Offsets from start to tiered are in the bucket, those
from local start on are in the broker's commit log; consumers see records below
durable. The state is "unknown" where a partition's broker doesn't answer.`,
		Example: "  tierctl topic describe audit --all",
		Args:    args(1, 1, "the name of a topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			detail, err := g.adminTopic(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			configs, err := g.topicConfigs(cmd.Context(), args[0], all)
			if err != nil {
				return err
			}
			settings := newTable("setting", "value", "source")
			for _, c := range configs {
				settings.row(c.Name, dash(c.Value), c.Source)
			}
			list := newTable("partition", "broker", "state", "epoch", "start", "local start", "tiered", "durable", "end", "hot", "cold", "objects", "roll lag")
			for _, p := range detail.PartitionList {
				state := p.State
				if p.Reason != "" {
					state += ": " + p.Reason
				}
				list.row(p.Partition, number(p.Broker), state, number(p.Epoch), number(p.Start), number(p.LocalStart), number(p.Tiered), number(p.Durable), number(p.End),
					size(p.LocalBytes), size(p.ArchiveBytes), number(p.Extents), age(p.RollLagMs))
			}
			if g.Output == outputTable {
				fmt.Fprintf(cmd.OutOrStdout(), "%s  id %s, %s, created %s\n\n", detail.Name, detail.ID, plural(int(detail.Partitions), "partition"), moment(detail.CreatedAt))
			}
			noteUnanswered(cmd, detail.Unanswered)
			tables := []*table{settings, list}
			if len(configs) == 0 {
				tables = tables[1:]
			}
			return g.print(cmd, topicDescription{*detail, configs}, tables...)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "show settings at their defaults too")
	return cmd
}

func (g *globals) topicConfigs(ctx context.Context, topic string, all bool) ([]topicConfig, error) {
	client, done, err := g.kadm()
	if err != nil {
		return nil, err
	}
	defer done()
	resources, err := client.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, g.unreachable("describe settings", err)
	}
	configs := []topicConfig{}
	for _, r := range resources {
		if r.Err != nil {
			return nil, fmt.Errorf("describe settings of %s: %w", topic, kafkaError(r.Err, r.ErrMessage))
		}
		for _, c := range r.Configs {
			if all || c.Source != kmsg.ConfigSourceDefaultConfig {
				configs = append(configs, topicConfig{c.Key, c.MaybeValue(), sourceName(c)})
			}
		}
	}
	slices.SortFunc(configs, func(a, b topicConfig) int { return strings.Compare(a.Name, b.Name) })
	return configs, nil
}

func sourceName(c kadm.Config) string {
	switch c.Source {
	case kmsg.ConfigSourceDynamicTopicConfig:
		return "topic"
	case kmsg.ConfigSourceDynamicBrokerConfig:
		return "broker"
	case kmsg.ConfigSourceDynamicDefaultBrokerConfig:
		return "cluster"
	case kmsg.ConfigSourceStaticBrokerConfig:
		return "configuration"
	case kmsg.ConfigSourceDefaultConfig:
		return "default"
	}
	return strings.ToLower(c.Source.String())
}
