package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/s3"
)

// headReaders bounds how many heads are read at the same time.
const headReaders = 16

func newArchive(g *globals) *cobra.Command {
	return group("archive", "Read and verify the archive, without a broker",
		`Reads the bucket itself: no broker and no etcd is needed, and nothing is changed.
Give the bucket with --bucket, $TIERCTL_BUCKET or a context; S3 credentials come
from the usual AWS environment, files or web identity.`,
		`  tierctl archive ls --bucket file:///srv/tierbroker/bucket
  tierctl archive ls logs
  tierctl archive cat logs --from 2015-07-29 --to 2015-07-30
  tierctl archive verify`,
		newArchiveList(g), newArchiveCat(g), newArchiveVerify(g))
}

// openBucket opens the bucket of --bucket. Nothing is created.
func (g *globals) openBucket(ctx context.Context) (bucket.Bucket, error) {
	if g.Bucket == "" {
		return nil, usagef("no bucket is known: give --bucket file:///PATH or s3://NAME/PREFIX?endpoint=...&region=..., or set a context")
	}
	u, err := bucket.ParseURL(g.Bucket)
	if err != nil {
		return nil, usagef("--bucket: %w", err)
	}
	switch u.Scheme {
	case bucket.SchemeFile:
		b, err := bucket.OpenExistingDir(u.Path)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", g.Bucket, err)
		}
		return b, nil
	case bucket.SchemeS3:
		b, err := s3.Open(ctx, s3.Options{URL: u})
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", g.Bucket, err)
		}
		return b, nil
	}
	return nil, usagef("--bucket %s can't be read from another process", g.Bucket)
}

// openArchive opens the bucket's archive for reading.
func (g *globals) openArchive(ctx context.Context) (*tier.Archive, bucket.Bucket, error) {
	b, err := g.openBucket(ctx)
	if err != nil {
		return nil, nil, err
	}
	return tier.New(tier.Options{Heads: b}), b, nil
}

// selection says which partitions a command is about: TOPIC, TOPIC/PARTITION, or
// a topic id in place of the name. Without any it is about all.
type selection []selected

type selected struct {
	topic     string
	partition int32 // -1: all
}

func parseSelection(args []string) (selection, error) {
	var s selection
	for _, a := range args {
		topic, number, ok := strings.Cut(a, "/")
		x := selected{topic: topic, partition: -1}
		if ok {
			n, err := strconv.ParseInt(number, 10, 32)
			if err != nil || n < 0 {
				return nil, usagef("%q is neither TOPIC nor TOPIC/PARTITION", a)
			}
			x.partition = int32(n)
		}
		s = append(s, x)
	}
	return s, nil
}

func (s selection) has(h *tier.Head) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(x selected) bool { return x.has(h) })
}

func (x selected) has(h *tier.Head) bool {
	return (x.topic == h.Topic || x.topic == h.ID.Topic.String()) && (x.partition < 0 || x.partition == h.ID.Partition)
}

// loadHeads reads the heads of the chosen partitions, sorted by topic, id and
// partition. A head that can't be read is told to bad, and left out.
func loadHeads(ctx context.Context, a *tier.Archive, s selection, bad func(id frame.PartitionID, err error)) ([]*tier.Head, error) {
	ids, err := a.List(ctx)
	if err != nil {
		return nil, err
	}
	bar := newProgress("read heads", int64(len(ids)), func(n int64) string { return strconv.FormatInt(n, 10) })
	defer bar.finish()
	heads := make([]*tier.Head, len(ids))
	errs := make([]error, len(ids))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(headReaders)
	for i, id := range ids {
		g.Go(func() error {
			heads[i], errs[i] = a.Load(gctx, id)
			bar.add(1)
			if errs[i] != nil && !errors.Is(errs[i], tier.ErrCorrupt) && !errors.Is(errs[i], tier.ErrFeature) && !errors.Is(errs[i], tier.ErrNoHead) {
				return errs[i] // the bucket, not the head
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var chosen []*tier.Head
	for i, h := range heads {
		switch {
		case errors.Is(errs[i], tier.ErrNoHead): // deleted meanwhile
		case errs[i] != nil:
			bad(ids[i], errs[i])
		case s.has(h):
			chosen = append(chosen, h)
		}
	}
	slices.SortFunc(chosen, func(a, b *tier.Head) int { return cmp.Or(cmp.Compare(a.Topic, b.Topic), a.ID.Compare(b.ID)) })
	for _, x := range s {
		if !slices.ContainsFunc(chosen, x.has) {
			if x.partition >= 0 {
				return nil, fmt.Errorf("the archive has no partition %s/%d", x.topic, x.partition)
			}
			return nil, fmt.Errorf("the archive has no topic %s", x.topic)
		}
	}
	return chosen, nil
}

// reportDamage tells of heads that can't be read.
func reportDamage(cmd *cobra.Command) func(frame.PartitionID, error) {
	return func(id frame.PartitionID, err error) { cmd.PrintErrf("head of %v: %s\n", id, err) }
}
