package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/frame"
)

func newDump(g *globals) *cobra.Command {
	return group("dump", "Show the inside of files and objects, for developers and support",
		`Shows what is stored, as JSON lines. Nothing is changed. Commit log and index are
read from a data directory, objects and heads from the bucket.`,
		`  tierctl dump commitlog /var/lib/tierbroker --topic-id lNhXoxkDQFKUqW7AsP2OPg
  tierctl dump index /var/lib/tierbroker
  tierctl dump head logs/0
  tierctl dump object data/7d3a/dc7db5ddc47142fca53cc1b9e1f5d718/2/00000000000000000000-0000000000-dffb2df665eab3976f013139.tbd`,
		newDumpCommitLog(), newDumpIndex(), newDumpObject(g), newDumpWAL(g), newDumpHead(g))
}

// filter chooses partitions of a dump.
type filter struct {
	topic     string
	partition int32
}

func (f *filter) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.topic, "topic-id", "", "only this topic (tierctl topic describe shows ids)")
	cmd.Flags().Int32Var(&f.partition, "partition", -1, "only this partition")
}

func (f *filter) check() error {
	if f.topic == "" {
		return nil
	}
	if _, err := frame.ParseTopicID(f.topic); err != nil {
		return usagef("--topic-id: %w", err)
	}
	return nil
}

func (f *filter) has(id frame.PartitionID) bool {
	return (f.topic == "" || f.topic == id.Topic.String()) && (f.partition < 0 || f.partition == id.Partition)
}

// jsonLines writes one object a line.
type jsonLines struct{ e *json.Encoder }

func newJSONLines(w io.Writer) jsonLines {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return jsonLines{e}
}

func (j jsonLines) put(v any) error {
	if err := j.e.Encode(v); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
