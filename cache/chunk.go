package cache

import (
	"container/list"
	"context"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// object holds the chunks of one key that are in the index, and the sequential readers of it. It exists while it has chunks.
type object struct {
	key     string
	chunks  map[int64]*chunk
	streams []stream
}

// chunk is one aligned piece of an object. Fields above done change under Cache.mu.
type chunk struct {
	obj     *object
	pins    int           // readers, and one for the GET
	indexed bool          // in obj.chunks
	kept    bool          // the policy wants it to stay
	unread  bool          // read ahead, and nobody has asked for it yet
	awaits  bool          // a sequential reader has read in it, and will likely come back for it or for the next one
	passed  bool          // a sequential reader has left it behind, and nobody has asked for it since
	passes  int           // how often one has
	place   *list.Element // in a queue of GETs, in probation, protected or fresh
	where   *list.List    // the list of place

	done chan struct{} // closed when the GET has ended; data and err do not change after that
	data []byte
	err  error

	op   bucket.Op
	size int64 // of the object
	idx  int64
	off  int64 // of the chunk in the object
	n    int   // bytes
	cost int64 // bytes of its slab

	serial uint64 // no other chunk of this cache ever has it
	used   uint64 // serial of the newest chunk when it was last read, or made
	notes  notes
}

// wait returns when the chunk's bytes are there, or its GET has failed, or ctx ends.
func (ch *chunk) wait(ctx context.Context) error {
	select {
	case <-ch.done:
		return ch.err
	default:
	}
	select {
	case <-ch.done:
		return ch.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (ch *chunk) finished() bool {
	select {
	case <-ch.done:
		return true
	default:
		return false
	}
}

// moveTo puts ch into l, or nowhere if l is nil.
func (ch *chunk) moveTo(l *list.List) {
	if ch.place != nil {
		ch.where.Remove(ch.place)
		ch.place, ch.where = nil, nil
	}
	if l != nil {
		ch.place, ch.where = l.PushBack(ch), l
	}
}

// newChunk makes the chunk idx of an object and puts it into the index. It has no pins.
func (c *Cache) newChunk(op bucket.Op, key string, size, idx int64) *chunk {
	o := c.objects[key]
	if o == nil {
		o = &object{key: key, chunks: map[int64]*chunk{}}
		c.objects[key] = o
	}
	n := c.chunkLen(size, idx)
	c.serial++
	ch := &chunk{serial: c.serial, used: c.serial, obj: o, indexed: true, op: op, size: size, idx: idx, off: idx * int64(c.o.ChunkBytes), n: n, cost: slabSize(n), done: make(chan struct{})}
	o.chunks[idx] = ch
	c.used += ch.cost
	return ch
}

func (c *Cache) chunkLen(size, idx int64) int {
	return int(min(size-idx*int64(c.o.ChunkBytes), int64(c.o.ChunkBytes)))
}

func (c *Cache) pin(ch *chunk) {
	if ch.pins++; ch.pins > 1 {
		return
	}
	c.pinned += ch.cost
	if ch.finished() {
		ch.moveTo(nil) // it can't be evicted now
	}
}

func (c *Cache) unpin(ch *chunk) {
	if ch.pins--; ch.pins > 0 {
		return
	}
	c.pinned -= ch.cost
	if !ch.indexed {
		c.free(ch)
		return
	}
	c.rest(ch)
}

// once tells whether a sequential reader has left ch behind, and it was the only one: likely the last use, whatever the policy makes of a
// chunk that came in many small reads.
func (ch *chunk) once() bool { return ch.passed && ch.passes == 1 }

// rest puts an unpinned resident chunk into the list that it belongs to.
func (c *Cache) rest(ch *chunk) {
	switch {
	case ch.unread || ch.awaits:
		ch.moveTo(&c.fresh)
	case ch.kept && !ch.once():
		ch.moveTo(&c.protected)
	default:
		ch.moveTo(&c.probation)
		if ch.passed {
			c.probation.MoveToFront(ch.place)
		}
	}
}

// pass notes that a sequential reader is done with ch.
func (c *Cache) pass(ch *chunk) {
	if !ch.passed {
		ch.passes++
	}
	ch.passed, ch.awaits = true, false
	switch ch.where {
	case &c.fresh, &c.protected:
		c.rest(ch)
	case &c.probation:
		c.probation.MoveToFront(ch.place)
	}
}

// forget takes ch out of the index; its memory goes when it is unpinned.
func (c *Cache) forget(ch *chunk) {
	if !ch.indexed {
		return
	}
	ch.indexed = false
	delete(ch.obj.chunks, ch.idx)
	if len(ch.obj.chunks) == 0 {
		delete(c.objects, ch.obj.key)
	}
	c.seen(ch)
	if ch.pins == 0 {
		ch.moveTo(nil)
		c.free(ch)
	}
}

// seen ends ch's account as read ahead and unread.
func (c *Cache) seen(ch *chunk) {
	if ch.unread {
		ch.unread = false
		c.unread -= ch.cost
	}
}

// free gives ch's slab back. Nobody can reach it any more.
func (c *Cache) free(ch *chunk) {
	c.used -= ch.cost
	if ch.data != nil {
		c.slabs.put(ch.data)
		ch.data = nil
	}
}

// demote is the policy's word that it does not want ch.
func (c *Cache) demote(ch *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch.kept = false
	if ch.where == &c.protected {
		ch.moveTo(&c.probation)
	}
}

// release unpins what a Read held, and serves those who wait for memory.
func (c *Cache) release(chunks []*chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range chunks {
		c.unpin(ch)
	}
	c.serve()
}
