package partition

import (
	"slices"
	"sync"
)

// Waiter collects the partitions whose durable offset, start offset or ownership changed, for one fetch or one fetch
// session. A wake-up costs O(changed partitions): a watched partition is in the ready list at most once until Take.
// All methods are safe for concurrent use.
type Waiter struct {
	mu    sync.Mutex
	ready []*watch
	c     chan struct{}
}

// watch ties a partition to a waiter. queued is guarded by the waiter's mutex.
type watch struct {
	w      *Waiter
	token  int32
	queued bool
}

// NewWaiter returns a waiter that watches nothing yet.
func NewWaiter() *Waiter { return &Waiter{c: make(chan struct{}, 1)} }

// C receives a value when at least one watched partition has changed since the last Take.
func (w *Waiter) C() <-chan struct{} { return w.c }

// Take appends the tokens of the partitions that changed since the last call to into and returns it. A partition
// that changes during the call is either in the result or wakes C again.
func (w *Waiter) Take(into []int32) []int32 {
	w.mu.Lock()
	for i, x := range w.ready {
		x.queued = false
		into = append(into, x.token)
		w.ready[i] = nil
	}
	w.ready = w.ready[:0]
	w.mu.Unlock()
	return into
}

// Notify reports a change under token, as a watched partition would.
func (w *Waiter) Notify(token int32) { w.notify(&watch{w: w, token: token}) }

func (w *Waiter) notify(x *watch) {
	w.mu.Lock()
	if !x.queued {
		x.queued = true
		w.ready = append(w.ready, x)
	}
	w.mu.Unlock()
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// Watch reports changes of the partition to w under the given token until Unwatch. A partition that has already
// passed offset, or that isn't served here, is reported at once. Watching again under the same token only repeats
// that check.
func (p *Partition) Watch(w *Waiter, token int32, offset int64) {
	p.mu.Lock()
	i := slices.IndexFunc(p.watches, func(x *watch) bool { return x.w == w && x.token == token })
	if i < 0 {
		i = len(p.watches)
		p.watches = append(p.watches, &watch{w: w, token: token})
	}
	x := p.watches[i]
	now := p.durable > offset || !p.serving()
	p.mu.Unlock()
	if now {
		w.notify(x)
	}
}

// Unwatch removes every watch of w on the partition. A report that is under way may still arrive.
func (p *Partition) Unwatch(w *Waiter) {
	p.mu.Lock()
	kept := p.watches[:0]
	for _, x := range p.watches {
		if x.w != w {
			kept = append(kept, x)
		}
	}
	clear(p.watches[len(kept):])
	p.watches = kept
	if len(kept) == 0 {
		p.watches = nil
	}
	p.mu.Unlock()
}

// wake reports a change to everybody who watches. The caller holds p.mu; notify takes only the waiters' own short
// locks, and no waiter calls a partition while it holds one.
func (p *Partition) wake() {
	for _, x := range p.watches {
		x.w.notify(x)
	}
}
