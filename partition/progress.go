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
	exposed   uint64    // async entries below it are visible
	committed uint64    // sync entries below it are indexed and visible
	failures  []failure // newest last
	forgotten uint64    // generations below it ended so long ago that their failures aren't remembered
	err       error     // set when the loop has ended
	changed   chan struct{}
}

// failure says that of the generations below before, nothing at or above at was stored. That is all of them and not
// just the last one: a second failure before the log is open again may lose more than the first one did.
type failure struct {
	before, at uint64
	err        error
}

// keptFailures bounds the memory of past failures.
const keptFailures = 256

func newProgress(at uint64) *progress {
	return &progress{exposed: at, committed: at, changed: make(chan struct{})}
}

func (g *progress) advance(exposed, committed uint64) {
	g.mu.Lock()
	if exposed != g.exposed || committed != g.committed {
		g.exposed, g.committed = exposed, committed
		g.broadcast()
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
