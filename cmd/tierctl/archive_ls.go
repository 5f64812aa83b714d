package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// archiveTopic is a topic in the bucket.
type archiveTopic struct {
	Topic      string             `json:"topic"`
	ID         string             `json:"id"`
	Deleted    bool               `json:"deleted"`
	Records    int64              `json:"records"`
	Bytes      int64              `json:"bytes"`
	Objects    int64              `json:"objects"`
	Partitions []archivePartition `json:"partitions"`
}

type archivePartition struct {
	Partition    int32           `json:"partition"`
	Start        int64           `json:"start"`
	End          int64           `json:"end"`
	Records      int64           `json:"records"`
	Bytes        int64           `json:"bytes"`
	Objects      int64           `json:"objects"`
	MinTimestamp int64           `json:"min_timestamp"` // of the oldest object, -1 when unknown
	MaxTimestamp int64           `json:"max_timestamp"`
	Epoch        int32           `json:"epoch"`
	Owner        int32           `json:"owner"`
	HeadVersion  int64           `json:"head_version"`
	Extents      []archiveExtent `json:"extents,omitempty"`
}

type archiveExtent struct {
	Start        int64  `json:"start"`
	End          int64  `json:"end"`
	Kind         string `json:"kind"`
	Records      int64  `json:"records"`
	Bytes        int64  `json:"bytes"`
	Size         int64  `json:"object_bytes"`
	MinTimestamp int64  `json:"min_timestamp"`
	MaxTimestamp int64  `json:"max_timestamp"`
	Epoch        int32  `json:"epoch"`
	Object       string `json:"object,omitempty"`
}

func newArchiveList(g *globals) *cobra.Command {
	var extents bool
	cmd := &cobra.Command{
		Use:   "ls [TOPIC[/PARTITION]...]",
		Short: "List topics, partitions and extents in the bucket",
		Long: `Lists what the bucket holds: without arguments one line per topic, with topics one
line per partition, with TOPIC/PARTITION or --extents one line per extent (a data
object, or a range of offsets that was given up). A topic id stands for its name.`,
		Example: `  tierctl archive ls
  tierctl archive ls logs
  tierctl archive ls logs/0 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := parseSelection(args)
			if err != nil {
				return err
			}
			for _, x := range s {
				extents = extents || x.partition >= 0
			}
			a, b, err := g.openArchive(cmd.Context())
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
			topics, err := describeTopics(cmd.Context(), a, b, heads, extents, len(s) > 0)
			if err != nil {
				return err
			}
			if err := g.print(cmd, topics, archiveTables(topics, extents, len(s) > 0)...); err != nil {
				return err
			}
			if damaged > 0 {
				return errProblems
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&extents, "extents", false, "list extents too")
	return cmd
}

// describeTopics sums the heads up by topic. times asks the oldest object of each
// partition for its oldest timestamp; the head knows the newest only.
func describeTopics(ctx context.Context, a *tier.Archive, b bucket.Bucket, heads []*tier.Head, extents, times bool) ([]archiveTopic, error) {
	partitions := make([]archivePartition, len(heads))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(headReaders)
	for i, h := range heads {
		g.Go(func() (err error) {
			partitions[i], err = describePartition(gctx, a, b, h, extents, times)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	topics := []archiveTopic{}
	for i, h := range heads {
		n := len(topics)
		if n == 0 || topics[n-1].ID != h.ID.Topic.String() {
			topics = append(topics, archiveTopic{Topic: h.Topic, ID: h.ID.Topic.String()})
			n++
		}
		t := &topics[n-1]
		t.Deleted = t.Deleted || h.Tombstone
		t.Records += h.Records
		t.Bytes += h.Bytes
		t.Objects += h.Objects
		t.Partitions = append(t.Partitions, partitions[i])
	}
	return topics, nil
}

func describePartition(ctx context.Context, a *tier.Archive, b bucket.Bucket, h *tier.Head, extents, times bool) (archivePartition, error) {
	p := archivePartition{Partition: h.ID.Partition, Start: h.Start, End: h.End, Records: h.Records, Bytes: h.Bytes, Objects: h.Objects,
		MinTimestamp: -1, MaxTimestamp: h.MaxTimestamp, Epoch: h.Epoch, Owner: h.Owner, HeadVersion: h.Version}
	if !extents && !times {
		return p, nil
	}
	for e, err := range a.Extents(ctx, h) {
		if err != nil {
			return p, fmt.Errorf("extents of %s/%d: %w", h.Topic, h.ID.Partition, err)
		}
		x := archiveExtent{Start: e.Start, End: e.End, Kind: string(e.Kind), Records: e.Records, Bytes: e.Bytes, Size: e.Size,
			MinTimestamp: -1, MaxTimestamp: e.MaxTimestamp, Epoch: e.Epoch, Object: e.Key}
		if e.Kind == tier.KindData {
			o, err := tier.OpenObject(ctx, b, toolOp(h.Topic), e.Key)
			if err != nil {
				return p, fmt.Errorf("object %s: %w (tierctl archive verify %s/%d says more)", e.Key, err, h.Topic, h.ID.Partition)
			}
			x.MinTimestamp = o.Identity.MinTimestamp
			if p.MinTimestamp < 0 {
				p.MinTimestamp = x.MinTimestamp
			}
		}
		if !extents {
			if p.MinTimestamp < 0 {
				continue // a void comes before the first object
			}
			break
		}
		p.Extents = append(p.Extents, x)
	}
	return p, nil
}

func toolOp(topic string) bucket.Op {
	return bucket.Op{Class: bucket.ClassTool, Topic: topic, Kind: bucket.KindData}
}

func archiveTables(topics []archiveTopic, extents, partitions bool) []*table {
	if extents {
		t := newTable("topic", "partition", "kind", "start", "end", "records", "bytes", "from", "to", "epoch", "object")
		for _, x := range topics {
			for _, p := range x.Partitions {
				for _, e := range p.Extents {
					t.row(x.Topic, p.Partition, e.Kind, e.Start, e.End, e.Records, size(e.Bytes), moment(e.MinTimestamp), moment(e.MaxTimestamp), e.Epoch, dash(e.Object))
				}
			}
		}
		return []*table{t}
	}
	if partitions {
		t := newTable("topic", "partition", "start", "end", "records", "bytes", "objects", "from", "to", "epoch", "owner")
		for _, x := range topics {
			for _, p := range x.Partitions {
				t.row(x.Topic, p.Partition, p.Start, p.End, p.Records, size(p.Bytes), p.Objects, moment(p.MinTimestamp), moment(p.MaxTimestamp), p.Epoch, p.Owner)
			}
		}
		return []*table{t}
	}
	t := newTable("topic", "id", "partitions", "records", "bytes", "objects", "newest", "state")
	for _, x := range topics {
		newest := int64(-1)
		for _, p := range x.Partitions {
			newest = max(newest, p.MaxTimestamp)
		}
		state := "ok"
		if x.Deleted {
			state = "deleted"
		}
		t.row(x.Topic, x.ID, len(x.Partitions), x.Records, size(x.Bytes), x.Objects, moment(newest), state)
	}
	return []*table{t}
}
