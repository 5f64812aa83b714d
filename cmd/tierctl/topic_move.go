package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/admin"
)

// moveAction moves the line between hot and cold.
type moveAction struct {
	verb, short, long, example string
	progress                   func(*admin.TopicDetail) int64 // bytes that remain to be moved
}

var rollAction = moveAction{
	verb:  "roll",
	short: "Bring everything into the bucket now",
	long: `Uploads what the bucket doesn't have yet and commits it to the head of each
partition, without waiting for segment.bytes or segment.ms. Safe at any time and
harmless to repeat. Each broker does it for its own partitions; the exit code is 1
when a broker did not answer or a partition could not be rolled.`,
	example:  "  tierctl topic roll audit\n  tierctl topic roll audit --partition 3",
	progress: func(t *admin.TopicDetail) int64 { return t.PendingBytes },
}

var evictAction = moveAction{
	verb:  "evict",
	short: "Drop local copies that the bucket covers",
	long: `Drops the local copies of records that are in the bucket, so that they are read
from there. Nothing that isn't in the bucket is dropped: roll first to evict
everything. Each broker does it for its own partitions; the exit code is 1 when a
broker did not answer.`,
	example:  "  tierctl topic roll audit && tierctl topic evict audit",
	progress: func(t *admin.TopicDetail) int64 { return t.LocalBytes },
}

func newTopicMove(g *globals, a moveAction) *cobra.Command {
	var partition int32
	cmd := &cobra.Command{
		Use: a.verb + " TOPIC...", Short: a.short, Long: a.long, Example: a.example,
		Args: args(1, -1, "at least one name"),
		RunE: func(cmd *cobra.Command, names []string) error {
			results := []*admin.ActionResult{}
			t := newTable("topic", "partition", "broker", "start", "local start", "tiered", "durable", "hot", "cold", "result")
			failed := 0
			for _, name := range names {
				r, err := g.move(cmd.Context(), a, name, partition)
				if err != nil {
					return err
				}
				results = append(results, r)
				failed += r.Failed
				for _, p := range r.Partitions {
					t.row(r.Topic, p.Partition.Partition, number(p.Broker), number(p.Start), number(p.LocalStart), number(p.Tiered), number(p.Durable), size(p.LocalBytes), size(p.ArchiveBytes), first(p.Error, "ok"))
				}
			}
			if err := g.print(cmd, results, t); err != nil {
				return err
			}
			if failed > 0 {
				return fmt.Errorf("%s failed for %s, which kept what they had: see the results, then try again", a.verb, plural(failed, "partition"))
			}
			return nil
		},
	}
	cmd.Flags().Int32Var(&partition, "partition", -1, "only this partition")
	return cmd
}

// move runs the action while a bar shows how much is left.
func (g *globals) move(ctx context.Context, a moveAction, topic string, partition int32) (*admin.ActionResult, error) {
	bar := newProgress(a.verb+" "+topic, 0, size)
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if bar.w == nil {
			return
		}
		g.watch(watching, a, topic, bar)
	}()
	r, err := g.adminAct(ctx, a.verb, topic, partition)
	stop()
	<-done
	bar.finish()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", a.verb, topic, err)
	}
	return r, nil
}

func (g *globals) watch(ctx context.Context, a moveAction, topic string, bar *progress) {
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t, err := g.adminTopic(ctx, topic)
		if err != nil {
			continue // the action itself reports what is wrong
		}
		left := a.progress(t)
		bar.mu.Lock()
		bar.total = max(bar.total, left)
		bar.mu.Unlock()
		bar.at(bar.total - left)
	}
}
