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
		err := s.log.Reopen()
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
		s.markJumps()
		if wm = s.log.Watermarks(); wm.Generation == s.generation {
			break
		}
	}
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
	s.forgetLost(wm.FailedAt)
	for p, at := range lost {
		if p.rollback(at, kept) {
			s.jumping = append(s.jumping, p)
		}
	}
	s.progress.failed(failure{before: wm.Generation, at: wm.FailedAt, err: cause})
}

// forgetLost makes the newest append that is left the one that settleAll waits for.
func (s *Set) forgetLost(failedAt uint64) {
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	if s.lastEnd <= failedAt {
		return
	}
	s.lastEnd, s.lastGen = 0, 0
	if n := len(s.inflight); n > 0 {
		s.lastEnd, s.lastGen = s.inflight[n-1].end, s.inflight[n-1].gen
	}
}

// rollback returns the partition to the given next offset. If consumers may have seen more (async), the offsets are
// given up: the partition stops until its next offset is the ceiling, and true is returned.
func (p *Partition) rollback(next int64, kept []queued) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = min(p.next, next)
	p.stored = min(p.stored, p.next)
	p.trimEpochs(p.next)
	p.announce = true // the frame that announced this place may be lost, too
	p.void = p.void || p.next == p.local
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
		p.jump = true
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

// markJumps writes into the log which partitions must jump before they go on. A process that dies before they have
// done so would otherwise find a log that ends where they went back to, and go on there.
func (s *Set) markJumps() {
	var last uint64
	var gen uint64
	for _, p := range s.jumping {
		p.mu.Lock()
		end, jump := p.next, p.jump
		p.mu.Unlock()
		if !jump {
			continue
		}
		var err error
		last, gen, err = s.log.Enqueue(&segment.Entry{Payload: frame.AppendTruncate(nil, end),
			Header: frame.Header{Type: frame.Truncate, Flags: flagSeen, ID: p.id, AppendTime: s.o.Now()}})
		if err != nil {
			return // the log has failed again, which brings us back here
		}
	}
	if last > 0 && s.log.Written(last, gen) != nil {
		return
	}
	s.jumping = nil
}
