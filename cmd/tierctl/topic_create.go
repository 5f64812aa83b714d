package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newTopicCreate(g *globals) *cobra.Command {
	var (
		partitions  int32
		settings    []string
		ifNotExists bool
	)
	cmd := &cobra.Command{
		Use:   "create TOPIC...",
		Short: "Create topics",
		Example: `  tierctl topic create logs
  tierctl topic create audit --partitions 12 --config retention.ms=-1 --config local.retention.ms=3600000`,
		Args: args(1, -1, "at least one name"),
		RunE: func(cmd *cobra.Command, names []string) error {
			pairs, err := parsePairs("config", settings)
			if err != nil {
				return err
			}
			if partitions < 1 && partitions != -1 {
				return usagef("--partitions must be at least 1")
			}
			configs := make(map[string]*string, len(pairs))
			for k, v := range pairs {
				configs[k] = kadm.StringPtr(v)
			}
			client, done, err := g.kadm()
			if err != nil {
				return err
			}
			defer done()
			created, err := client.CreateTopics(cmd.Context(), partitions, -1, configs, names...)
			if err != nil {
				return g.unreachable("create topics", err)
			}
			var errs []error
			for _, r := range created.Sorted() {
				if r.Err == nil || ifNotExists && errors.Is(r.Err, kerr.TopicAlreadyExists) {
					continue
				}
				errs = append(errs, fmt.Errorf("create %s: %w", r.Topic, kafkaError(r.Err, r.ErrMessage)))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().Int32Var(&partitions, "partitions", -1, "number of partitions (default: the broker's num-partitions)")
	cmd.Flags().StringArrayVar(&settings, "config", nil, "topic setting KEY=VALUE, may be repeated")
	cmd.Flags().BoolVar(&ifNotExists, "if-not-exists", false, "a topic that is there already is fine, whatever its settings")
	return cmd
}
