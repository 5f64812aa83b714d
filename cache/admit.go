package cache

import (
	"context"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// request is a Read that wants its chunks pinned.
type request struct {
	op          bucket.Op
	key         string
	size        int64
	first, last int64    // chunks
	chunks      []*chunk // set when admitted: pinned, resident or in flight
	ahead       bool     // set when admitted: one of them had been fetched ahead
}

// waiter is a request that waits for memory.
type waiter struct {
	r     *request
	ready chan struct{} // closed when r was admitted, or err set
	err   error
}

// acquire pins all chunks of r and queues the GETs of those that are missing, as soon as there is memory for them.
func (c *Cache) acquire(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	if c.mayPass(r) && c.admit(r) {
		c.mu.Unlock()
		return nil
	}
	c.stats.Waits++
	w := &waiter{r: r, ready: make(chan struct{})}
	place := c.waiters.PushBack(w)
	c.serve() // we may be the first, with room after all
	c.mu.Unlock()
	select {
	case <-w.ready:
		return w.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-w.ready: // both at once: give back what we got
		for _, ch := range r.chunks {
			c.unpin(ch)
		}
	default:
		c.waiters.Remove(place)
	}
	c.serve()
	return ctx.Err()
}

// mayPass tells whether r may try before those who wait: if none do, or it needs no memory. Nobody passes a waiter that is
// larger than the budget, because that one needs everybody else to be gone.
func (c *Cache) mayPass(r *request) bool {
	first := c.waiters.Front()
	if first == nil {
		return true
	}
	all, missing := c.need(r)
	if missing > 0 {
		return false
	}
	oldest, _ := c.need(first.Value.(*waiter).r)
	return oldest <= c.o.Bytes && all <= c.o.Bytes
}

// need is the memory of all chunks of r, and of those that are not in the index.
func (c *Cache) need(r *request) (all, missing int64) {
	o := c.objects[r.key]
	for idx := r.first; idx <= r.last; idx++ {
		cost := slabSize(c.chunkLen(r.size, idx))
		all += cost
		if o == nil || o.chunks[idx] == nil {
			missing += cost
		}
	}
	return all, missing
}

// admit pins the chunks of r if there is memory for those that are missing.
func (c *Cache) admit(r *request) bool {
	_, missing := c.need(r)
	chunks := make([]*chunk, r.last-r.first+1)
	var own int64
	if o := c.objects[r.key]; o != nil {
		for i := range chunks {
			if ch := o.chunks[r.first+int64(i)]; ch != nil {
				c.pin(ch)
				chunks[i] = ch
				own += ch.cost
			}
		}
	}
	// What is not pinned can be evicted. A read that has all pins for itself may pass the budget.
	lacking := func() bool { return missing > 0 && c.pinned+missing > c.o.Bytes && c.pinned > own }
	if lacking() {
		c.giveUpAhead()
	}
	if lacking() {
		for _, ch := range chunks {
			if ch != nil {
				c.unpin(ch)
			}
		}
		return false
	}
	c.makeRoom(missing, false)
	for i, ch := range chunks {
		if ch == nil {
			ch = c.newChunk(r.op, r.key, r.size, r.first+int64(i))
			chunks[i] = ch
			c.pin(ch) // for the GET
			c.pin(ch) // for the reader
			c.stats.Misses++
			ch.moveTo(&c.demand)
			c.work.Signal()
			continue
		}
		r.ahead = c.count(ch) || r.ahead
	}
	r.chunks = chunks
	return true
}

// count keeps the statistics of a chunk that a reader found, and moves it before all read-ahead if it is not fetched yet. It
// tells whether the reader is the first for whom the chunk was fetched ahead.
func (c *Cache) count(ch *chunk) bool {
	first := ch.unread
	ch.passed = false
	if first {
		c.stats.AheadUsed++
		c.seen(ch)
	}
	if ch.finished() {
		c.stats.Hits++
		return first
	}
	c.stats.Joined++
	if ch.where == &c.ahead {
		ch.moveTo(&c.demand)
	}
	return first
}

// makeRoom evicts unpinned chunks until n more bytes fit, or none are left that may go: first those that sequential readers have left
// behind, then what the policy does not want, the longest unused first; unless probationOnly, what it does want; last what was read ahead, and where sequential
// readers stand, since they are on the way, and would have it fetched again.
func (c *Cache) makeRoom(n int64, probationOnly bool) bool {
	c.expire()
	for c.used+n > c.o.Bytes {
		e := c.probation.Front()
		if e == nil && !probationOnly {
			if e = c.protected.Front(); e == nil {
				e = c.fresh.Front()
			}
		}
		if e == nil {
			return false
		}
		ch := e.Value.(*chunk)
		c.stats.Evictions++
		if ch.kept {
			c.ghosts = append(c.ghosts, ch)
		}
		c.forget(ch)
	}
	return true
}

// expire gives up what a sequential reader was to come for, when twice as many chunks as fit into memory have come since it was read or fetched ahead: the
// reader has gone.
func (c *Cache) expire() {
	long := 2 * uint64(c.o.Bytes/int64(c.o.ChunkBytes))
	for e := c.fresh.Front(); e != nil && e.Value.(*chunk).used+long < c.serial; e = c.fresh.Front() {
		ch := e.Value.(*chunk)
		c.seen(ch)
		c.pass(ch)
	}
}

// serve admits waiters in order, as far as memory goes.
func (c *Cache) serve() {
	for e := c.waiters.Front(); e != nil; e = c.waiters.Front() {
		w := e.Value.(*waiter)
		if !c.admit(w.r) {
			return
		}
		c.waiters.Remove(e)
		close(w.ready)
	}
}
