package cache

import (
	"container/list"
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// worker fetches chunks until the cache is closed: those that readers wait for first.
func (c *Cache) worker() {
	for {
		ch := c.next()
		if ch == nil {
			return
		}
		c.fetch(ch)
	}
}

// next takes a chunk from the queues; nil means that the cache is closed.
func (c *Cache) next() *chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.closed {
			return nil
		}
		for _, l := range []*list.List{&c.demand, &c.ahead} {
			if e := l.Front(); e != nil {
				ch := e.Value.(*chunk)
				ch.moveTo(nil)
				c.running++
				return ch
			}
		}
		c.work.Wait()
	}
}

// fetch gets the bytes of ch. The pin of its GET keeps the slab, whoever forgets ch meanwhile.
func (c *Cache) fetch(ch *chunk) {
	data, err := c.slabs.get(ch.n)
	if err == nil {
		err = c.get(ch, data)
	}
	c.mu.Lock()
	ch.kept = err == nil && ch.indexed
	ghosts := c.ghosts
	c.ghosts = nil
	c.mu.Unlock()
	// The policy calls back, so it is told with no lock held, and before ch can be evicted.
	for _, g := range ghosts {
		c.policy.remove(g)
	}
	dropped := ch.kept && !c.policy.add(ch)
	if dropped {
		c.demote(ch)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if dropped {
		c.stats.PolicyDropped++
	}
	c.running--
	ch.data = data
	c.finish(ch, err)
	c.serve()
}

func (c *Cache) get(ch *chunk, data []byte) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.o.FetchTimeout)
	defer cancel()
	_, info, err := c.o.Bucket.Get(ctx, ch.op, ch.obj.key, ch.off, int64(ch.n), data)
	if err == nil && info.Size != ch.size {
		err = bucket.NewError("read", ch.obj.key, bucket.ErrCorrupt, fmt.Errorf("the object has %d bytes, not %d", info.Size, ch.size))
	}
	return err
}

// finish ends the GET of ch: its bytes are there, or it is forgotten.
func (c *Cache) finish(ch *chunk, err error) {
	ch.moveTo(nil)
	ch.err = err
	close(ch.done)
	switch {
	case err == nil:
		c.stats.Fetched += int64(ch.n)
	case !errors.Is(err, errNotFetched):
		c.stats.FetchErrors++
	}
	if err != nil {
		c.forget(ch)
	}
	c.unpin(ch)
}
