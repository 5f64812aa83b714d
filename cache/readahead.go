package cache

import (
	"errors"
	"slices"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// maxStreams bounds the sequential readers that are remembered for one object; the oldest goes first.
const maxStreams = 16

// startBytes is where an object's content begins at the latest, behind what its format may put before it.
const startBytes = 4 << 10

// errNotFetched ends the wait for a chunk whose read-ahead was given up. Nobody waits for it then.
var errNotFetched = errors.New("read-ahead was given up")

// stream is a reader that goes through an object in order.
type stream struct {
	first, last int64 // chunks of its last read
	end         int64 // where that ended
	window      int64 // chunks to have ahead of it
}

// readAhead notes that the bytes [off, end), which are r's, were read, and fetches ahead if they continue a stream.
func (c *Cache) readAhead(r *request, off, end int64) {
	if c.o.MaxReadAhead < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[r.key]
	if o == nil {
		return
	}
	s, from := o.stream(r, off, int64(c.o.MaxReadAhead))
	// What was read now may be asked for once more: it is left behind when the reader asks for what comes behind it.
	for idx := from; idx < r.first; idx++ {
		if ch := o.chunks[idx]; ch != nil {
			c.pass(ch)
		}
	}
	s.first, s.last, s.end = r.first, r.last, end
	last := (r.size - 1) / int64(c.o.ChunkBytes)
	for _, ch := range r.chunks {
		ch.awaits, ch.used = s.window > 0 && r.last < last, c.serial
	}
	if r.last < last {
		o.remember(s)
		if s.window > 0 {
			c.prefetch(r.op, r.key, r.size, r.last+1, min(r.last+s.window, last))
		}
	}
}

// stream takes out the stream that the read continues, with its new window, or begins one. A stream reads on where it ended, in the chunks
// of its last read once more, or in the next one; its window doubles with each chunk. Who begins at the start of an object, or in a chunk
// that was fetched ahead, will likely go on. from is the first chunk that the reader may have left behind.
func (o *object) stream(r *request, off, most int64) (s stream, from int64) {
	i := slices.IndexFunc(o.streams, func(s stream) bool { return off == s.end })
	if i < 0 {
		i = slices.IndexFunc(o.streams, func(s stream) bool { return r.first >= s.first && r.first <= s.last+1 })
	}
	if i < 0 {
		switch {
		case r.ahead:
			return stream{window: min(2, most)}, r.first
		case off < startBytes:
			return stream{window: min(1, most)}, r.first
		}
		return stream{}, r.first
	}
	s = o.streams[i]
	o.streams = slices.Delete(o.streams, i, i+1)
	if s.window == 0 && off == s.end {
		s.window = min(1, most)
	}
	for range min(r.last-s.last, 8) {
		s.window = min(max(2*s.window, 1), most)
	}
	return s, s.first
}

func (o *object) remember(s stream) {
	if len(o.streams) == maxStreams {
		o.streams = slices.Delete(o.streams, 0, 1)
	}
	o.streams = append(o.streams, s)
}

// prefetch queues the chunks first to last that are not in the index, as long as there is room for read-ahead.
func (c *Cache) prefetch(op bucket.Op, key string, size, first, last int64) {
	for idx := first; idx <= last; idx++ {
		if o := c.objects[key]; o != nil && o.chunks[idx] != nil {
			continue
		}
		cost := slabSize(c.chunkLen(size, idx))
		c.expire()
		busy := c.closed || c.waiters.Len() > 0 || c.ahead.Len() >= 2*c.o.Workers
		if busy || c.unread+cost > c.o.Bytes/4 || c.pinned+cost > c.o.Bytes || !c.makeRoom(cost, true) {
			return
		}
		ch := c.newChunk(op, key, size, idx)
		ch.unread = true
		c.unread += cost
		c.stats.Ahead++
		c.pin(ch)
		ch.moveTo(&c.ahead)
		c.work.Signal()
	}
}

// giveUpAhead takes back the memory of read-ahead that has not begun and that no reader has joined.
func (c *Cache) giveUpAhead() {
	for e := c.ahead.Front(); e != nil; {
		ch := e.Value.(*chunk)
		e = e.Next()
		if ch.pins == 1 {
			c.finish(ch, errNotFetched)
		}
	}
}
