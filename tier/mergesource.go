package tier

import (
	"context"
	"fmt"
	"slices"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// mergeSource streams the batches of several extents.
type mergeSource struct {
	ctx     context.Context
	a       *Archive
	op      bucket.Op
	inputs  []Extent
	objects []*Object // of each input, nil for one in a WAL object
	times   Identity  // append times and retention of all inputs: they are not known per batch
}

// open takes the next input in, with what the spec must keep of it.
func (s *mergeSource) open(e *Extent, spec *ObjectSpec) error {
	if e.Kind == KindWAL {
		// One part spans the time of one upload, so its first batch is about as old as its last.
		s.objects = append(s.objects, nil)
		s.addTimes(e.MaxAppendTime, e.MaxAppendTime, e.RetentionTime)
		return nil
	}
	o, err := openObject(s.ctx, s.a.opts.Sweep, s.op, e.Key, e.Size, e.IndexOff)
	if err != nil {
		return err
	}
	i := &o.Identity
	if i.ID() != spec.ID || i.Base > e.Start || i.End < e.End {
		return &CorruptError{Key: o.Key, Part: "identity", Reason: fmt.Sprintf("it is [%d, %d) of %v, the head says [%d, %d)", i.Start, i.End, i.ID(), e.Start, e.End)}
	}
	if slices.Contains(i.Flags, FlagSparse) {
		spec.Sparse = true
	}
	if !slices.Contains(i.Flags, FlagNoAborted) {
		txns, err := o.Aborted(s.ctx)
		if err != nil {
			return err
		}
		spec.Aborted = append(spec.Aborted, txns...)
	}
	s.objects = append(s.objects, o)
	s.addTimes(i.MinAppendTime, i.MaxAppendTime, i.RetentionTime)
	return nil
}

func (s *mergeSource) addTimes(minAppend, maxAppend, retention int64) {
	t := &s.times
	if len(s.objects) == 1 {
		t.MinAppendTime, t.MaxAppendTime, t.RetentionTime = minAppend, maxAppend, retention
		return
	}
	t.MinAppendTime = minTime(t.MinAppendTime, minAppend)
	t.MaxAppendTime = max(t.MaxAppendTime, maxAppend)
	t.RetentionTime = max(t.RetentionTime, retention)
}

// producers returns the snapshot as of the end of the last input, nil when nobody has it: parts of WAL objects have none of their own.
func (s *mergeSource) producers(h *Head) ([]byte, error) {
	last := len(s.objects) - 1
	if o := s.objects[last]; o != nil {
		return o.Producers(s.ctx)
	}
	if s.inputs[last].End == h.End {
		return h.Producers, nil
	}
	return nil, nil
}

// Batches implements Source. Append times are not known per batch; the caller puts those of the inputs into the result.
func (s *mergeSource) Batches(yield func(b []byte, e BatchInfo) error) error {
	give := func(b []byte, h *batch.Header) error {
		return yield(b, BatchInfo{
			Base: h.BaseOffset, Last: h.LastOffset(), MaxTimestamp: h.MaxTimestamp, Epoch: h.LeaderEpoch,
			Records: h.RecordCount, Size: len(b),
		})
	}
	var buf []byte
	for i, o := range s.objects {
		e := &s.inputs[i]
		var err error
		if o != nil {
			err = o.Batches(s.ctx, e.Start, e.End, give)
		} else if buf, err = s.a.readPart(s.ctx, s.op, e, buf); err == nil {
			err = partBatches(buf, e, give)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readPart reads and verifies the part of a WAL object, a second time when its checksum is wrong. It uses buf when that is large enough.
func (a *Archive) readPart(ctx context.Context, op bucket.Op, e *Extent, buf []byte) ([]byte, error) {
	op.Kind = bucket.KindWAL
	if int64(cap(buf)) < e.Len {
		buf = make([]byte, e.Len)
	}
	buf = buf[:e.Len]
	for range 2 {
		if _, _, err := a.opts.Sweep.Get(ctx, op, e.Key, e.Off, e.Len, buf); err != nil {
			return nil, fmt.Errorf("read part of %s at byte %d: %w", e.Key, e.Off, gone(err, e.Key))
		}
		if checksum(buf) == e.CRC {
			return buf, nil
		}
	}
	return nil, &CorruptError{Key: e.Key, Part: e.part(), Reason: fmt.Sprintf("checksum is %08x, want %08x", checksum(buf), e.CRC)}
}

// partBatches calls fn for each batch of a part that reaches into the extent.
func partBatches(b []byte, e *Extent, fn func(b []byte, h *batch.Header) error) error {
	for len(b) > 0 {
		h, one, rest, err := batch.Next(b)
		if err != nil {
			return &CorruptError{Key: e.Key, Part: e.part(), Reason: fmt.Sprintf("batch at its byte %d: %v", e.Len-int64(len(b)), err)}
		}
		if h.LastOffset() >= e.Start && h.BaseOffset < e.End {
			if err := fn(one, &h); err != nil {
				return err
			}
		}
		b = rest
	}
	return nil
}
