package partition

import (
	"fmt"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/segment"
)

// rollback follows a failed write or fdatasync: nothing at or above FailedAt was stored. Partitions return to their
// last stored batch, producers to the state that the index has plus what is kept, and the log goes on in a new
// segment. Appends fail from the poisoning until then, so none is in between.
func (s *Set) rollback(wm segment.Watermarks) {
	s.event(Error, nil, fmt.Sprintf("a write to the commit log failed; everything from position %d on is refused or repeated by its producer", wm.FailedAt), wm.Err)
	// What is below the failure is stored (or will be, by the sync that Reopen does) and goes its usual way.
	s.take()
	kept := s.inflight[:0]
	lost := map[*Partition]int64{} // lowest lost offset
	for i := range s.inflight {
		q := &s.inflight[i]
		if q.gen != wm.Generation && q.end > wm.FailedAt {
			if at, ok := lost[q.p]; !ok || q.entry.Base < at {
				lost[q.p] = q.entry.Base
			}
			continue
		}
		kept = append(kept, *q)
	}
	s.backlog.Add(-int64(len(s.inflight) - len(kept)))
	clear(s.inflight[len(kept):])
	s.inflight = kept
	s.exposedN = min(s.exposedN, len(kept))
	s.exposedTo = min(s.exposedTo, wm.FailedAt)
	for p, at := range lost {
		p.rollback(at, kept)
	}
	s.progress.failed(failure{gen: wm.Generation - 1, at: wm.FailedAt, err: wm.Err}, wm.Generation)
	if err := s.log.Reopen(); err != nil {
		s.event(Error, nil, "the commit log can't open a new segment; writes are refused until it can", err)
		s.reopen.Store(true)
	}
}

// tryReopen is called by the reclaim loop while the log waits for space or a healthy disk.
func (s *Set) tryReopen() {
	if !s.reopen.Load() {
		return
	}
	if err := s.log.Reopen(); err == nil {
		s.reopen.Store(false)
		s.event(Info, nil, "the commit log takes writes again", nil)
	}
}

// rollback returns the partition to the given next offset. If consumers may have seen more (async), the offsets are
// given up: the partition stops until its next offset is the ceiling.
func (p *Partition) rollback(next int64, kept []queued) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = next
	p.trimEpochs(next)
	n := len(p.tail)
	for n > 0 && p.tail[n-1].Last >= next {
		n--
	}
	clear(p.tail[n:])
	p.tail = p.tail[:n]
	p.settled = min(p.settled, n)
	if p.producersLoaded {
		p.live = p.committed.clone()
		for i := range kept {
			if q := &kept[i]; q.p == p && q.hasProducer && q.kind == frame.Data {
				p.live.apply(q.producer)
			}
		}
	}
	if p.durable > next {
		p.durable = next
		p.jump = true
		if p.state == Writing {
			p.state = Recovering
		}
		p.set.kickRoll(p)
		p.set.notePending(p)
	}
	p.wake()
}
