package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func newTopicAlter(g *globals) *cobra.Command {
	var (
		partitions int
		set, unset []string
	)
	cmd := &cobra.Command{
		Use:   "alter TOPIC",
		Short: "Change a topic's settings or raise its number of partitions",
		Long: `Changes settings (--config), takes them back to their defaults (--unset) and
raises the number of partitions. Records of a key stay where they were when the
number of partitions changes; new ones may go elsewhere.`,
		Example: `  tierctl topic alter audit --config retention.ms=31536000000 --unset local.retention.ms
  tierctl topic alter audit --partitions 24`,
		Args: args(1, 1, "the name of a topic"),
		RunE: func(cmd *cobra.Command, names []string) error {
			pairs, err := parsePairs("config", set)
			if err != nil {
				return err
			}
			if len(pairs)+len(unset) == 0 && partitions == 0 {
				return usagef("nothing to change: give --config, --unset or --partitions")
			}
			var changes []kadm.AlterConfig
			for _, k := range slices.Sorted(maps.Keys(pairs)) {
				changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: kadm.StringPtr(pairs[k])})
			}
			for _, k := range unset {
				if _, both := pairs[k]; both {
					return usagef("%s can't be both set and unset", k)
				}
				changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
			}
			client, done, err := g.kadm()
			if err != nil {
				return err
			}
			defer done()
			if err := g.alterConfigs(cmd, client, names[0], changes); err != nil {
				return err
			}
			if partitions == 0 {
				return nil
			}
			r, err := client.UpdatePartitions(cmd.Context(), partitions, names[0])
			if err != nil {
				return g.unreachable("add partitions", err)
			}
			var errs []error
			for _, x := range r.Sorted() {
				if x.Err != nil {
					errs = append(errs, fmt.Errorf("set partitions of %s to %d: %w", x.Topic, partitions, kafkaError(x.Err, x.ErrMessage)))
				}
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringArrayVar(&set, "config", nil, "topic setting KEY=VALUE, may be repeated")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "topic setting to take back to its default, may be repeated")
	cmd.Flags().IntVar(&partitions, "partitions", 0, "new number of partitions, more than now")
	return cmd
}

func (g *globals) alterConfigs(cmd *cobra.Command, client *kadm.Client, topic string, changes []kadm.AlterConfig) error {
	if len(changes) == 0 {
		return nil
	}
	answers, err := client.AlterTopicConfigs(cmd.Context(), changes, topic)
	if err != nil {
		return g.unreachable("alter settings", err)
	}
	var errs []error
	for _, a := range answers {
		if a.Err != nil {
			errs = append(errs, fmt.Errorf("alter settings of %s: %w", a.Name, kafkaError(a.Err, a.ErrMessage)))
		}
	}
	return errors.Join(errs...)
}
