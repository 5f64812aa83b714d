package partition

import (
	"time"

	"github.com/tierbroker/tierbroker/tier"
)

// maxUnlisted is how many data objects one head swap commits at most, and how many a crash can make orphans of.
const maxUnlisted = 12

// unlisted are the data objects of a partition that are in the bucket and in no head yet. A partition that fills objects
// one after the other swaps its head for several at once (SetOptions.SwapDelay), since each swap is a request and a new copy of
// the head. Nothing else changes while they wait: their records count as pending, are read from the local log and
// keep it, and whoever wants them in the head (roll on request, reclaim, a move, DeleteRecords) gets that with the next round.
//
// A crash, a lost ownership or a rollback makes them orphans, as an upload that was under way would be; the sweep
// finds those. Guarded by Partition.mu; only the holder of swap changes exts.
type unlisted struct {
	exts  []tier.Extent
	bytes int64 // of exts
	epoch int32
	since int64 // the first of exts was complete, ms
	last  int64 // the newest object was complete, whether in exts or listed, ms; 0: there was none
	every int64 // from the one before it to the newest, ms; 0: there was none before
	lost  bool  // the log has lost some of their records
}

// add notes a new object, or a void.
func (u *unlisted) add(e tier.Extent, bytes int64, epoch int32, now int64) {
	if len(u.exts) == 0 {
		u.since, u.epoch = now, epoch
	}
	if u.last != 0 {
		u.every = max(1, now-u.last)
	}
	u.exts, u.bytes, u.last = append(u.exts, e), u.bytes+bytes, now
}

// take empties it.
func (u *unlisted) take() []tier.Extent {
	exts := u.exts
	u.exts, u.bytes, u.lost = nil, 0, false
	return exts
}

// due says whether they are to be listed: because there are many, because they have waited for long enough, or because the next
// object is nowhere near. So a partition that takes longer to fill an object than a swap may be put off lists each at
// once, and one that falls silent does so a moment later. A clock that was set back makes it due.
func (u *unlisted) due(now int64, delay time.Duration) bool {
	most := delay.Milliseconds()
	next := 2 * u.every
	if u.every == 0 {
		next = most / 16 // nobody knows yet
	}
	return len(u.exts) > 0 && (len(u.exts) >= maxUnlisted || next >= most || now-u.since >= most || now-u.last >= next || now < u.last)
}

// listDue says whether a swap for what is uploaded is due, or there is one to be made anyway. The caller holds p.mu.
func (p *Partition) listDue() bool {
	return p.unlisted.due(p.set.o.Now(), p.set.o.SwapDelay) || len(p.unlisted.exts) > 0 && p.wantCeiling > p.ceiling
}

// fullObject says whether there is enough for another object. The first one of a run may be smaller: partitions of one topic fill at
// the same pace, and would all roll at the same moment, again and again, with nothing to do in between. The caller holds p.mu.
func (p *Partition) fullObject() bool {
	size := p.rollBytes()
	if p.unlisted.last == 0 {
		size -= size / (2 * rollStagger) * int64(p.id.Partition%rollStagger)
	}
	return p.pending-p.unlisted.bytes >= size
}

// rollStagger is how many neighbouring partitions begin to roll at different fill levels, from full down to half.
const rollStagger = 8

// matchUnlisted gives up what was uploaded and doesn't follow the head's end in this epoch, and returns where the next
// object begins. The caller holds swap.
func (p *Partition) matchUnlisted(h *tier.Head) int64 {
	p.mu.Lock()
	u := &p.unlisted
	from := h.End
	var orphans []tier.Extent
	if len(u.exts) > 0 {
		if u.lost || u.epoch != p.epoch || u.exts[0].Start != h.End {
			orphans = u.take()
		} else {
			from = u.exts[len(u.exts)-1].End
		}
	}
	p.mu.Unlock()
	p.discard(orphans, 0)
	return from
}

// note adds an uploaded extent to those that wait for a swap. The caller holds swap.
func (p *Partition) note(e tier.Extent, bytes int64) {
	p.mu.Lock()
	p.unlisted.add(e, bytes, p.epoch, p.set.o.Now())
	p.mu.Unlock()
}
