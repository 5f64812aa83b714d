package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Problem is something that Verify or RebuildHead found.
type Problem struct {
	Key    string // object, page or head
	Offset int64  // where the trouble begins, -1 when it has no offset
	What   string
	Note   bool // worth knowing, but nothing is wrong: an object in flight, for instance
}

// String is one line.
func (p Problem) String() string {
	s := p.What
	if p.Offset >= 0 {
		s = fmt.Sprintf("offset %d: %s", p.Offset, s)
	}
	if p.Key != "" {
		s = p.Key + ": " + s
	}
	return s
}

// rebuilt is a data object as a part of a head that is rebuilt.
type rebuilt struct {
	ext     Extent
	epochs  []EpochRange
	history []EpochStart
	created int64
	start   int64 // of the partition, as the object knows it
	topic   string
}

// RebuildHead makes a head from nothing but the partition's data objects. It has no owner (broker -1) and the largest epoch that was
// found, so that the next claim must be above it. Its ceiling lies above everything that may have been assigned as far as the
// objects tell; whoever installs it (Swap of nil) should SkipToCeiling. What the objects leave open is told: holes become void
// extents.
//
// Parts of WAL objects, whose format this package doesn't know, are not looked at: what the lost head named there and no merge had copied
// yet, and what pending streams held behind its end. So a hole may be one that a WAL object fills, and the end may be too low. Before the
// rebuilt head is installed nothing of that is lost: a sweep keeps WAL objects of a partition without a head as long as its topic exists.
// Install the head only when no stream below wal/ has entries of the partition that the head lacks.
func (a *Archive) RebuildHead(ctx context.Context, id frame.PartitionID) (*Head, []Problem, error) {
	var problems []Problem
	objects, last, err := a.rebuildable(ctx, id, func(p Problem) { problems = append(problems, p) })
	if err != nil {
		return nil, problems, fmt.Errorf("rebuild head of %v: %w", id, err)
	}
	if len(objects) == 0 {
		return nil, problems, fmt.Errorf("rebuild head of %v: it has no readable objects: %w", id, ErrNoHead)
	}
	h := &Head{Format: headFormat, ID: id, MaxTimestamp: -1, Owner: -1, Cluster: a.opts.ClusterID, ClusterIncarnation: a.opts.ClusterIncarnation, Ceiling: maxOffset}
	slices.SortFunc(objects, func(x, y rebuilt) int {
		return cmp.Or(cmp.Compare(x.ext.Epoch, y.ext.Epoch), cmp.Compare(x.created, y.created))
	})
	for i := range objects {
		o := &objects[i]
		h.Epoch, h.Topic, h.Start = max(h.Epoch, o.ext.Epoch), o.topic, max(h.Start, o.start)
		h.Version = max(h.Version, o.created)
		for _, e := range o.history {
			h.AddEpoch(e)
		}
	}
	h.cover(objects, func(p Problem) { problems = append(problems, p) })
	if last != nil {
		if h.Producers, err = last.Producers(ctx); err != nil {
			problems = append(problems, Problem{Key: last.Key, Offset: -1, What: err.Error()})
		}
	}
	s := a.newSpiller(id, h.Topic, h.Epoch)
	if err := s.spill(ctx, h); err != nil {
		return nil, problems, err
	}
	h.Ceiling = 0
	h.raiseCeiling()
	h.trimEpochs()
	return h, problems, h.check()
}

// rebuildable opens all data objects. last is the one that ends last.
func (a *Archive) rebuildable(ctx context.Context, id frame.PartitionID, tell func(Problem)) (objects []rebuilt, last *Object, err error) {
	op := bucket.Op{Class: bucket.ClassTool, Kind: bucket.KindData}
	err = listAll(ctx, a.opts.Sweep, op, DataPrefix(id), func(i bucket.Info) error {
		if _, ok := ParseDataKey(i.Key); !ok {
			tell(Problem{Key: i.Key, Offset: -1, What: "unknown object", Note: true})
			return nil
		}
		o, err := openObject(ctx, a.opts.Sweep, op, i.Key, i.Size, max(0, i.Size-openGuess))
		if err != nil {
			if ctx.Err() != nil || !isDamage(err) {
				return err
			}
			tell(Problem{Key: i.Key, Offset: -1, What: err.Error()})
			return nil
		}
		d := &o.Identity
		if d.ID() != id {
			tell(Problem{Key: i.Key, Offset: -1, What: "it belongs to " + d.ID().String()})
			return nil
		}
		objects = append(objects, rebuilt{
			ext: Extent{Start: d.Start, End: d.End, Kind: KindData, Key: i.Key, Size: i.Size, IndexOff: o.IndexOff, FooterOff: o.FooterOff,
				MaxTimestamp: d.MaxTimestamp, MaxAppendTime: d.MaxAppendTime, RetentionTime: d.RetentionTime, Bytes: d.Bytes, Records: d.Records, Epoch: d.Epoch},
			epochs: d.Epochs, history: d.History, created: d.Created, start: d.LogStart, topic: d.Topic,
		})
		if last == nil || d.End > last.Identity.End || d.End == last.Identity.End && d.Created > last.Identity.Created {
			last = o
		}
		return nil
	})
	return objects, last, err
}

