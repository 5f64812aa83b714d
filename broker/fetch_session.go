package broker

import (
	"container/list"
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
)

// Session epochs with a meaning (KIP-227).
const (
	finalEpoch   = -1 // no session, or the end of one
	initialEpoch = 0  // a new session
)

// Bounds of the memory of sessions. A client with more is served without a session.
const (
	maxSessionParts      = 200_000
	maxSessionPartsTotal = 1_000_000
)

// fetchKey names a partition in a fetch: by id from version 13 on, by name before.
type fetchKey struct {
	topic frame.TopicID
	name  string
	index int32
}

// fetchSession is what the broker remembers of a client's fetches, so that it sends and receives changes only.
type fetchSession struct {
	id   int32
	byID bool
	// lock is held by the fetch under way (as a semaphore, so that waiting for it can end); it guards what follows.
	lock   chan struct{}
	epoch  int32 // that the next fetch must have
	parts  map[fetchKey]*fetchPart
	slots  []*fetchPart // by token
	free   []int32      // tokens without a partition
	ready  []*fetchPart // what the next fetch must look at, in the order in which it is served
	waiter *partition.Waiter
	tokens []int32
	closed bool

	// Guarded by the cache's mutex.
	used time.Time
	size int // partitions, as counted by the cache
	elem *list.Element
}

func newFetchSession(byID bool) *fetchSession {
	return &fetchSession{byID: byID, lock: make(chan struct{}, 1), epoch: 1, parts: map[fetchKey]*fetchPart{}, waiter: partition.NewWaiter()}
}

func (s *fetchSession) acquire(ctx context.Context) error {
	select {
	case s.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *fetchSession) release() { <-s.lock }

// put adds a partition or changes what the client asks of it. The caller holds the lock.
func (s *fetchSession) put(k fetchKey, in *kafka.FetchRequestPartition) {
	p := s.parts[k]
	if p == nil {
		p = &fetchPart{key: k, sentHigh: -1, sentStart: -1}
		s.parts[k] = p
		if n := len(s.free); n > 0 {
			p.token = s.free[n-1]
			s.free = s.free[:n-1]
			s.slots[p.token] = p
		} else {
			p.token = int32(len(s.slots))
			s.slots = append(s.slots, p)
		}
	}
	p.ask(in)
	s.markReady(p)
}

func (s *fetchSession) markReady(p *fetchPart) {
	if !p.ready {
		p.ready = true
		s.ready = append(s.ready, p)
	}
}

// forget removes a partition. It may still stand in ready, where gone marks it.
func (s *fetchSession) forget(k fetchKey) {
	p := s.parts[k]
	if p == nil {
		return
	}
	delete(s.parts, k)
	p.gone = true
	p.watch(nil, s.waiter)
	s.slots[p.token] = nil
	s.free = append(s.free, p.token)
}

// wake moves the partitions that changed to ready.
func (s *fetchSession) wake() {
	s.tokens = s.waiter.Take(s.tokens[:0])
	for _, t := range s.tokens {
		if p := s.slots[t]; p != nil {
			s.markReady(p)
		}
	}
}

// settle sets what the next fetch must look at: what has an error or more to send. What was sent something goes
// behind the others, so that a busy partition doesn't starve them.
func (s *fetchSession) settle(seen []*fetchPart) {
	for _, p := range seen {
		p.ready = false
	}
	s.ready = s.ready[:0]
	for _, p := range seen {
		if !p.gone && p.records == 0 && (p.err != 0 || p.starved) {
			s.markReady(p)
		}
	}
	for _, p := range seen {
		if !p.gone && p.records > 0 {
			s.markReady(p)
		}
		p.fetchAnswer = fetchAnswer{}
	}
}

// end stops all watches. The caller holds the lock.
func (s *fetchSession) end() {
	s.closed = true
	for _, p := range s.parts {
		p.watch(nil, s.waiter)
	}
	clear(s.parts)
	s.slots, s.ready, s.free = nil, nil, nil
}

// sessionCache holds the sessions of all clients, the least recently used first in line for eviction.
type sessionCache struct {
	limit int
	idle  time.Duration

	mu    sync.Mutex
	byID  map[int32]*fetchSession
	order *list.List // of *fetchSession, the most recently used at the front
	parts int
	evict int64
}

func newSessionCache(limit int, idle time.Duration) *sessionCache {
	return &sessionCache{limit: limit, idle: idle, byID: map[int32]*fetchSession{}, order: list.New()}
}

// add gives a session its id and keeps it. Like Kafka it doesn't push out a session that is in use: false means that
// the client must do without.
func (c *sessionCache) add(s *fetchSession, now time.Time) bool {
	size := len(s.parts)
	c.mu.Lock()
	var old *fetchSession
	if len(c.byID) >= c.limit || c.parts+size > maxSessionPartsTotal {
		if e := c.order.Back(); e != nil && now.Sub(e.Value.(*fetchSession).used) > c.idle {
			old = e.Value.(*fetchSession)
			c.drop(old)
			c.evict++
		}
	}
	fits := len(c.byID) < c.limit && c.parts+size <= maxSessionPartsTotal && size <= maxSessionParts
	if fits {
		for s.id == 0 || c.byID[s.id] != nil {
			s.id = rand.Int32N(math.MaxInt32-1) + 1
		}
		c.byID[s.id] = s
		s.used, s.size, s.elem = now, size, c.order.PushFront(s)
		c.parts += size
	}
	c.mu.Unlock()
	if old != nil {
		old.finish()
	}
	return fits
}

func (c *sessionCache) drop(s *fetchSession) {
	delete(c.byID, s.id)
	c.order.Remove(s.elem)
	c.parts -= s.size
}

// finish ends a session that nobody can find any more, now or after the fetch under way.
func (s *fetchSession) finish() {
	select {
	case s.lock <- struct{}{}:
		s.end()
		s.release()
	default:
		// The fetch that holds the lock looks at the cache when it is done.
	}
}

func (c *sessionCache) get(id int32, now time.Time) *fetchSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.byID[id]
	if s != nil {
		s.used = now
		c.order.MoveToFront(s.elem)
	}
	return s
}

