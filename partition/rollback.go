package partition

import (
	"errors"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/segment"
)

var errWriteFailed = errors.New("a write or fdatasync failed")

// repair follows a failed write or fdatasync: what was lost is taken back, then the log goes on in a new segment. It
// returns newer watermarks.
//
// Reopening may itself lose more, and so may an fdatasync that was under way when the first failure came: then what
// these lost is taken back, too, before anybody may append. That is what the gate is for: the log by itself would take
// appends as soon as it is open, at offsets that a partition has yet to go back from.
func (s *Set) repair(wm segment.Watermarks) segment.Watermarks {
	s.setGate(true)
	s.reopenDue = nil
	for {
		if wm.Generation != s.generation {
			s.rollback(wm)
			s.generation = wm.Generation
		}
		s.noteRisk()
		err := s.saveJumps()
		if err == nil {
			err = s.log.Reopen()
		}
		if wm = s.log.Watermarks(); wm.Generation != s.generation {
			continue
		}
		if err != nil {
			if !s.reopening {
				s.reopening = true
				s.event(Error, nil, "the commit log can't open a new segment; writes are refused until it can", err)
			}
			s.reopenDue = time.After(s.o.RetryPause / 4)
			return wm
		}
		break
	}
	s.endRisk()
	s.setGate(false)
	if s.reopening {
		s.reopening = false
		s.event(Info, nil, "the commit log takes writes again", nil)
	}
	return wm
}

func (s *Set) setGate(closed bool) {
	s.appendMu.Lock()
	s.gate = closed
	s.appendMu.Unlock()
}

// repairing says whether a failure is being dealt with.
func (s *Set) repairing() bool {
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	return s.gate
}

// rollback takes back what a failure lost: nothing at or above FailedAt was stored. Partitions return to their last
// stored batch, producers to the state that the index has plus what is kept.
func (s *Set) rollback(wm segment.Watermarks) {
	cause := wm.Err
	if cause == nil {
		cause = errWriteFailed
	}
	s.event(Error, nil, fmt.Sprintf("a write to the commit log failed; everything from position %d on is refused or repeated by its producer", wm.FailedAt), cause)
	// What is below the failure is stored (or will be, by the sync that Reopen does) and goes its usual way.
	s.take()
	kept := s.inflight[:0]
	lost := map[*Partition]int64{} // lowest lost offset
	for i := range s.inflight {
		q := &s.inflight[i]
		if q.gen < wm.Generation && q.end > wm.FailedAt {
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
	s.endBefore = max(s.endBefore, s.forgetLost(wm.FailedAt))
	for p, at := range lost {
		if p.rollback(at, kept, s.endBefore) {
			s.jumping = true
		}
	}
	s.progress.failed(failure{before: wm.Generation, at: wm.FailedAt, err: cause})
}

// forgetLost makes the newest append that is left the one that settleAll waits for. It returns where the log ended
// before: whatever is found above was appended later.
func (s *Set) forgetLost(failedAt uint64) (end uint64) {
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	end = max(s.lastEnd, failedAt)
	if s.lastEnd <= failedAt {
		return end
	}
	s.lastEnd, s.lastGen = 0, 0
	if n := len(s.inflight); n > 0 {
		s.lastEnd, s.lastGen = s.inflight[n-1].end, s.inflight[n-1].gen
	}
	return end
}

// rollback returns the partition to the given next offset. If consumers may have seen more (async), the offsets are
// given up: the partition stops until its next offset is the ceiling, and true is returned.
func (p *Partition) rollback(next int64, kept []queued, end uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = min(p.next, next)
	p.stored, p.safeAt = min(p.stored, p.next), min(p.safeAt, p.next)
	p.trimEpochs(p.next)
	p.announce = true // the frame that announced this place may be lost, too
	p.void = p.void || p.next == p.local
	if n := len(p.unlisted.exts); n > 0 && p.unlisted.exts[n-1].End > p.next {
		p.unlisted.lost = true
	}
	n := len(p.tail)
	for n > 0 && p.tail[n-1].Last >= p.next {
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
	seen := p.durable > p.next
	if seen {
		p.durable = p.next
		p.jump, p.jumpFrom = true, end
		if p.state == Writing {
			p.state, p.resume = Recovering, true
		}
		p.set.kickRoll(p)
		p.set.notePending(p)
		p.set.markDirty(p)
	}
	p.wake()
	return seen
}

// saveJumps puts on disk which partitions must jump before they go on. Once the log is open again it ends where they
// went back to: a process that dies before they have jumped would go on there.
func (s *Set) saveJumps() error {
	if !s.jumping {
		return nil
	}
	err := s.commitBatch(nil)
	if err == nil {
		err = s.index.Flush()
	}
	if err != nil {
		return fmt.Errorf("save what was lost: %w", err)
	}
	s.jumping = false
	return nil
}

// noteRisk finds the partitions of which consumers have seen what isn't synced yet. Opening the log again syncs it, and
// may fail and succeed in one go: what is lost then must be known before.
func (s *Set) noteRisk() {
	for i := range s.inflight[:s.exposedN] {
		q := &s.inflight[i]
		if !q.onWrite || s.risk[q.p] {
			continue
		}
		if s.risk == nil {
			s.risk = map[*Partition]bool{}
		}
		s.risk[q.p], s.jumping = true, true
		q.p.mu.Lock()
		q.p.atRisk, q.p.jumpFrom = true, max(q.p.jumpFrom, s.endBefore)
		q.p.mu.Unlock()
		s.markDirty(q.p)
	}
}

// endRisk follows when the log is open again.
func (s *Set) endRisk() {
	for p := range s.risk {
		p.mu.Lock()
		p.atRisk = false
		p.mu.Unlock()
		s.markDirty(p)
	}
	s.risk = nil
}