// cover chooses objects that cover the offsets from Start on. Objects of a merge and its inputs lie side by side, and so do rolls
// that were repeated; what a fenced owner uploaded and could not commit is recognised by the epochs that began below its end.
func (h *Head) cover(objects []rebuilt, tell func(Problem)) {
	live := slices.DeleteFunc(slices.Clone(objects), func(o rebuilt) bool {
		if !h.stale(&o) {
			return o.ext.End <= h.Start
		}
		tell(Problem{Key: o.ext.Key, Offset: o.ext.Start, What: "left out: a later epoch began below its end", Note: true})
		return true
	})
	slices.SortFunc(live, func(x, y rebuilt) int {
		return cmp.Or(cmp.Compare(x.ext.Start, y.ext.Start), cmp.Compare(y.ext.End, x.ext.End), cmp.Compare(y.ext.Epoch, x.ext.Epoch))
	})
	if len(live) == 0 {
		h.End = h.Start
		return
	}
	if first := live[0].ext.Start; first > h.Start {
		tell(Problem{Offset: h.Start, What: fmt.Sprintf("no object begins before offset %d", first), Note: true})
		h.Start = first
	}
	h.End = live[0].ext.Start
	for i := 0; i < len(live); {
		best := -1
		for ; i < len(live) && live[i].ext.Start <= h.End; i++ {
			if live[i].ext.End > h.End && (best < 0 || better(&live[i].ext, &live[best].ext, h.End)) {
				best = i
			}
		}
		if best >= 0 {
			e := live[best].ext
			e.Start = h.End // an overlap holds the same batches
			h.take(e)
			i = best + 1
			continue
		}
		if i < len(live) {
			tell(Problem{Offset: h.End, What: fmt.Sprintf("no object holds the offsets up to %d", live[i].ext.Start)})
			h.take(VoidExtent(h.End, live[i].ext.Start, h.EpochOf(h.End)))
		}
	}
}

// better prefers an object that begins exactly at the offset, then the one that reaches further.
func better(x, y *Extent, at int64) bool {
	if (x.Start == at) != (y.Start == at) {
		return x.Start == at
	}
	return x.End > y.End
}

func (h *Head) take(e Extent) {
	e.Epoch = max(e.Epoch, 0)
	roll := e.End - e.Start
	if h.append(e) == nil { // the ceiling is out of the way, and it begins at End
		h.LastRoll = max(h.LastRoll, roll)
	}
}

// stale reports whether the object has batches of an epoch at or above the start of a later one.
func (h *Head) stale(o *rebuilt) bool {
	for _, r := range o.epochs {
		for _, e := range h.Epochs {
			if e.Epoch > r.Epoch && e.Start < r.End {
				return true
			}
		}
	}
	return false
}

// Install makes a rebuilt head the partition's head: it creates it, or replaces one that cannot be read. A head that can be read is
// left alone (ErrConflict).
func (a *Archive) Install(ctx context.Context, h *Head) (*Head, error) {
	old, err := a.Load(ctx, h.ID)
	var broken *Head
	switch {
	case err == nil:
		return old, fmt.Errorf("head of %v can be read: %w", h.ID, ErrConflict)
	case errors.Is(err, ErrCorrupt):
		info, err := a.opts.Heads.Stat(ctx, headOp(h.Topic), HeadKey(h.ID))
		if err != nil {
			return nil, fmt.Errorf("install head of %v: %w", h.ID, err)
		}
		broken = h.Clone()
		broken.etag, broken.ClusterIncarnation = info.ETag, a.opts.ClusterIncarnation
	case errors.Is(err, ErrNoHead), errors.Is(err, ErrHeadRegressed):
	default:
		return nil, err
	}
	// Nobody knows the lost head's version, and versions must not fall. They count swaps, so no clock in milliseconds is below.
	version := max(h.Version, a.lastSeen(h.ID).version)
	return a.Swap(ctx, h.ID, broken, func(n *Head) error {
		*n = *h.Clone()
		n.Version = version + 1
		return nil
	})
}
