package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
)

// A planned move, as seen by its two brokers. The controller names a target in the assignment of a partition that is
// Writing; everything else happens between the brokers and etcd, so that a controller that dies meanwhile stops nothing:
//
//	target   loads the head and says so in etcd (warm); the controller takes the move back if it can't
//	owner    rolls a large tail, and waits for who works on the head, while it takes writes
//	owner    Writing -> Draining: refuses writes, rolls its tail, until the head ends where the partition does
//	owner    hands over: one transaction makes the target the owner under the next epoch, in Starting
//	target   claims the head, Writing
//	owner    drops what is left of it here (remains.go)
//
// Nothing is copied between brokers. A target that is gone, or a bucket that takes no tail, sends the owner back to
// Writing.
const (
	// warmPatience is how long a target tries to warm up, and how long an owner that is about to stop waits for it. Any other
	// waits as long as the controller does: a target that can't read the head would not serve either.
	warmPatience = 3 * time.Second
	// lightTail is what an owner may still have to roll when it drains: an upload of so much takes little longer than one of nothing.
	// More of it is rolled before, while writes go on, maxRollAhead times at most: a very busy partition is never light.
	lightTail    = 1 << 20
	maxRollAhead = 3
	// warmParallel is how many heads are loaded at once for moves.
	warmParallel = 8
	// moveRest is how long a partition serves at least after it gave a move up, in times of SetOptions.DrainPatience.
	moveRest = 4
)

// moving is what an owner knows of the move of a partition. It belongs to the reconcile loop.
type moving struct {
	target int32
	since  time.Time // when the owner first saw the target
	drains time.Time // when it began to refuse writes; zero before
	rests  time.Time // after a move that was given up: no other one before
	rolled int       // how often its tail was rolled for the move
}

// followMove decides what the assignment of a partition that this broker serves asks for. The caller holds p.mu.
func (s *Set) followMove(pl *plan, p *Partition, a cluster.Assignment) {
	if s.closing.Load() {
		return
	}
	switch {
	case a.State == cluster.Draining:
		if p.state == Writing { // the answer of the transaction was lost, its effect wasn't
			p.state = Draining
			p.wake()
		}
		if p.move.drains.IsZero() {
			p.move.drains = time.Now()
		}
		if time.Since(p.move.drains) > s.o.DrainPatience {
			pl.undraining = append(pl.undraining, start{p, a})
			return
		}
		pl.draining = append(pl.draining, start{p, a})
		pl.later = true
	case p.state == Draining:
		// An image from before its return to Writing made it drain again, and it could not hand over. (One from before it began
		// to drain is no matter: then its job is under way.)
		pl.undraining = append(pl.undraining, start{p, a})
	case a.Target == cluster.NoBroker || a.Target == s.o.Broker || p.state != Writing:
		p.move = moving{rests: p.move.rests}
	case time.Now().Before(p.move.rests):
		pl.later = true // the bucket takes no tail now; until the controller gives the move up, writes go on here
	case p.move.target != a.Target || p.move.since.IsZero():
		p.move = moving{target: a.Target, since: time.Now(), rests: p.move.rests}
		fallthrough
	default:
		hurry := s.hurried() && time.Since(p.move.since) > warmPatience
		switch light := p.light(); {
		case a.Warm && light, hurry:
			pl.draining = append(pl.draining, start{p, a})
		case !light:
			pl.rollingAhead = append(pl.rollingAhead, start{p, a})
			fallthrough
		default:
			pl.later = true
		}
	}
}

// light says whether a hand-over would be short: nobody works on the head (a roll of 64 MiB, a merge, a sweep), and little
// waits for a roll. The caller holds p.mu.
func (p *Partition) light() bool {
	return len(p.swap) == 0 && p.pending < lightTail || p.move.rolled >= maxRollAhead
}

