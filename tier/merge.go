package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// MergeOptions say which neighbours are worth merging.
type MergeOptions struct {
	SmallBytes  int64 // objects below are small; default a quarter of TargetBytes
	TargetBytes int64 // the result has at most this; default 64 MiB
	MinObjects  int   // fewer neighbours are left alone; default 4
	MaxObjects  int   // at most so many at once; default 256
	Now         int64 // milliseconds
}

func (o *MergeOptions) setDefaults() {
	setDefault(&o.TargetBytes, 64<<20)
	setDefault(&o.SmallBytes, o.TargetBytes/4)
	setDefault(&o.MinObjects, 4)
	setDefault(&o.MaxObjects, 256)
	o.MinObjects = max(o.MinObjects, 2)
}

// pick returns the oldest run of neighbours that is worth merging. Extents in WAL objects come first, however large or few: a WAL
// object stays until the last of them is gone. Of data objects no input may be more than half of the result, or it would be copied again
// and again for a few bytes more.
func (o *MergeOptions) pick(es []Extent, start int64) (from, to int) {
	if from, to = o.pickWAL(es, start); from != to {
		return from, to
	}
	small := func(e *Extent) bool { return e.Kind == KindData && e.Size < o.SmallBytes && e.End > start }
	for i := 0; i < len(es); i++ {
		sum, largest, n := int64(0), int64(0), i
		for n < len(es) && n-i < o.MaxObjects && small(&es[n]) && sum+es[n].Size <= o.TargetBytes {
			sum, largest = sum+es[n].Size, max(largest, es[n].Size)
			n++
		}
		if n-i >= o.MinObjects && largest <= sum/2 {
			return i, n
		}
	}
	return 0, 0
}

// pickWAL returns the oldest run of neighbours in WAL objects.
func (o *MergeOptions) pickWAL(es []Extent, start int64) (from, to int) {
	for from < len(es) && (es[from].Kind != KindWAL || es[from].End <= start) {
		from++
	}
	sum := int64(0)
	for to = from; to < len(es) && to-from < o.MaxObjects && es[to].Kind == KindWAL; to++ {
		if sum += es[to].Len; to > from && sum > o.TargetBytes {
			break
		}
	}
	return from, to
}

// Merge rewrites one run of small neighbours, those in the head only, into one object, and swaps it in for them. It reports whether
// there was such a run. Bytes are streamed; batches stay as they are, and the new object covers exactly the offsets of its inputs.
func (a *Archive) Merge(ctx context.Context, id frame.PartitionID, old *Head, o Owner, opts MergeOptions) (*Head, bool, error) {
	opts.setDefaults()
	if old == nil {
		return nil, false, fmt.Errorf("partition %v: %w", id, ErrNoHead)
	}
	if err := old.heldBy(o); err != nil {
		return old, false, err
	}
	from, to := opts.pick(old.Extents, old.Start)
	if from == to {
		return old, false, nil
	}
	inputs := slices.Clone(old.Extents[from:to])
	out, err := a.mergeObjects(ctx, old, inputs, opts.Now)
	if err != nil {
		if out.Key != "" {
			a.Discard(id, out.Key, 0)
		}
		return old, false, err
	}
	version := old.Version + 1
	h, err := a.change(ctx, id, old, o, func(h *Head) (func(*Head) error, error) {
		version = h.Version + 1
		return func(n *Head) error { return n.replace(inputs, out, opts.Now) }, nil
	})
	if err != nil {
		// Not part of the archive, unless the swap is in doubt, which the version tells later.
		a.Discard(id, out.Key, version)
		if errors.Is(err, errInputsGone) {
			return h, false, nil
		}
		return h, false, fmt.Errorf("merge [%d, %d): %w", out.Start, out.End, err)
	}
	return h, true, nil
}

var errInputsGone = errors.New("inputs of a merge are not in the head any more")

// replace puts out in the place of inputs, if they are all still there.
func (h *Head) replace(inputs []Extent, out Extent, now int64) error {
	same := func(e, x *Extent) bool { return e.Key == x.Key && e.Off == x.Off && e.Start == x.Start }
	i := slices.IndexFunc(h.Extents, func(e Extent) bool { return same(&e, &inputs[0]) })
	if i < 0 || len(h.Extents) < i+len(inputs) {
		return errInputsGone
	}
	for k, e := range h.Extents[i : i+len(inputs)] {
		if !same(&e, &inputs[k]) {
			return errInputsGone
		}
		out.RunningMax = e.RunningMax
		if e.Kind == KindData {
			h.Dropped = append(h.Dropped, Dropped{Key: e.Key, Time: now, Size: e.Size})
		}
	}
	h.Extents = slices.Replace(h.Extents, i, i+len(inputs), out)
	h.Objects -= int64(len(inputs)) - 1
	return nil
}

// mergeObjects uploads one object with the batches of all inputs.
func (a *Archive) mergeObjects(ctx context.Context, h *Head, inputs []Extent, now int64) (Extent, error) {
	op := bucket.Op{Class: bucket.ClassSweep, Topic: h.Topic, Kind: bucket.KindData}
	src := &mergeSource{ctx: ctx, a: a, op: op, inputs: inputs}
	spec := ObjectSpec{
		ID: h.ID, Topic: h.Topic, Epoch: h.Epoch, Start: inputs[0].Start, End: inputs[len(inputs)-1].End,
		LogStart: h.Start, Now: now, Epochs: h.Epochs, AllowBefore: true,
	}
	for i := range inputs {
		if err := src.open(&inputs[i], &spec); err != nil {
			return Extent{}, fmt.Errorf("merge: %w", err)
		}
	}
	var err error
	if spec.Producers, err = src.producers(h); err != nil {
		return Extent{}, fmt.Errorf("merge: %w", err)
	}
	e, err := a.upload(ctx, a.opts.Sweep, op, spec, src, func(i *Identity) {
		t := &src.times
		i.MinAppendTime, i.MaxAppendTime, i.RetentionTime = t.MinAppendTime, t.MaxAppendTime, t.RetentionTime
	})
	if err != nil {
		return e, err
	}
	var bytes, records int64
	for i := range inputs {
		bytes, records = bytes+inputs[i].Bytes, records+inputs[i].Records
	}
	if e.Bytes != bytes || e.Records != records || e.Start != inputs[0].Start || e.End != inputs[len(inputs)-1].End {
		return e, fmt.Errorf("merge of [%d, %d): inputs have %d records in %d bytes, the result %d in %d: %w",
			e.Start, e.End, records, bytes, e.Records, e.Bytes, ErrCorrupt)
	}
	return e, nil
}
