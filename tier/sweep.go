package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// discard is an object that this run wrote and that did not become part of the archive.
type discard struct {
	key     string
	version int64 // of the head that would name it, 0 when none ever could
}

// maxDiscards bounds what is remembered per partition. What is forgotten is swept in the next epoch.
const maxDiscards = 1024

// Discard hands an object over that was uploaded and not committed. version is that of the head that would have named it (the old
// head's version plus one), 0 when no swap was tried. The object is swept once the head has passed every version that this Archive
// has tried to write, and doesn't name it: then no attempt under way can bring it back.
func (a *Archive) Discard(id frame.PartitionID, key string, version int64) {
	if key == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.discards[id]) < maxDiscards {
		a.discards[id] = append(a.discards[id], discard{key: key, version: max(version, a.seen[id].tried)})
	}
}

// Report says what a sweep has done.
type Report struct {
	Deleted  int      // objects and pages
	Bytes    int64    // of those whose size is known
	Waiting  int      // dropped, but not for long enough
	Aborted  int      // unfinished multipart uploads
	InFlight []string // of the current epoch, and nothing names them: being uploaded, or left by a roll that failed
	Unknown  []string // keys below the partition's prefixes that this version doesn't understand: never deleted
	More     bool     // there was more than one sweep does
}

// Limits of one sweep; the next one goes on.
const (
	maxSweepObjects = 10_000
	maxReported     = 1000
)

// SweepDropped deletes what was dropped at least delay ago, and takes it out of the head. It costs nothing when there is nothing.
// The delay must be longer than the longest reader.
func (a *Archive) SweepDropped(ctx context.Context, id frame.PartitionID, h *Head, now int64, delay time.Duration) (*Head, Report, error) {
	var r Report
	due := dueDropped(h, now, delay, &r)
	if len(due) == 0 {
		return h, r, nil
	}
	if err := a.deleteDropped(ctx, h, due, &r); err != nil {
		return h, r, err
	}
	gone := make(map[string]bool, len(due))
	for _, d := range due {
		gone[d.Key] = true
	}
	n, err := a.change(ctx, id, h, h.OwnerOf(), func(*Head) (func(*Head) error, error) {
		return func(n *Head) error {
			n.Dropped = slices.DeleteFunc(slices.Clone(n.Dropped), func(d Dropped) bool { return gone[d.Key] })
			return nil
		}, nil
	})
	return n, r, err
}

// dueDropped returns the entries that have waited long enough. A time that lies ahead, because a clock was wrong, waits too.
func dueDropped(h *Head, now int64, delay time.Duration, r *Report) []Dropped {
	var due []Dropped
	for _, d := range h.Dropped {
		switch {
		case d.Time+delay.Milliseconds() > now:
			r.Waiting++
		case len(due) >= maxSweepObjects:
			r.More = true
		default:
			due = append(due, d)
		}
	}
	return due
}

// deleteDropped deletes the objects of due entries, and what lies below pages. An older head that policy keeps may still name them.
func (a *Archive) deleteDropped(ctx context.Context, h *Head, due []Dropped, r *Report) error {
	keep, err := a.historyRefs(ctx, h)
	if err != nil {
		return err
	}
	del := deleter{a: a, ctx: ctx, topic: h.Topic, keep: keep, r: r}
	for i := range due {
		d := &due[i]
		if !d.Page {
			if err := del.add(d.Key, d.Size); err != nil {
				return err
			}
			continue
		}
		if err := del.page(h, &PageRef{Key: d.Key, Level: d.Level, Size: d.Size}); err != nil {
			return err
		}
	}
	return del.flush()
}

// deleter deletes keys in portions.
type deleter struct {
	a     *Archive
	ctx   context.Context
	topic string
	keep  map[string]bool
	r     *Report

	keys   []string
	queued map[string]bool // an object may be dropped by itself and with its page
	bytes  int64
}

func (d *deleter) add(key string, size int64) error {
	if d.keep[key] || d.queued[key] || strings.HasPrefix(key, WALFolder) { // no head may drop what other partitions need
		return nil
	}
	if d.queued == nil {
		d.queued = map[string]bool{}
	}
	d.queued[key] = true
	d.keys = append(d.keys, key)
	d.bytes += size
	if len(d.keys) < bucket.MaxList {
		return nil
	}
	return d.flush()
}

