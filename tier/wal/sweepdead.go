package wal

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Report says what a sweep of a sealed stream has done.
type Report struct {
	Deleted int    // objects
	Bytes   int64  // of those
	Kept    int    // data objects that somebody may still need
	Missing uint64 // of the stream's objects, deleted earlier
}

// SweepDead deletes the data objects of a sealed stream for all of whose entries dead says so, and those that no reader sees. Seals stay
// for ever. ErrNotSealed: the stream may be alive. When dead fails for an object, that one stays, and the error is returned in the end.
//
// An entry is dead when the end of its partition's head has passed it, or its epoch's interval excludes it, or the head neither names
// the stream as pending nor the object in an extent, or the partition is gone. Nothing that may still be committed may be called dead.
func SweepDead(ctx context.Context, b bucket.Bucket, op bucket.Op, id StreamID, dead func(context.Context, Entry) (bool, error)) (Report, error) {
	s, err := Find(ctx, b, op, id)
	if err != nil {
		return Report{}, err
	}
	return s.Sweep(ctx, dead, nil)
}

// Sweep is SweepDead for a stream that is at hand. An object whose entries are all dead goes when ripe says so for its number; a nil ripe
// always does. Readers that hold an older head may still ask for it.
func (s *Sealed) Sweep(ctx context.Context, dead func(context.Context, Entry) (bool, error), ripe func(seq uint64) bool) (Report, error) {
	var r Report
	r.Missing = s.Absent
	del := deleter{s: s, r: &r}
	for _, o := range s.beyond {
		if err := del.add(ctx, o); err != nil {
			return r, err
		}
	}
	if err := s.load(ctx); err != nil {
		return r, errors.Join(err, del.flush(ctx))
	}
	alive := make([]bool, len(s.objects))
	var errs []error
	for _, p := range s.footers.order {
		if alive[p.object] {
			continue
		}
		e, err := s.entry(p)
		ok := false
		if err == nil {
			ok, err = dead(ctx, e)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep WAL object %d of %v: %w", s.objects[p.object].seq, s.Stream, err))
		}
		alive[p.object] = err != nil || !ok
		if ctx.Err() != nil {
			return r, errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	for i, o := range s.objects {
		if alive[i] || ripe != nil && !ripe(o.seq) {
			r.Kept++
		} else if err := del.add(ctx, o); err != nil {
			return r, errors.Join(append(errs, err)...)
		}
	}
	return r, errors.Join(append(errs, del.flush(ctx))...)
}

// deleter deletes objects in portions.
type deleter struct {
	s     *Sealed
	r     *Report
	keys  []string
	bytes int64
}

func (d *deleter) add(ctx context.Context, o found) error {
	d.keys = append(d.keys, d.s.Stream.Key(o.seq))
	d.bytes += o.size
	if len(d.keys) < bucket.MaxList {
		return nil
	}
	return d.flush(ctx)
}

func (d *deleter) flush(ctx context.Context) error {
	if len(d.keys) == 0 {
		return nil
	}
	op := bucket.Op{Class: bucket.ClassSweep, Kind: bucket.KindWAL}
	if err := d.s.b.Delete(ctx, op, d.keys); err != nil {
		return fmt.Errorf("sweep WAL stream %v: %w", d.s.Stream, err)
	}
	d.r.Deleted += len(d.keys)
	d.r.Bytes += d.bytes
	d.keys, d.bytes = nil, 0
	return nil
}
