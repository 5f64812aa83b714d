package partition

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// progress publishes how far the commit loop is. Appends are durable by position, so a group commit wakes all who wait
// for it together, and nobody else.
type progress struct {
	mu        sync.Mutex
	exposed   uint64    // async entries below it are visible
	committed uint64    // sync entries below it are indexed and visible
	failures  []failure // newest last
	forgotten uint64    // generations below it ended so long ago that their failures aren't remembered
	err       error     // set when the loop has ended
	waiting   []*waitingAck
}

// waitingAck is an append that somebody waits for. at is its place among those waiting, under the progress's lock; -1
// once the outcome is, or will be, in c.
type waitingAck struct {
	ack   *Ack
	at    int
	c     chan error
	timer *time.Timer // stopped while nobody waits
}

var waitingAcks = sync.Pool{New: func() any {
	w := &waitingAck{c: make(chan error, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}}

// failure says that of the generations below before, nothing at or above at was stored. That is all of them and not
// just the last one: a second failure before the log is open again may lose more than the first one did.
type failure struct {
	before, at uint64
	err        error
}

// keptFailures bounds the memory of past failures.
const keptFailures = 256

func newProgress(at uint64) *progress {
	return &progress{exposed: at, committed: at}
}

func (g *progress) advance(exposed, committed uint64) {
	g.mu.Lock()
	if exposed != g.exposed || committed != g.committed {
		g.exposed, g.committed = exposed, committed
		g.settle()
	}
	g.mu.Unlock()
}

func (g *progress) failed(f failure) {
	g.mu.Lock()
	g.failures = append(g.failures, f)
	if len(g.failures) > keptFailures {
		g.forgotten = g.failures[0].before
		g.failures = append([]failure(nil), g.failures[1:]...)
	}
	g.settle()
	g.mu.Unlock()
}

func (g *progress) end(err error) {
	g.mu.Lock()
	if g.err == nil {
		g.err = err
		g.settle()
	}
	g.mu.Unlock()
}

// settle tells those whose outcome is decided. The caller holds mu.
func (g *progress) settle() {
	for i := 0; i < len(g.waiting); {
		w := g.waiting[i]
		done, err := g.outcome(w.ack)
		if !done {
			i++
			continue
		}
		g.remove(w) // puts another one at i
		w.c <- err  // has room: it is told once
	}
}

// remove takes w from those waiting. The caller holds mu.
func (g *progress) remove(w *waitingAck) {
	last := len(g.waiting) - 1
	g.waiting[w.at] = g.waiting[last]
	g.waiting[w.at].at = w.at
	g.waiting[last] = nil
	g.waiting = g.waiting[:last]
	w.at = -1
}

// outcome says whether an append is decided: stored (true, nil), lost (true, error) or still open.
func (g *progress) outcome(a *Ack) (bool, error) {
	if a.gen < g.forgotten {
		// Who asks so late gets the answer that is never wrong: it isn't known to be stored.
		return true, fmt.Errorf("%w: the log has failed too often since", ErrStorage)
	}
	for _, f := range g.failures {
		if a.gen < f.before && a.end > f.at {
			return true, fmt.Errorf("%w: %w", ErrStorage, f.err)
		}
	}
	mark := g.committed
	if a.onWrite {
		mark = g.exposed
	}
	if a.end <= mark {
		return true, nil
	}
	return g.err != nil, g.err
}

func (g *progress) wait(ctx context.Context, a *Ack, deadline time.Time) error {
	g.mu.Lock()
	if done, err := g.outcome(a); done {
		g.mu.Unlock()
		return err
	}
	w := waitingAcks.Get().(*waitingAck)
	w.ack, w.at = a, len(g.waiting)
	g.waiting = append(g.waiting, w)
	g.mu.Unlock()
	err := g.await(ctx, w, deadline)
	w.ack = nil
	waitingAcks.Put(w)
	return err
}

func (g *progress) await(ctx context.Context, w *waitingAck, deadline time.Time) error {
	if !deadline.IsZero() {
		w.timer.Reset(time.Until(deadline))
		defer w.timer.Stop()
	}
	late := context.DeadlineExceeded
	select {
	case err := <-w.c:
		return err
	case <-w.timer.C:
	case <-ctx.Done():
		late = context.Cause(ctx)
	}
	g.mu.Lock()
	waits := w.at >= 0
	if waits {
		g.remove(w)
	}
	g.mu.Unlock()
	if waits {
		return late
	}
	return <-w.c
}

func (g *progress) committedTo() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.committed
}
