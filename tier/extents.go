package tier

import (
	"context"
	"fmt"
	"iter"
	"math"
	"sort"
)

// noTime is a timestamp below all others.
const noTime = math.MinInt64

// extentAt returns the extent that holds offset, which lies in [h.Start, h.End).
func (a *Archive) extentAt(ctx context.Context, h *Head, offset int64) (Extent, error) {
	if len(h.Extents) > 0 && offset >= h.Extents[0].Start {
		if i := searchExtents(h.Extents, offset); i < len(h.Extents) {
			return h.Extents[i], nil
		}
	}
	refs := h.Pages
	for {
		i := searchPages(refs, offset)
		if i == len(refs) {
			return Extent{}, fmt.Errorf("no extent of %v holds offset %d: %w", h.ID, offset, ErrCorrupt)
		}
		p, err := a.page(ctx, h.ID, h.Topic, &refs[i])
		if err != nil {
			return Extent{}, err
		}
		if p.Level > 0 {
			refs = p.Pages
			continue
		}
		if i := searchExtents(p.Extents, offset); i < len(p.Extents) {
			return p.Extents[i], nil
		}
		return Extent{}, fmt.Errorf("no extent of %v holds offset %d: %w", h.ID, offset, ErrCorrupt)
	}
}

// walk calls fn for each extent in order that ends above from and has a timestamp of at least minTime. Pages that have neither
// are not read. fn returns false to stop.
func (a *Archive) walk(ctx context.Context, h *Head, from, minTime int64, fn func(*Extent) (bool, error)) error {
	more, err := a.walkPages(ctx, h, h.Pages, from, minTime, fn)
	if err != nil || !more {
		return err
	}
	_, err = walkExtents(h.Extents, from, minTime, fn)
	return err
}

func (a *Archive) walkPages(ctx context.Context, h *Head, refs []PageRef, from, minTime int64, fn func(*Extent) (bool, error)) (bool, error) {
	// The running maximum says where the first page with such a timestamp can be at the earliest: it counts what is gone too.
	i := searchPages(refs, from)
	i += sort.Search(len(refs)-i, func(k int) bool { return refs[i+k].RunningMax >= minTime })
	for ; i < len(refs); i++ {
		if refs[i].MaxTimestamp < minTime {
			continue
		}
		p, err := a.page(ctx, h.ID, h.Topic, &refs[i])
		if err != nil {
			return false, err
		}
		var more bool
		if p.Level > 0 {
			more, err = a.walkPages(ctx, h, p.Pages, from, minTime, fn)
		} else {
			more, err = walkExtents(p.Extents, from, minTime, fn)
		}
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

func walkExtents(es []Extent, from, minTime int64, fn func(*Extent) (bool, error)) (bool, error) {
	i := searchExtents(es, from)
	i += sort.Search(len(es)-i, func(k int) bool { return es[i+k].RunningMax >= minTime })
	for ; i < len(es); i++ {
		if es[i].MaxTimestamp < minTime {
			continue
		}
		if more, err := fn(&es[i]); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// Extents iterates over all live extents, oldest first, those in pages included. The first one may begin below h.Start. An error
// ends it.
func (a *Archive) Extents(ctx context.Context, h *Head) iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) {
		err := a.walk(ctx, h, h.Start, noTime, func(e *Extent) (bool, error) { return yield(*e, nil), nil })
		if err != nil {
			yield(Extent{}, err)
		}
	}
}
