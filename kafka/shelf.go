package kafka

import (
	"sync"
	"time"
)

const (
	// shelfBytes is the most that the shelf keeps while nobody uses it.
	shelfBytes = 64 << 20
	// shelfTime is how long a buffer that nobody needed is kept at least, and less than twice as long at most.
	shelfTime = 5 * time.Second
)

// shelf keeps large buffers between requests. A sync.Pool gives up what it holds at each collection, and on a small heap
// nothing brings a collection about like a large buffer that has to be made anew: it is cleared, its pages are faulted in,
// and the collection that it causes empties the pools. The shelf counts the fewest buffers of each class that lay on it
// since it last looked: so many were not needed, and are given up. A timer looks, as long as there is something to keep.
type shelf struct {
	mu    sync.Mutex
	bytes int
	armed bool
	class [classes - largeClass]struct {
		free  []*buffer
		least int // the shortest that free was since the last look
	}
}

// get returns a buffer of the class, or else of one up to four times as large; nil when there is none. Requests differ in size:
// with each class for itself the shelf would be full of buffers that don't fit.
func (s *shelf) get(class int) *buffer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := class; i < min(class+maxStep, classes); i++ {
		if b := s.take(i); b != nil {
			return b
		}
	}
	return nil
}

// maxStep is how many classes a buffer may be too large by, and one: four times as large are eight classes.
const maxStep = 9

func (s *shelf) take(class int) *buffer {
	c := &s.class[class-largeClass]
	n := len(c.free) - 1
	if n < 0 {
		return nil
	}
	b := c.free[n]
	c.free[n] = nil
	c.free = c.free[:n]
	c.least = min(c.least, n)
	s.bytes -= classSize(class)
	return b
}

// put takes a buffer back. When the shelf is full, smaller ones make room, for which a larger one serves as well, and
// without any it is not kept.
func (s *shelf) put(b *buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := classSize(b.class)
	for i := largeClass; s.bytes+size > shelfBytes && i < b.class; {
		if s.take(i) == nil {
			i++
		}
	}
	if s.bytes+size > shelfBytes {
		return
	}
	s.bytes += size
	c := &s.class[b.class-largeClass]
	c.free = append(c.free, b)
	if !s.armed {
		s.armed = true
		time.AfterFunc(shelfTime, s.look)
	}
}

// look gives up what was not needed since the last look.
func (s *shelf) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.class {
		c := &s.class[i]
		kept := len(c.free) - c.least
		clear(c.free[kept:])
		s.bytes -= c.least * classSize(largeClass+i)
		c.free = c.free[:kept]
		if kept == 0 {
			c.free = nil
		}
		c.least = kept
	}
	s.armed = s.bytes > 0
	if s.armed {
		time.AfterFunc(shelfTime, s.look)
	}
}
