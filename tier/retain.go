package tier

import (
	"context"
	"fmt"
	"slices"

	"github.com/tierbroker/tierbroker/frame"
)

// Retention says what of a partition is kept. Only whole extents go, the oldest first.
type Retention struct {
	Ms         int64 // age in milliseconds; negative: without limit
	Bytes      int64 // of the whole partition; negative: without limit
	LocalBytes int64 // bytes of batches that are not in the archive yet: both tiers count
	Now        int64 // milliseconds
}

// expired reports whether everything of a page or extent is too old. What has no time at all (voids) goes with what is before it.
func (r *Retention) expired(retentionTime int64) bool {
	return r.Ms >= 0 && (retentionTime < 0 || retentionTime < r.Now-r.Ms)
}

// Retain drops the oldest extents that the retention doesn't keep, by one swap. It reports whether there was anything to drop.
func (a *Archive) Retain(ctx context.Context, id frame.PartitionID, old *Head, o Owner, r Retention) (*Head, bool, error) {
	changed := false
	h, err := a.change(ctx, id, old, o, func(h *Head) (func(*Head) error, error) {
		changed = false
		start, err := a.cut(ctx, h, r)
		if err != nil || start <= h.Start {
			return nil, err
		}
		changed = true
		return a.planStart(ctx, h, start, r.Now)
	})
	return h, changed && err == nil, err
}

// DeleteRecords moves the start to before, which may lie inside a batch, and drops the extents below. A start that is there
// already is no error. before may pass the head's End, as far as its ceiling: then the archive is empty and begins there.
func (a *Archive) DeleteRecords(ctx context.Context, id frame.PartitionID, old *Head, o Owner, before, now int64) (*Head, error) {
	return a.change(ctx, id, old, o, func(h *Head) (func(*Head) error, error) {
		if before <= h.Start {
			return nil, nil
		}
		if before > h.Ceiling {
			return nil, fmt.Errorf("delete records before %d, ceiling %d: %w", before, h.Ceiling, ErrCeiling)
		}
		return a.planStart(ctx, h, before, now)
	})
}

// cut finds the offset at which the retention cuts.
func (a *Archive) cut(ctx context.Context, h *Head, r Retention) (int64, error) {
	c := cutter{a: a, ctx: ctx, h: h, r: r, start: h.Start, total: h.Bytes + r.LocalBytes}
	more, err := c.pages(h.Pages)
	if err == nil && more {
		c.extents(h.Extents)
	}
	return c.start, err
}

type cutter struct {
	a     *Archive
	ctx   context.Context
	h     *Head
	r     Retention
	start int64
	total int64 // bytes that are left
}

// drop decides about something that ends at end; false: it stays, and so does all that follows.
func (c *cutter) drop(end, retentionTime, bytes int64) bool {
	tooMuch := c.r.Bytes >= 0 && c.total-bytes >= c.r.Bytes && (bytes > 0 || c.total > c.r.Bytes)
	if !c.r.expired(retentionTime) && !tooMuch {
		return false
	}
	c.start, c.total = end, c.total-bytes
	return true
}

func (c *cutter) extents(es []Extent) bool {
	for i := searchExtents(es, c.h.Start); i < len(es); i++ {
		if !c.drop(es[i].End, es[i].RetentionTime, es[i].Bytes) {
			return false
		}
	}
	return true
}

// pages decides about whole pages where it can: one of which a part is gone already has to be read, to know its bytes.
func (c *cutter) pages(refs []PageRef) (bool, error) {
	for i := searchPages(refs, c.h.Start); i < len(refs); i++ {
		r := &refs[i]
		if r.Start >= c.h.Start && c.drop(r.End, r.RetentionTime, r.Bytes) {
			continue
		}
		p, err := c.a.page(c.ctx, c.h.ID, c.h.Topic, r)
		if err != nil {
			return false, err
		}
		more := true
		if p.Level > 0 {
			more, err = c.pages(p.Pages)
		} else {
			more = c.extents(p.Extents)
		}
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// planStart works out what moving the start drops, which may need pages, and returns the edit.
func (a *Archive) planStart(ctx context.Context, h *Head, start, now int64) (func(*Head) error, error) {
	d := dropper{a: a, ctx: ctx, h: h, start: start, now: now}
	pages := 0
	for i := range h.Pages {
		if err := d.page(&h.Pages[i]); err != nil {
			return nil, err
		}
		if h.Pages[i].End <= start {
			pages = i + 1
		}
	}
	d.extents(h.Extents)
	inline := searchExtents(h.Extents, start)
	return func(n *Head) error {
		n.Start = start
		n.End = max(n.End, start)
		n.Pages = slices.Clone(n.Pages[pages:])
		n.Extents = slices.Clone(n.Extents[inline:])
		n.Dropped = append(n.Dropped, d.dropped...)
		n.Bytes, n.Records, n.Objects = n.Bytes-d.bytes, n.Records-d.records, n.Objects-d.objects
		if len(n.Pages) == 0 && len(n.Extents) == 0 {
			n.Bytes, n.Records, n.Objects = 0, 0, 0
		}
		return nil
	}, nil
}

// dropper collects what lies wholly below a new start and not below the old one.
type dropper struct {
	a     *Archive
	ctx   context.Context
	h     *Head
	start int64
	now   int64

	dropped                 []Dropped
	bytes, records, objects int64
}

func (d *dropper) extents(es []Extent) {
	for i := searchExtents(es, d.h.Start); i < len(es) && es[i].End <= d.start; i++ {
		d.count(&es[i])
		if es[i].Kind == KindData {
			d.dropped = append(d.dropped, Dropped{Key: es[i].Key, Time: d.now, Size: es[i].Size})
		}
	}
}

func (d *dropper) count(e *Extent) {
	d.bytes, d.records, d.objects = d.bytes+e.Bytes, d.records+e.Records, d.objects+1
}

// page drops a page with all below it as one entry when the whole of it goes, and looks inside otherwise.
func (d *dropper) page(r *PageRef) error {
	if r.End <= d.h.Start || r.Start >= d.start {
		return nil
	}
	whole := r.End <= d.start
	if whole {
		d.dropped = append(d.dropped, Dropped{Key: r.Key, Page: true, Level: r.Level, Time: d.now, Size: r.Size})
		if r.Start >= d.h.Start {
			d.bytes, d.records, d.objects = d.bytes+r.Bytes, d.records+r.Records, d.objects+r.Count
			return nil
		}
	}
	p, err := d.a.page(d.ctx, d.h.ID, d.h.Topic, r)
	if err != nil {
		return err
	}
	kept := len(d.dropped)
	for i := range p.Pages {
		if err := d.page(&p.Pages[i]); err != nil {
			return err
		}
	}
	d.extents(p.Extents)
	if whole {
		d.dropped = d.dropped[:kept] // the page stands for them; only their bytes had to be known
	}
	return nil
}
