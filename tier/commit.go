package tier

import (
	"context"
	"fmt"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Upload puts a data object and returns the extent to commit. Nothing refers to the object before that. When it fails after the
// object's key was chosen, the extent has the key: the object may exist, hand it to Discard.
func (a *Archive) Upload(ctx context.Context, spec ObjectSpec, src Source) (Extent, error) {
	op := bucket.Op{Class: bucket.ClassRoll, Topic: spec.Topic, Kind: bucket.KindData}
	return a.upload(ctx, a.opts.Roll, op, spec, src, nil)
}

func (a *Archive) upload(ctx context.Context, b bucket.Bucket, op bucket.Op, spec ObjectSpec, src Source, amend func(*Identity)) (Extent, error) {
	l := newLayout(spec, a.opts.BlockBytes)
	pass, add := src.Batches, l.add
	if f, ok := src.(FileSource); ok {
		pass, add = f.Headers, l.addHeader
	}
	err := pass(func(b []byte, e BatchInfo) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		return add(b, e)
	})
	if err != nil {
		return Extent{}, fmt.Errorf("lay out object [%d, %d) of %v: %w", spec.Start, spec.End, spec.ID, err)
	}
	if amend != nil {
		amend(&l.ident)
	}
	if err := l.finish(a.opts.ClusterID, a.opts.ClusterIncarnation); err != nil {
		return Extent{}, fmt.Errorf("lay out object of %v: %w", spec.ID, err)
	}
	e := l.extent(dataKey(spec.ID, spec.Start, spec.Epoch))
	if _, err := b.Put(ctx, op, e.Key, &objectBody{l: l, src: src}, bucket.Condition{}); err != nil {
		return Extent{Key: e.Key}, fmt.Errorf("put object [%d, %d) of %v: %w", spec.Start, spec.End, spec.ID, err)
	}
	return e, nil
}

// CommitRoll makes uploaded objects (and void extents) part of the archive, by one swap. They must follow each other, and begin at
// the head's End. Older extents move into pages first when the head holds too many. more, which may be nil, changes other fields
// in the same swap; it may be called more than once. When another attempt of the same owner won meanwhile, the roll is applied to
// its head.
func (a *Archive) CommitRoll(ctx context.Context, id frame.PartitionID, old *Head, o Owner, exts []Extent, more func(*Head)) (*Head, error) {
	topic := ""
	if old != nil {
		topic = old.Topic
	}
	s := a.newSpiller(id, topic, o.Epoch)
	h, err := a.change(ctx, id, old, o, func(h *Head) (func(*Head) error, error) {
		n := h.Clone()
		s.version = h.Version + 1
		if err := n.appendRoll(exts); err != nil {
			return nil, err
		}
		if err := s.spill(ctx, n); err != nil {
			return nil, err
		}
		return func(next *Head) error {
			if err := next.appendRoll(exts); err != nil {
				return err
			}
			next.Pages, next.Extents = n.Pages, n.Extents
			if more != nil {
				more(next)
			}
			return nil
		}, nil
	})
	s.discard(err)
	return h, err
}

// discard hands pages that nothing refers to over to the sweep. After an error the outcome may be unknown, which the version that
// the swap would have had settles later.
func (s *spiller) discard(err error) {
	version := int64(0)
	if err != nil {
		version = s.version
	}
	for _, key := range s.leftover(err == nil) {
		s.a.Discard(s.id, key, version)
	}
}

// appendRoll appends the extents of a roll.
func (h *Head) appendRoll(exts []Extent) error {
	start := h.End
	for _, e := range exts {
		if err := h.append(e); err != nil {
			return err
		}
	}
	if h.End == start {
		return fmt.Errorf("roll without extents: %w", ErrNotContiguous)
	}
	h.LastRoll = h.End - start
	return nil
}

// append adds one extent at End.
func (h *Head) append(e Extent) error {
	if e.Start != h.End || e.End <= e.Start {
		return fmt.Errorf("extent [%d, %d) for an archive that ends at %d: %w", e.Start, e.End, h.End, ErrNotContiguous)
	}
	if e.End > h.Ceiling {
		return fmt.Errorf("extent [%d, %d), ceiling %d: %w", e.Start, e.End, h.Ceiling, ErrCeiling)
	}
	h.MaxTimestamp = max(h.MaxTimestamp, e.MaxTimestamp)
	e.RunningMax = h.MaxTimestamp
	h.Extents = append(h.Extents, e)
	h.End = e.End
	h.Bytes += e.Bytes
	h.Records += e.Records
	h.Objects++
	return nil
}