func (d *deleter) flush() error {
	if len(d.keys) == 0 {
		return nil
	}
	kind := bucket.KindData
	if strings.HasPrefix(d.keys[0], pageFolder) {
		kind = bucket.KindPage
	}
	op := bucket.Op{Class: bucket.ClassSweep, Topic: d.topic, Kind: kind}
	if err := d.a.opts.Sweep.Delete(d.ctx, op, d.keys); err != nil {
		return fmt.Errorf("sweep %d objects: %w", len(d.keys), err)
	}
	for _, k := range d.keys {
		d.a.meta.drop(k)
	}
	d.r.Deleted += len(d.keys)
	d.r.Bytes += d.bytes
	d.keys, d.queued, d.bytes = nil, nil, 0
	return nil
}

// page deletes all below a page and then the page, in this order: a page that is gone has nothing left below it.
func (d *deleter) page(h *Head, r *PageRef) error {
	p, err := d.a.readPage(d.ctx, d.a.opts.Sweep, bucket.ClassSweep, h.ID, h.Topic, r.Key)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range p.Pages {
		if err := d.page(h, &p.Pages[i]); err != nil {
			return err
		}
	}
	for i := range p.Extents {
		if p.Extents[i].Kind == KindData {
			if err := d.add(p.Extents[i].Key, p.Extents[i].Size); err != nil {
				return err
			}
		}
	}
	if err := d.flush(); err != nil {
		return err
	}
	if err := d.add(r.Key, r.Size); err != nil {
		return err
	}
	return d.flush()
}

// historyRefs returns what older heads name. There are few of them, or none.
func (a *Archive) historyRefs(ctx context.Context, h *Head) (map[string]bool, error) {
	op := bucket.Op{Class: bucket.ClassSweep, Topic: h.Topic, Kind: bucket.KindHistory}
	keep := map[string]bool{}
	err := listAll(ctx, a.opts.Sweep, op, HistoryPrefix(h.ID), func(i bucket.Info) error {
		b, _, err := bucket.GetAll(ctx, a.opts.Sweep, op, i.Key, maxEnvelope)
		if err != nil {
			return err
		}
		old, err := DecodeHead(b)
		if err != nil {
			return withKey(err, i.Key)
		}
		return a.allRefs(ctx, old, func(key string) { keep[key] = true })
	})
	if err != nil {
		return nil, fmt.Errorf("read older heads of %v: %w", h.ID, err)
	}
	return keep, nil
}

// allRefs calls fn with each object and page that a head names or has dropped, also those below dropped pages.
func (a *Archive) allRefs(ctx context.Context, h *Head, fn func(key string)) error {
	for i := range h.Extents {
		fn(h.Extents[i].Key)
	}
	for i := range h.Dropped {
		d := &h.Dropped[i]
		fn(d.Key)
		if d.Page {
			if err := a.droppedRefs(ctx, h, d.Key, fn); err != nil {
				return err
			}
		}
	}
	return a.pageRefs(ctx, h, h.Pages, fn)
}

// droppedRefs is pageRefs for a page that may be swept, or half swept.
func (a *Archive) droppedRefs(ctx context.Context, h *Head, key string, fn func(key string)) error {
	p, err := a.readPage(ctx, a.opts.Sweep, bucket.ClassSweep, h.ID, h.Topic, key)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range p.Extents {
		fn(p.Extents[i].Key)
	}
	for i := range p.Pages {
		fn(p.Pages[i].Key)
		if err := a.droppedRefs(ctx, h, p.Pages[i].Key, fn); err != nil {
			return err
		}
	}
	return nil
}

// pageRefs leaves out pages below the start: they are swept as wholes.
func (a *Archive) pageRefs(ctx context.Context, h *Head, refs []PageRef, fn func(key string)) error {
	for i := range refs {
		fn(refs[i].Key)
		if refs[i].End <= h.Start {
			continue
		}
		p, err := a.page(ctx, h.ID, h.Topic, &refs[i])
		if err != nil {
			return err
		}
		for k := range p.Extents {
			fn(p.Extents[k].Key)
		}
		if err := a.pageRefs(ctx, h, p.Pages, fn); err != nil {
			return err
		}
	}
	return nil
}

// listAll calls fn for each object below a prefix.
func listAll(ctx context.Context, b bucket.Bucket, op bucket.Op, prefix string, fn func(bucket.Info) error) error {
	for after := ""; ; {
		p, err := b.List(ctx, op, prefix, after, bucket.MaxList)
		if err != nil {
			return err
		}
		for _, i := range p.Items {
			if err := fn(i); err != nil {
				return err
			}
		}
		if p.Next == "" {
			return nil
		}
		after = p.Next
	}
}
