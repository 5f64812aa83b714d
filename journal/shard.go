package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// shard is one partition's machine over all its lives.
type shard[M Machine] struct {
	j     *Journal[M]
	index int32
	wake  chan struct{}

	mu      sync.Mutex
	cur     *run[M] // nil unless running
	loading bool    // the partition is here
}

func (s *shard[M]) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// do is Journal.Do.
func (s *shard[M]) do(op func(m M, now time.Time) Step) error {
	s.mu.Lock()
	r, err := s.admit()
	if err == nil && r.heldBytes > s.j.o.MaxHeldBytes {
		err = ErrOverloaded
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	e := r.take(op(r.m, s.j.o.Now()))
	s.mu.Unlock()
	r.finish(e)
	return nil
}

// admit returns the machine's run. The caller holds s.mu.
func (s *shard[M]) admit() (*run[M], error) {
	if s.j.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if r := s.cur; r != nil && r.dead == nil {
		if r.owned() {
			return r, nil
		}
		r.fail(fmt.Errorf("%w: the partition's epoch %d has ended here", ErrNotCoordinator, r.epoch))
		return nil, ErrNotCoordinator
	}
	p := s.j.o.Partition(s.index)
	if p == nil {
		return nil, ErrNotCoordinator
	}
	if _, ok := p.Writing(); !ok {
		return nil, ErrNotCoordinator
	}
	if s.cur == nil && !s.loading {
		s.kick()
	}
	return nil, ErrLoading
}

// loop is the shard's goroutine: it waits for the partition, loads, runs, and begins again.
func (s *shard[M]) loop() {
	pause := s.j.o.RetryMin
	for s.j.ctx.Err() == nil {
		p := s.j.o.Partition(s.index)
		epoch, ok := int32(0), false
		if p != nil {
			epoch, ok = p.Writing()
		}
		s.mu.Lock()
		s.loading = ok
		s.mu.Unlock()
		if !ok {
			pause = s.j.o.RetryMin
			select {
			case <-s.wake:
			case <-s.j.ctx.Done():
			}
			continue
		}
		r, err := s.load(p, epoch)
		if err == nil {
			began := time.Now()
			err = s.run(r)
			if time.Since(began) > s.j.o.RetryMax {
				pause = s.j.o.RetryMin
			}
		}
		if s.j.ctx.Err() != nil {
			break
		}
		if errors.Is(err, ErrNotCoordinator) {
			continue // ownership has changed: look at once
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, s.j.o.RetryMax)
		case <-s.j.ctx.Done():
		}
	}
	s.mu.Lock()
	s.loading = false
	s.mu.Unlock()
}

// run serves a loaded machine until it fails, and buries it. It returns why it ended.
func (s *shard[M]) run(r *run[M]) error {
	s.mu.Lock()
	s.cur = r
	e := r.take(r.m.Loaded(s.j.o.Now()))
	s.mu.Unlock()
	r.finish(e)
	r.wakeUp() // a snapshot may be due
	for {
		select {
		case <-r.kick:
		case <-s.wake:
		case <-r.timer.C:
			r.expire()
		case <-r.retry.C:
			r.drain()
		case <-s.j.ctx.Done():
			s.mu.Lock()
			r.fail(ErrClosed)
			s.mu.Unlock()
		}
		r.release()
		s.mu.Lock()
		if r.dead == nil && !r.owned() {
			r.fail(fmt.Errorf("%w: the partition's epoch %d has ended here", ErrNotCoordinator, r.epoch))
		}
		dead := r.dead
		if dead == nil {
			r.snapshotIfDue()
		}
		s.mu.Unlock()
		if dead != nil {
			break
		}
	}
	r.cancel() // ends a snapshot under way
	r.snapshots.Wait()
	r.release()
	s.mu.Lock()
	err := r.dead
	s.cur = nil
	s.mu.Unlock()
	r.timer.Stop()
	r.retry.Stop()
	r.m.Discard(outcome(err))
	s.j.o.OnEvent(Event{Kind: Lost, Shard: s.index, Epoch: r.epoch, Err: err})
	return err
}

// outcome is what an operation gets that was lost for the given reason.
func outcome(err error) error {
	if err == nil || errors.Is(err, ErrNotCoordinator) || errors.Is(err, ErrClosed) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrNotCoordinator, err)
}