// done notes a session's size after a fetch and says whether it is still kept. The caller holds the session's lock.
func (c *sessionCache) done(s *fetchSession, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.id] != s {
		return false
	}
	c.parts += len(s.parts) - s.size
	s.size, s.used = len(s.parts), now
	return true
}

func (c *sessionCache) has(s *fetchSession) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[s.id] == s
}

func (c *sessionCache) remove(id int32) {
	c.mu.Lock()
	s := c.byID[id]
	if s != nil {
		c.drop(s)
	}
	c.mu.Unlock()
	if s != nil {
		s.finish()
	}
}

func (c *sessionCache) close() {
	c.mu.Lock()
	all := make([]*fetchSession, 0, len(c.byID))
	for _, s := range c.byID {
		all = append(all, s)
		c.drop(s)
	}
	c.limit = 0
	c.mu.Unlock()
	for _, s := range all {
		s.finish()
	}
}

// stats returns the sessions kept, their partitions, and how many were evicted so far.
func (c *sessionCache) stats() (sessions, parts int, evicted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID), c.parts, c.evict
}

// openSession finds or makes the session a fetch belongs to and lists what must be looked at. It returns a Kafka
// error for a session that doesn't fit.
func (f *fetchCall) openSession(ctx context.Context) *kerr.Error {
	c, r := f.b.sessions, &f.req
	switch {
	case r.SessionEpoch == finalEpoch:
		if r.SessionID != 0 {
			c.remove(r.SessionID)
		}
		f.listAll()
		return nil
	case r.SessionEpoch == initialEpoch:
		if r.SessionID != 0 {
			c.remove(r.SessionID)
		}
		s := newFetchSession(f.byID)
		f.each(func(k fetchKey, in *kafka.FetchRequestPartition) { s.put(k, in) })
		s.lock <- struct{}{}
		if !c.add(s, f.started) {
			f.listAll()
			return nil
		}
		f.s = s
		f.list = append(f.list[:0], s.ready...)
		return nil
	}
	return f.joinSession(ctx)
}

func (f *fetchCall) joinSession(ctx context.Context) *kerr.Error {
	s := f.b.sessions.get(f.req.SessionID, f.started)
	if s == nil {
		return kerr.FetchSessionIDNotFound
	}
	if err := s.acquire(ctx); err != nil {
		return kerr.FetchSessionIDNotFound
	}
	switch {
	case s.closed:
		s.release()
		return kerr.FetchSessionIDNotFound
	case s.byID != f.byID:
		s.release()
		return kerr.FetchSessionTopicIDError
	case s.epoch != f.req.SessionEpoch:
		s.release()
		return kerr.InvalidFetchSessionEpoch
	}
	if s.epoch == math.MaxInt32 {
		s.epoch = 1
	} else {
		s.epoch++
	}
	f.s, f.incremental = s, true
	for i := range f.req.Forgotten {
		t := &f.req.Forgotten[i]
		for _, index := range t.Partitions {
			s.forget(f.key(t.Name, t.ID, index))
		}
	}
	if len(s.parts) < maxSessionParts {
		f.each(func(k fetchKey, in *kafka.FetchRequestPartition) { s.put(k, in) })
	}
	s.wake()
	f.list = f.list[:0]
	for _, p := range s.ready {
		if !p.gone {
			f.list = append(f.list, p)
		}
	}
	return nil
}

// closeSession notes the outcome of the fetch in its session.
func (f *fetchCall) closeSession() {
	s := f.s
	if s == nil {
		return
	}
	s.settle(f.list)
	kept := f.b.sessions.done(s, f.b.o.Now())
	if !kept {
		s.end()
	}
	s.release()
	if kept && !f.b.sessions.has(s) {
		// Removed between the two looks, while the lock was held: whoever removed it left the end to us.
		s.finish()
	}
}
