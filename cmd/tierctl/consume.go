package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type consumeOptions struct {
	from, to   string
	count      int64
	partitions []int32
	follow     bool
	format     string
}

func newConsume(g *globals) *cobra.Command {
	var o consumeOptions
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print records from an offset or a time",
		Long: `Prints the records of a topic, hot and cold alike, and stops at the end that each
partition has at the start; with --follow it goes on with new records.

--from and --to take earliest, latest, an offset, a time (2015-07-29T19:04:12Z,
2015-07-29), @ and milliseconds since 1970, or a span before now (-90m, -7d).
A time means the first record at or after it, in the order of offsets.`,
		Example: `  tierctl consume logs
  tierctl consume logs --from 2015-07-29T19:00:00Z --to 2015-07-30 --format json
  tierctl consume logs --partition 2 --from 1500 --count 10 --format '{{.Offset}} {{.Time}} {{.Value}}\n'
  tierctl consume logs --from latest --follow`,
		Args: args(1, 1, "the name of a topic"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if g.Output == outputJSON && !cmd.Flags().Changed("format") {
				o.format = "json"
			}
			return g.consume(cmd, args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "earliest", "where to begin")
	f.StringVar(&o.to, "to", "", "where to stop, exclusive (default: the end at the start)")
	f.Int64VarP(&o.count, "count", "n", 0, "stop after so many records (default: no limit)")
	f.Int32SliceVar(&o.partitions, "partition", nil, "only these partitions, separated by commas")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with new records")
	f.StringVar(&o.format, "format", "lines", formatHelp)
	return cmd
}

// span is what is to be read of one partition: [next, end).
type span struct{ next, end int64 }

// noEnd is the end of a partition that is followed.
const noEnd = int64(math.MaxInt64)

func (g *globals) consume(cmd *cobra.Command, topic string, o consumeOptions) error {
	now := time.Now()
	from, err := parsePosition("from", o.from, now)
	if err != nil {
		return err
	}
	to := position{kind: atLatest}
	if o.to != "" {
		if o.follow {
			return usagef("--to and --follow exclude each other")
		}
		if to, err = parsePosition("to", o.to, now); err != nil {
			return err
		}
	}
	out, err := newRecordWriter(cmd.OutOrStdout(), o.format)
	if err != nil {
		return err
	}
	spans, err := g.spans(cmd.Context(), topic, o.partitions, from, to, o.follow)
	if err != nil {
		return err
	}
	offsets := map[int32]kgo.Offset{}
	for p, s := range spans {
		if s.next < s.end {
			offsets[p] = kgo.NewOffset().At(s.next)
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	client, err := g.kafka(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	r := &consumeRun{client: client, topic: topic, out: out, spans: spans, open: len(offsets), left: o.count, follow: o.follow}
	err = r.loop(cmd.Context())
	if flushErr := out.flush(); err == nil {
		err = flushErr
	}
	if err != nil && !(o.follow && errors.Is(err, context.Canceled)) {
		return fmt.Errorf("consume %s at %s: %w", topic, g.Bootstrap, err)
	}
	return nil
}

// spans finds out where to begin and end in each partition.
func (g *globals) spans(ctx context.Context, topic string, only []int32, from, to position, follow bool) (map[int32]span, error) {
	client, done, err := g.kadm()
	if err != nil {
		return nil, err
	}
	defer done()
	begin, err := g.offsets(ctx, client, topic, from)
	if err != nil {
		return nil, err
	}
	end, err := g.offsets(ctx, client, topic, to)
	if err != nil {
		return nil, err
	}
	earliest, err := g.offsets(ctx, client, topic, position{kind: atEarliest})
	if err != nil {
		return nil, err
	}
	latest, err := g.offsets(ctx, client, topic, position{kind: atLatest})
	if err != nil {
		return nil, err
	}
	spans := map[int32]span{}
	for p, first := range earliest {
		s := span{next: max(begin[p], first), end: min(end[p], latest[p])}
		if follow {
			s.end = noEnd
		}
		if from.kind == atOffset && (from.offset < first || from.offset > latest[p]) && (len(only) == 0 || slices.Contains(only, p)) {
			return nil, usagef("offset %d is outside of partition %d, which has %d to %d", from.offset, p, first, latest[p]-1)
		}
		spans[p] = s
	}
	if len(only) == 0 {
		return spans, nil
	}
	chosen := map[int32]span{}
	for _, p := range only {
		s, ok := spans[p]
		if !ok {
			return nil, usagef("topic %s has no partition %d (it has %d)", topic, p, len(spans))
		}
		chosen[p] = s
	}
	return chosen, nil
}

// offsets resolves a position for all partitions of a topic.
func (g *globals) offsets(ctx context.Context, client *kadm.Client, topic string, at position) (map[int32]int64, error) {
	var listed kadm.ListedOffsets
	var err error
	switch at.kind {
	case atEarliest:
		listed, err = client.ListStartOffsets(ctx, topic)
	case atTime:
		listed, err = client.ListOffsetsAfterMilli(ctx, at.ms, topic)
	case atLatest, atOffset:
		listed, err = client.ListEndOffsets(ctx, topic)
	}
	if err != nil {
		return nil, g.unreachable("find offsets of "+topic, err)
	}
	offsets := map[int32]int64{}
	for p, l := range listed[topic] {
		if l.Err != nil {
			return nil, fmt.Errorf("find offsets of %s/%d: %w", topic, p, l.Err)
		}
		offsets[p] = l.Offset
		if at.kind == atOffset {
			offsets[p] = at.offset
		}
	}
	if len(offsets) == 0 {
		return nil, fmt.Errorf("there is no topic %s", topic)
	}
	return offsets, nil
}

type consumeRun struct {
	client *kgo.Client
	topic  string
	out    *recordWriter
	spans  map[int32]span
	open   int   // partitions that have not reached their end
	left   int64 // records that may still be printed; 0 = no limit
	follow bool
}

// quiet is how long nothing may arrive before reading counts as finished. Offsets
// just below an end need not hold records (control records, gaps).
const quiet = 10 * time.Second

func (r *consumeRun) loop(ctx context.Context) error {
	for r.open > 0 {
		poll, cancel := context.WithTimeout(ctx, quiet)
		fetches := r.client.PollFetches(poll)
		timedOut := poll.Err() != nil && ctx.Err() == nil
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		stop, err := r.take(fetches)
		if err != nil || stop {
			return err
		}
		if r.follow {
			if err := r.out.flush(); err != nil {
				return err
			}
			continue
		}
		if timedOut && fetches.NumRecords() == 0 {
			return fmt.Errorf("nothing came for %s, though not all is read: %s to go", quiet, plural(r.open, "partition"))
		}
	}
	return nil
}

// take prints what a poll brought; true means that enough was printed.
func (r *consumeRun) take(fetches kgo.Fetches) (bool, error) {
	for _, e := range fetches.Errors() {
		if !errors.Is(e.Err, context.DeadlineExceeded) {
			return false, fmt.Errorf("partition %d: %w", e.Partition, e.Err)
		}
	}
	for iter := fetches.RecordIter(); !iter.Done(); {
		rec := iter.Next()
		s := r.spans[rec.Partition]
		if rec.Offset >= s.end {
			r.close(rec.Partition)
			continue
		}
		if err := r.out.print(fromKgo(rec)); err != nil {
			return false, err
		}
		s.next = rec.Offset + 1
		r.spans[rec.Partition] = s
		if s.next >= s.end {
			r.close(rec.Partition)
		}
		if r.left > 0 {
			if r.left--; r.left == 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

// close ends a partition once.
func (r *consumeRun) close(p int32) {
	s := r.spans[p]
	if s.end < 0 {
		return
	}
	s.end = -1
	r.spans[p] = s
	r.open--
	r.client.PauseFetchPartitions(map[string][]int32{r.topic: {p}})
}

func fromKgo(r *kgo.Record) *record {
	rec := &record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, recordHeader{Key: h.Key, Value: h.Value})
	}
	return rec
}
