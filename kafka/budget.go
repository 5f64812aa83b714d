package kafka

import (
	"container/list"
	"sync"
)

// budget bounds the bytes of request buffers in use over all connections by making readers
// wait. One lease at a time may pass the limit, so there is always a reader that goes on: with
// requests that grow while they arrive, several could otherwise hold parts and wait for the
// rest of each other's for ever. Memory is thus bounded by the limit and one request.
type budget struct {
	mu      sync.Mutex
	max     int64
	used    int64
	over    *lease
	waiters list.List // of *waiter, first come first served
}

// lease is what one request holds of a budget. The zero lease holds nothing.
type lease struct {
	b *budget
	n int64
}

type waiter struct {
	l     *lease
	n     int64
	ready chan struct{}
}

// grow adds n bytes to the lease; false when stop was closed first. A lease has one user at a
// time.
func (b *budget) grow(l *lease, n int64, stop <-chan struct{}) bool {
	b.mu.Lock()
	l.b = b
	if b.over == l || (b.waiters.Len() == 0 && b.fits(l, n)) {
		b.grant(l, n)
		b.mu.Unlock()
		return true
	}
	w := &waiter{l: l, n: n, ready: make(chan struct{})}
	e := b.waiters.PushBack(w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return true
	case <-stop:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // granted meanwhile: the caller releases the lease as a whole
	default:
		b.waiters.Remove(e)
		b.wake() // it may have been the one that all others waited behind
	}
	return false
}

// fits says whether the lease may grow by n now, making it the one over the limit if need be.
func (b *budget) fits(l *lease, n int64) bool {
	if b.used+n <= b.max {
		return true
	}
	if b.over != nil {
		return false
	}
	b.over = l
	return true
}

func (b *budget) grant(l *lease, n int64) {
	b.used += n
	l.n += n
}

func (b *budget) wake() {
	for e := b.waiters.Front(); e != nil; e = b.waiters.Front() {
		w := e.Value.(*waiter)
		if !b.fits(w.l, w.n) {
			return
		}
		b.waiters.Remove(e)
		b.grant(w.l, w.n)
		close(w.ready)
	}
}

// release gives all of the lease back.
func (l *lease) release() {
	b := l.b
	if b == nil {
		return
	}
	b.mu.Lock()
	b.used -= l.n
	if b.over == l {
		b.over = nil
	}
	*l = lease{}
	b.wake()
	b.mu.Unlock()
}

func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// moveTo gives all of the lease to another, which must be empty.
func (l *lease) moveTo(to *lease) {
	b := l.b
	if b == nil {
		return
	}
	b.mu.Lock()
	*to = *l
	if b.over == l {
		b.over = to
	}
	*l = lease{}
	b.mu.Unlock()
}