// rollAhead waits for who works on the head, and rolls what is durable, while the partition takes writes.
func (p *Partition) rollAhead(ctx context.Context) error {
	if err := p.lockSwap(ctx); err != nil {
		return err
	}
	defer p.unlockSwap()
	p.mu.Lock()
	end, heavy := p.durable, p.state == Writing && p.pending >= lightTail
	p.mu.Unlock()
	if heavy {
		if err := p.rollTo(ctx, end); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.move.rolled++
	p.mu.Unlock()
	return nil
}

// drainAll takes partitions from Writing to Draining and has their tails rolled.
func (s *Set) drainAll(drains []start) error {
	var entering []cluster.Transition
	for _, st := range drains {
		if st.a.State == cluster.Writing {
			entering = append(entering, s.transition(st, cluster.Draining, ""))
		}
	}
	lost, err := s.transitionAll(entering)
	if err != nil {
		return err
	}
	for _, st := range drains {
		if lost[st.p.id] {
			continue // they follow the next image
		}
		st.p.mu.Lock()
		if st.p.state == Writing && st.p.epoch == st.a.Epoch {
			st.p.state = Draining
			st.p.move.drains = time.Now()
			st.p.wake()
		}
		st.p.mu.Unlock()
		st.a.State = cluster.Draining
		s.offer(job{start: st, kind: jobHandOver})
	}
	return nil
}

func (p *Partition) undrain(epoch int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.move = moving{rests: time.Now().Add(moveRest * p.set.o.DrainPatience)}
	if p.state == Draining && p.epoch == epoch && !p.set.closing.Load() {
		p.state = Writing
		p.wake()
	}
}

// transitionAll returns which transitions were lost to somebody else's.
func (s *Set) transitionAll(ts []cluster.Transition) (lost map[frame.PartitionID]bool, err error) {
	if len(ts) == 0 {
		return nil, nil
	}
	err = s.o.Cluster.Transition(s.ctx, ts)
	var fenced *cluster.FencedError
	if !errors.As(err, &fenced) {
		return nil, err
	}
	lost = map[frame.PartitionID]bool{}
	for _, id := range fenced.Lost {
		lost[id] = true
	}
	return lost, nil
}

// handOver brings everything of a draining partition into the bucket: afterwards the head ends where the partition does,
// and names no stream of this broker.
func (p *Partition) handOver(ctx context.Context) error {
	if err := p.lockSwap(ctx); err != nil {
		return err
	}
	defer p.unlockSwap()
	if err := p.drain(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	end, draining, start, unaligned := p.next, p.state == Draining, p.start, p.start > p.headStart
	p.mu.Unlock()
	if !draining {
		return errLeft
	}
	if unaligned { // the new owner knows no start but the head's
		if err := p.deleteInHead(ctx, start, p.set.o.Now()); err != nil {
			return err
		}
	}
	if err := p.rollTo(ctx, end); err != nil {
		return err
	}
	return p.leaveStream(ctx)
}

// target is where a partition is to go, if that broker lives.
func (s *Set) target(p *Partition) (b cluster.Broker, ok bool) {
	img := s.image.Load()
	if img == nil || s.closing.Load() {
		return b, false
	}
	if a, known := img.Assignment(p.id); known && a.Target != cluster.NoBroker {
		b, ok = img.Broker(a.Target)
	}
	return b, ok
}

// handedOver finds the targets of the hand-overs that are done, and leaves out those whose target is gone: their
// partitions stay.
func (s *Set) handedOver(done []job) []job {
	kept := done[:0]
	for _, j := range done {
		if j.kind == jobHandOver {
			j.to = nil
			if b, ok := s.target(j.p); ok {
				j.to = &b
			} else if !s.closing.Load() {
				s.jobs.release([]job{j}, false)
				s.offer(job{start: j.start, kind: jobStay})
				continue
			}
		}
		kept = append(kept, j)
	}
	return kept
}

// handOverTo is the transaction that ends a move. Without a target there is nobody who could write: this broker is closing.
func (s *Set) handOverTo(j *job) cluster.Transition {
	t := s.transition(j.start, cluster.Writing, "")
	t.From = cluster.Draining
	if j.to == nil {
		return t
	}
	safe := true
	t.To, t.HandOver, t.NewOwner, t.NewIncarnation, t.Safe = cluster.Starting, true, j.to.ID, j.to.Incarnation, &safe
	return t
}

// warmAll loads what this broker will need of partitions that are to be moved here, and tells their owners.
func (s *Set) warmAll(img *cluster.Image) {
	maps.DeleteFunc(s.warming, func(id frame.PartitionID, _ bool) bool {
		_, ok := img.Assignment(id)
		return !ok // its topic was deleted
	})
	var list []cluster.Warmed
	for id, a := range img.Assignments() {
		if a.Target == s.o.Broker && a.Owner != s.o.Broker && a.State == cluster.Writing && !a.Warm && !s.warming[id] {
			list = append(list, cluster.Warmed{ID: id, Owner: a.Owner, OwnerIncarnation: a.OwnerIncarnation, Epoch: a.Epoch})
			s.warming[id] = true
		}
		if s.warming[id] && (a.Warm || a.Target != s.o.Broker) {
			delete(s.warming, id)
		}
	}
	if len(list) == 0 {
		return
	}
	s.work.Go(func() { s.warm(list) })
}

// LeaveBy tells that this broker stops at a time, and has asked for its partitions to be moved away. When half of the time
// until then is over, it no longer waits for targets that are not warm.
func (s *Set) LeaveBy(deadline time.Time) {
	hurry := time.Now().Add(time.Until(deadline) / 2)
	s.hurry.Store(&hurry)
}

func (s *Set) hurried() bool {
	at := s.hurry.Load()
	return at != nil && !time.Now().Before(*at)
}

// warm tells the owners of those partitions whose heads this broker can read.
func (s *Set) warm(list []cluster.Warmed) {
	ctx, cancel := context.WithTimeout(s.ctx, warmPatience)
	defer cancel()
	errs := make([]error, len(list))
	var all sync.WaitGroup
	slots := make(chan struct{}, warmParallel)
	for i := range list {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = s.readHead(ctx, list[i].ID)
		})
	}
	all.Wait()
	var ready []cluster.Warmed
	var failed error
	for i, err := range errs {
		if err == nil {
			ready = append(ready, list[i])
		} else {
			failed = err
		}
	}
	if failed != nil && s.ctx.Err() == nil {
		s.event(Warn, nil, fmt.Sprintf("%d partitions that are to be moved here can not be made ready", len(list)-len(ready)), failed)
	}
	if len(ready) == 0 {
		return
	}
	mctx, end := context.WithTimeout(s.ctx, warmPatience)
	defer end()
	if err := s.o.Cluster.MarkWarm(mctx, s.o.Broker, ready); err != nil && s.ctx.Err() == nil {
		s.event(Debug, nil, "the owners of partitions that move here could not be told that all is ready", err)
	}
}

// readHead tries until ctx ends.
func (s *Set) readHead(ctx context.Context, id frame.PartitionID) error {
	for {
		_, err := s.o.Archive.Load(ctx, id)
		if err == nil || errors.Is(err, tier.ErrNoHead) {
			return nil
		}
		again := time.NewTimer(min(s.o.RetryPause, warmPatience/8))
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return err
		}
	}
}
