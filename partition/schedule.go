package partition

import (
	"context"
	"errors"
	"sync"
	"time"
)

// rollQueue holds the partitions with pending data and hands those that are due to the roll workers, each at most
// once at a time.
type rollQueue struct {
	mu      sync.Mutex
	pending map[*Partition]struct{} // have durable bytes that the bucket lacks
	due     []*Partition
	ready   chan struct{}
	failing bool // the last attempt of anybody failed: one line per outage
}

func newRollQueue() *rollQueue {
	return &rollQueue{pending: map[*Partition]struct{}{}, ready: make(chan struct{}, 1)}
}

func (q *rollQueue) push(p *Partition) {
	q.mu.Lock()
	q.due = append(q.due, p)
	q.mu.Unlock()
	q.signal()
}

func (q *rollQueue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *rollQueue) pop() *Partition {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) == 0 {
		return nil
	}
	p := q.due[0]
	q.due = q.due[1:]
	if len(q.due) > 0 {
		q.signal()
	}
	return p
}

// notePending remembers that a partition has something to roll some day. The caller may hold p.mu.
func (s *Set) notePending(p *Partition) {
	s.rolls.mu.Lock()
	s.rolls.pending[p] = struct{}{}
	s.rolls.mu.Unlock()
}

// kickRoll puts the partition into the queue of the workers, unless it waits there or failed a moment ago. The
// caller holds p.mu.
func (s *Set) kickRoll(p *Partition) {
	if p.queuedRoll || time.Now().Before(p.retryAt) || p.state != Writing && p.state != Draining && !p.resume {
		return
	}
	p.queuedRoll = true
	s.rolls.push(p)
}

// rollLoop looks at the pending partitions now and then: those that waited long enough are due. An idle broker has
// none, so it looks at nothing.
func (s *Set) rollLoop() {
	t := time.NewTicker(s.o.RollInterval)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
			s.rollDue(s.o.Now())
			s.shorten()
			s.boundReplay()
		}
	}
}

func (s *Set) rollDue(now int64) {
	s.rolls.mu.Lock()
	ps := make([]*Partition, 0, len(s.rolls.pending))
	for p := range s.rolls.pending {
		ps = append(ps, p)
	}
	s.rolls.mu.Unlock()
	for _, p := range ps {
		p.mu.Lock()
		switch {
		case p.pending == 0 && !p.resume && p.wantCeiling <= p.ceiling && !p.unaligned() || !p.serving() && !p.resume:
			s.rolls.mu.Lock()
			delete(s.rolls.pending, p) // one that is served again later is noted again
			s.rolls.mu.Unlock()
		case p.due(now, s.o.RollMinBytes, s.o.RollMaxAge):
			s.kickRoll(p)
		}
		p.mu.Unlock()
	}
}

// due says whether there is anything to do for the roll workers: see dueAll; a full object; a ceiling to be raised. The
// caller holds p.mu.
func (p *Partition) due(now, minBytes int64, maxAge time.Duration) bool {
	return p.fullObject() || p.listDue() || p.resume || p.unaligned() || p.wantCeiling > p.ceiling || p.dueAll(now, minBytes, maxAge) || p.bundleDue(now)
}

// unaligned says whether records were deleted of which the head doesn't know. The caller holds p.mu.
func (p *Partition) unaligned() bool { return p.start > p.headStart && p.state == Writing }

// dueAll says whether everything pending is to be rolled, whatever its size: from a minimum size after segment.ms,
// anything after an hour, and what reclaim asks for (design, section 7). The caller holds p.mu.
func (p *Partition) dueAll(now, minBytes int64, maxAge time.Duration) bool {
	age := now - p.pendingSince
	return p.rollForced || p.pending > 0 && (p.pending >= minBytes && age >= p.cfg.Load().SegmentMs || age >= maxAge.Milliseconds())
}

// rollWorker rolls one partition after the other.
func (s *Set) rollWorker() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.rolls.ready:
		}
		for p := s.rolls.pop(); p != nil && s.ctx.Err() == nil; p = s.rolls.pop() {
			s.rollNow(p)
		}
	}
}

// rollNow does one round of a partition; with more to do it queues behind the others, so that a few busy partitions
// don't keep all workers.
func (s *Set) rollNow(p *Partition) {
	more, err := p.rollDueParts(s.ctx, s.o.Now(), s.o)
	p.mu.Lock()
	p.queuedRoll = false
	p.retryAt = time.Time{}
	if more && err == nil {
		s.kickRoll(p)
	}
	if err != nil {
		// Nothing queues it before: with the bucket down every batch would otherwise try an upload. Measured on the
		// monotonic clock, since one that was set back must not keep data from the bucket.
		p.retryAt = time.Now().Add(2 * s.o.RetryPause)
		s.notePending(p)
	}
	p.mu.Unlock()
	if s.ctx.Err() == nil {
		s.reportRoll(p, err)
	}
}

// reportRoll writes one line when the bucket stops taking data and one when it takes data again.
func (s *Set) reportRoll(p *Partition, err error) {
	if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		s.event(Error, p, "roll failed", err)
		return
	}
	s.rolls.mu.Lock()
	was := s.rolls.failing
	s.rolls.failing = err != nil
	s.rolls.mu.Unlock()
	switch {
	case err != nil && !was:
		s.event(Warn, p, "the bucket does not take data; local data waits and uploads go on trying", err)
	case err == nil && was:
		s.event(Info, p, "the bucket takes data again", nil)
	}
}

// rollDueParts does what the partition was queued for: a jump, a part of its pending data, a higher ceiling. more says
// that there is more to do.
func (p *Partition) rollDueParts(ctx context.Context, now int64, o SetOptions) (more bool, err error) {
	if err := p.lockSwap(ctx); err != nil {
		return false, err
	}
	defer p.unlockSwap()
	p.mu.Lock()
	jump := p.resume && p.state == Recovering
	target, all, want := p.durable, p.dueAll(now, o.RollMinBytes, o.RollMaxAge), p.wantCeiling > p.ceiling
	due := p.serving() && p.tiered < target && (all || p.fullObject() || p.listDue())
	if !due {
		p.rollForced = false
	}
	want = want && p.state == Writing
	bundle := p.bundleDue(now)
	unaligned, start := p.unaligned(), p.start
	p.mu.Unlock()
	switch {
	case jump:
		return false, p.finishJump(ctx)
	case unaligned:
		return true, p.deleteInHead(ctx, start, now)
	case due:
		return p.rollOnce(ctx, target, all)
	case want:
		return false, p.raiseCeiling(ctx)
	case bundle:
		return false, p.bundle(ctx, now)
	}
	return false, nil
}

// finishJump ends the fall-back of an async partition whose visible records were lost by a failed write.
func (p *Partition) finishJump(ctx context.Context) error {
	if err := p.jumpToCeiling(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	if p.state == Recovering && p.resume && !p.jump && !p.set.closing.Load() {
		p.state, p.resume = Writing, false
		p.wake()
	}
	p.mu.Unlock()
	return nil
}
