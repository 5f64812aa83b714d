package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
)

type catOptions struct {
	from, to string
	count    int64
	format   string
}

func newArchiveCat(g *globals) *cobra.Command {
	var o catOptions
	cmd := &cobra.Command{
		Use:   "cat TOPIC[/PARTITION]...",
		Short: "Print records straight from the bucket",
		Long: `Prints the records that the bucket holds, partition by partition in the order of
offsets. What a broker has not rolled yet isn't there.

--from and --to take earliest, latest, an offset, a time (2015-07-29T19:04:12Z,
2015-07-29), @ and milliseconds since 1970, or a span before now (-90m, -7d).
A time means the first record at or after it, in the order of offsets.`,
		Example: `  tierctl archive cat logs --from 2015-07-29T19:00:00Z --count 10
  tierctl archive cat logs/2 --from 1500 --to 1600 --format json`,
		Args: args(1, -1, "at least one TOPIC or TOPIC/PARTITION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if g.Output == outputJSON && !cmd.Flags().Changed("format") {
				o.format = "json"
			}
			return g.archiveCat(cmd, args, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "earliest", "where to begin")
	f.StringVar(&o.to, "to", "latest", "where to stop, exclusive")
	f.Int64VarP(&o.count, "count", "n", 0, "stop after so many records (default: no limit)")
	f.StringVar(&o.format, "format", "lines", formatHelp)
	return cmd
}

func (g *globals) archiveCat(cmd *cobra.Command, args []string, o catOptions) error {
	now := time.Now()
	from, err := parsePosition("from", o.from, now)
	if err != nil {
		return err
	}
	to, err := parsePosition("to", o.to, now)
	if err != nil {
		return err
	}
	out, err := newRecordWriter(cmd.OutOrStdout(), o.format)
	if err != nil {
		return err
	}
	s, err := parseSelection(args)
	if err != nil {
		return err
	}
	a, _, err := g.openArchive(cmd.Context())
	if err != nil {
		return err
	}
	damaged := 0
	heads, err := loadHeads(cmd.Context(), a, s, func(id frame.PartitionID, err error) {
		damaged++
		reportDamage(cmd)(id, err)
	})
	if err != nil {
		return err
	}
	r := catRun{a: a, out: out, left: o.count}
	for _, h := range heads {
		if h.Tombstone {
			continue
		}
		if err := r.partition(cmd.Context(), h, from, to); err != nil {
			return errors.Join(fmt.Errorf("read %s/%d: %w", h.Topic, h.ID.Partition, err), out.flush())
		}
		if r.full {
			break
		}
	}
	if err := out.flush(); err != nil {
		return err
	}
	if damaged > 0 {
		return errProblems
	}
	return nil
}

// catRun prints records until enough are printed.
type catRun struct {
	a    *tier.Archive
	out  *recordWriter
	left int64 // records that may still be printed; 0 = no limit
	full bool
}

// catBytes is how much is read at a time.
const catBytes = 8 << 20

func (r *catRun) partition(ctx context.Context, h *tier.Head, from, to position) error {
	next, err := r.resolve(ctx, h, from)
	if err != nil {
		return err
	}
	end, err := r.resolve(ctx, h, to)
	if err != nil {
		return err
	}
	end = min(end, h.End)
	for next = max(next, h.Start); next < end && !r.full; {
		b, err := r.a.Read(ctx, h, next, catBytes, toolOp(h.Topic))
		if err != nil {
			return err
		}
		err = r.print(h, &b, next, end)
		if b.Release != nil {
			b.Release()
		}
		if err != nil {
			return err
		}
		if b.Next <= next {
			return fmt.Errorf("reading at %d does not get on", next)
		}
		next = b.Next
	}
	return nil
}

func (r *catRun) resolve(ctx context.Context, h *tier.Head, at position) (int64, error) {
	switch at.kind {
	case atEarliest:
		return h.Start, nil
	case atOffset:
		return at.offset, nil
	case atTime:
		offset, _, _, ok, err := r.a.FindTime(ctx, h, at.ms, h.Start)
		if err != nil || ok {
			return offset, err
		}
		return h.End, nil
	case atLatest:
	}
	return h.End, nil
}

// print writes the records of whole batches that lie in [from, end).
func (r *catRun) print(h *tier.Head, b *tier.Batches, from, end int64) error {
	data := joined(b)
	for len(data) > 0 {
		head, one, rest, err := batch.Next(data)
		if err != nil {
			return err
		}
		data = rest
		if head.IsControl() {
			continue
		}
		var failed error
		err = batch.Iterate(one, func(rec *batch.Record) bool {
			if rec.Offset < from {
				return true
			}
			if rec.Offset >= end {
				return false
			}
			failed = r.out.print(fromBatch(h, rec))
			if r.left > 0 {
				r.left--
				r.full = r.left == 0
			}
			return failed == nil && !r.full
		})
		if err := errors.Join(err, failed); err != nil || r.full {
			return err
		}
	}
	return nil
}

// joined returns the batches as one slice: they may be cut anywhere.
func joined(b *tier.Batches) []byte {
	if len(b.Slices) == 1 {
		return b.Slices[0]
	}
	data := make([]byte, 0, b.Bytes)
	for _, s := range b.Slices {
		data = append(data, s...)
	}
	return data
}

func fromBatch(h *tier.Head, r *batch.Record) *record {
	rec := &record{Topic: h.Topic, Partition: h.ID.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	for _, x := range r.Headers {
		rec.Headers = append(rec.Headers, recordHeader{Key: x.Key, Value: x.Value})
	}
	return rec
}
