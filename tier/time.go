package tier

import (
	"context"
	"fmt"
	"sort"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// found is a record, as ListOffsets wants it.
type found struct {
	offset, timestamp int64
	epoch             int32
	ok                bool
}

// FindTime returns the first record, in offset order, that has a timestamp of at least ts (milliseconds), an offset of at least
// from, and lies in [h.Start, h.End). ok is false when there is none. It is exact to the record: the batch is decompressed.
func (a *Archive) FindTime(ctx context.Context, h *Head, ts, from int64) (offset, timestamp int64, epoch int32, ok bool, err error) {
	from = max(from, h.Start)
	var f found
	err = a.walk(ctx, h, from, ts, func(e *Extent) (bool, error) {
		if e.Kind == KindVoid {
			return true, nil
		}
		var err error
		f, err = a.findInExtent(ctx, h, e, ts, max(from, e.Start))
		return !f.ok, err
	})
	if err != nil {
		return 0, 0, 0, false, fmt.Errorf("find timestamp %d in %v: %w", ts, h.ID, err)
	}
	return f.offset, f.timestamp, f.epoch, f.ok, nil
}

func (a *Archive) findInExtent(ctx context.Context, h *Head, e *Extent, ts, from int64) (f found, err error) {
	want := func(maxTimestamp, _ int64) bool { return maxTimestamp >= ts }
	err = a.walkBatches(ctx, h, e, from, want, func(b []byte, bh *batch.Header) (bool, error) {
		offset, timestamp, ok, err := batch.FirstAtOrAfter(b, ts, from)
		if err != nil {
			return true, nil // see MaxTimestamp
		}
		f = found{offset: offset, timestamp: timestamp, epoch: bh.LeaderEpoch, ok: ok && offset < e.End}
		return !f.ok, nil
	})
	return f, err
}

// MaxTimestamp returns the first record that has the largest timestamp of [h.Start, h.End).
//
// A batch that its producer compressed into rubbish has no records that anybody can read. Its bytes are as they were sent, so it is
// no damage of the archive, and lookups pass over it: they would fail for ever otherwise.
func (a *Archive) MaxTimestamp(ctx context.Context, h *Head) (offset, timestamp int64, epoch int32, ok bool, err error) {
	// The extent that claims the largest timestamp has it almost always. Looking there first leaves nothing else to read. Which
	// one that is must be found among the live ones: the head's own maximum counts what is gone.
	top := int64(noTime)
	var best Extent
	err = a.walkAbove(ctx, h, &top, func(e *Extent) { best = *e })
	var f found
	if err == nil && best.End > 0 {
		err = a.maxInExtent(ctx, h, &best, &f)
	}
	if err == nil && best.End > 0 {
		// Extents before it with the same claim, and, when it didn't keep its claim, all that claim more than was found.
		least := int64(noTime)
		if f.ok {
			least = f.timestamp
		}
		err = a.walk(ctx, h, h.Start, least, func(e *Extent) (bool, error) {
			if e.Kind == KindVoid || e.Start == best.Start || !f.mayBeat(e.MaxTimestamp, e.Start) {
				return true, nil
			}
			return true, a.maxInExtent(ctx, h, e, &f)
		})
	}
	if err != nil {
		return 0, 0, 0, false, fmt.Errorf("find largest timestamp in %v: %w", h.ID, err)
	}
	return f.offset, f.timestamp, f.epoch, f.ok, nil
}

// walkAbove calls fn for each live extent whose maximum is above *top, and raises *top to it. Pages without one are not read.
func (a *Archive) walkAbove(ctx context.Context, h *Head, top *int64, fn func(*Extent)) error {
	visit := func(e *Extent) (bool, error) {
		if e.MaxTimestamp > *top && e.Kind != KindVoid {
			*top = e.MaxTimestamp
			fn(e)
		}
		return true, nil
	}
	// Newest first: the largest timestamp is mostly among the newest extents, which spares the older pages.
	if _, err := walkExtents(h.Extents, h.Start, noTime, visit); err != nil {
		return err
	}
	return a.pagesAbove(ctx, h, h.Pages, top, visit)
}

func (a *Archive) pagesAbove(ctx context.Context, h *Head, refs []PageRef, top *int64, visit func(*Extent) (bool, error)) error {
	for i := len(refs) - 1; i >= 0 && refs[i].End > h.Start; i-- {
		if refs[i].MaxTimestamp <= *top {
			continue
		}
		p, err := a.page(ctx, h.ID, h.Topic, &refs[i])
		if err != nil {
			return err
		}
		if p.Level > 0 {
			err = a.pagesAbove(ctx, h, p.Pages, top, visit)
		} else {
			_, err = walkExtents(p.Extents, h.Start, noTime, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mayBeat reports whether something that begins at base and claims a maximum may hold a larger timestamp than f, or the same one
// earlier.
func (f *found) mayBeat(maxTimestamp, base int64) bool {
	return !f.ok || maxTimestamp > f.timestamp || maxTimestamp == f.timestamp && base < f.offset
}

// maxInExtent improves f with the records of e. It looks first into the block that claims the largest timestamp, and then into
// those only that may beat what it found there.
func (a *Archive) maxInExtent(ctx context.Context, h *Head, e *Extent, f *found) error {
	from := max(h.Start, e.Start)
	fn := func(b []byte, bh *batch.Header) (bool, error) {
		_ = batch.Iterate(b, func(r *batch.Record) bool { // rubbish is passed over, see MaxTimestamp
			if r.Offset >= from && r.Offset < e.End && f.mayBeat(r.Timestamp, r.Offset) {
				*f = found{offset: r.Offset, timestamp: r.Timestamp, epoch: bh.LeaderEpoch, ok: true}
			}
			return r.Timestamp < bh.MaxTimestamp || r.Offset < from
		})
		return true, nil
	}
	v, err := a.view(ctx, coldData(h), h, e)
	if err != nil {
		return err
	}
	var top *Block
	for i := range v.blocks {
		k := &v.blocks[i]
		if k.Last >= from && k.Base < e.End && f.mayBeat(k.MaxTimestamp, k.Base) && (top == nil || k.MaxTimestamp > top.MaxTimestamp) {
			top = k
		}
	}
	if top == nil {
		return nil
	}
	seen := top.Base
	if _, err := a.walkOneBlock(ctx, h, e, top, from, f.mayBeat, fn); err != nil {
		return err
	}
	return a.walkBatches(ctx, h, e, from, func(maxTimestamp, base int64) bool { return base != seen && f.mayBeat(maxTimestamp, base) }, fn)
}

func coldData(h *Head) bucket.Op {
	return bucket.Op{Class: bucket.ClassCold, Topic: h.Topic, Kind: bucket.KindData}
}

// walkBatches calls fn for each batch of an extent that ends at or after from and that want accepts, in order. want is asked for
// blocks and for batches, with what they claim as their largest timestamp and where they begin. fn returns false to stop.
func (a *Archive) walkBatches(ctx context.Context, h *Head, e *Extent, from int64, want func(maxTimestamp, base int64) bool, fn func([]byte, *batch.Header) (bool, error)) error {
	v, err := a.view(ctx, coldData(h), h, e)
	if err != nil {
		return err
	}
	i := sort.Search(len(v.blocks), func(i int) bool { return v.blocks[i].Last >= from })
	for ; i < len(v.blocks) && v.blocks[i].Base < e.End; i++ {
		k := &v.blocks[i]
		if !want(k.MaxTimestamp, k.Base) {
			continue
		}
		if more, err := a.walkOneBlock(ctx, h, e, k, from, want, fn); err != nil || !more {
			return err
		}
	}
	return nil
}

func (a *Archive) walkOneBlock(ctx context.Context, h *Head, e *Extent, k *Block, from int64, want func(maxTimestamp, base int64) bool, fn func([]byte, *batch.Header) (bool, error)) (bool, error) {
	d, err := a.readBlocks(ctx, coldData(h), e, []Block{*k}, k.Stored)
	if err != nil {
		return false, err
	}
	defer d.release()
	more, err := walkBlock(&d.s, k, from, e.End, want, fn)
	return more, withKey(err, e.Key)
}

func walkBlock(s *scatter, k *Block, from, end int64, want func(maxTimestamp, base int64) bool, fn func([]byte, *batch.Header) (bool, error)) (bool, error) {
	var scratch [batch.HeaderLen]byte
	c := cursor{s: s}
	for c.pos < s.size {
		h, err := c.header(&scratch)
		if err == nil && int64(h.Size()) > s.size-c.pos {
			err = errBlockEnd
		}
		if err != nil {
			return false, blockError(k, c.pos, err)
		}
		if h.BaseOffset >= end {
			return false, nil
		}
		if h.LastOffset() >= from && h.RecordCount > 0 && want(h.MaxTimestamp, h.BaseOffset) {
			if more, err := fn(s.join(c.pos, c.pos+int64(h.Size())), &h); err != nil || !more {
				return false, err
			}
		}
		c.seek(c.pos + int64(h.Size()))
	}
	return true, nil
}
