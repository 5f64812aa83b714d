package partition

import (
	"context"
	"fmt"
	"sync"
)

// progress publishes how far the commit loop is: appends are durable by position, so one broadcast serves every
// waiting producer, and a group commit wakes them together.
type progress struct {
	mu        sync.Mutex
	exposed   uint64 // async entries below it are visible
	committed uint64 // sync entries below it are indexed and visible
	gen       uint64
	failedAt  []failure // one per generation that ended in a failed write, newest last
	err       error     // set when the loop has ended
	changed   chan struct{}
}

// failure says that in generation gen nothing at or above at was stored.
type failure struct {
	gen, at uint64
	err     error
}

// keptFailures bounds the memory of past failures; an append older than all of them has long been answered.
const keptFailures = 64

func newProgress(at, gen uint64) *progress {
	return &progress{exposed: at, committed: at, gen: gen, changed: make(chan struct{})}
}

func (g *progress) advance(exposed, committed uint64) {
	g.mu.Lock()
	if exposed != g.exposed || committed != g.committed {
		g.exposed, g.committed = exposed, committed
		g.broadcast()
	}
	g.mu.Unlock()
}

func (g *progress) failed(f failure, gen uint64) {
	g.mu.Lock()
	g.failedAt = append(g.failedAt, f)
	if len(g.failedAt) > keptFailures {
		g.failedAt = g.failedAt[1:]
	}
	g.gen = gen
	g.broadcast()
	g.mu.Unlock()
}

func (g *progress) end(err error) {
	g.mu.Lock()
	if g.err == nil {
		g.err = err
		g.broadcast()
	}
	g.mu.Unlock()
}

func (g *progress) broadcast() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// outcome says whether an append is decided: stored (true, nil), lost (true, error) or still open.
func (g *progress) outcome(a *Ack) (bool, error) {
	for _, f := range g.failedAt {
		if f.gen == a.gen && a.end > f.at {
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

func (g *progress) wait(ctx context.Context, a *Ack) error {
	for {
		g.mu.Lock()
		done, err := g.outcome(a)
		changed := g.changed
		g.mu.Unlock()
		if done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (g *progress) committedTo() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.committed
}
