package cache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Defaults of Options.
const (
	DefaultChunkBytes   = 4 << 20
	DefaultBytes        = 256 << 20
	DefaultWorkers      = 16
	DefaultMaxReadAhead = 8
	DefaultFetchTimeout = 25 * time.Second
)

// Options configure a Cache. Zero values mean the defaults.
type Options struct {
	Bucket       bucket.Bucket
	Bytes        int64         // budget of all memory, at least one chunk
	ChunkBytes   int           // power of two, 16 KiB or more
	Workers      int           // GETs at a time
	MaxReadAhead int           // chunks ahead of a sequential reader; negative: none
	FetchTimeout time.Duration // of one GET, retries of the bucket included; shorter than a Kafka client's request timeout
}

// ErrClosed is returned by reads of a closed cache.
var ErrClosed = errors.New("cache is closed")

// Cache is safe for concurrent use.
type Cache struct {
	o      Options
	slabs  memory
	policy *policy
	ctx    context.Context // of all GETs
	cancel context.CancelFunc
	wg     sync.WaitGroup // workers
	reads  sync.WaitGroup // Reads under way

	mu        sync.Mutex
	work      sync.Cond // demand or ahead is not empty, or closed
	closed    bool
	objects   map[string]*object
	serial    uint64    // of the newest chunk
	used      int64     // slabs of all chunks that have not been freed
	pinned    int64     // of these, slabs of chunks with pins
	unread    int64     // of these, slabs of chunks that were read ahead and not yet asked for
	demand    list.List // of *chunk: to be fetched for a reader
	ahead     list.List // of *chunk: to be fetched ahead
	running   int       // GETs under way
	probation list.List // of *chunk: resident, unpinned, first to go; at the front what a sequential reader has left behind
	protected list.List // of *chunk: resident, unpinned, kept by the policy
	fresh     list.List // of *chunk: resident, unpinned, read ahead and not yet asked for, or where a sequential reader stands: last to go
	waiters   list.List // of *waiter
	ghosts    []*chunk  // evicted for room though the policy counts them; a worker tells it
	stats     Stats
}

// New starts a cache. It panics on options that no configuration can produce: no bucket, or chunks of no power of two.
func New(o Options) *Cache {
	return newCache(o, nil)
}

func newCache(o Options, m memory) *Cache {
	o = o.withDefaults()
	c := &Cache{o: o, objects: map[string]*object{}, slabs: m}
	if c.slabs == nil {
		c.slabs = newSlabPool(o.Bytes)
	}
	c.work.L = &c.mu
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.policy = newPolicy(o.Bytes, int64(o.ChunkBytes), c.demote)
	for range o.Workers {
		c.wg.Go(c.worker)
	}
	return c
}

func (o Options) withDefaults() Options {
	if o.Bucket == nil {
		panic("cache: no bucket")
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = DefaultChunkBytes
	}
	if o.ChunkBytes < minSlab || o.ChunkBytes&(o.ChunkBytes-1) != 0 {
		panic(fmt.Sprintf("cache: chunks of %d bytes", o.ChunkBytes))
	}
	if o.Bytes == 0 {
		o.Bytes = DefaultBytes
	}
	o.Bytes = max(o.Bytes, int64(o.ChunkBytes))
	if o.Workers <= 0 {
		o.Workers = DefaultWorkers
	}
	if o.MaxReadAhead == 0 {
		o.MaxReadAhead = DefaultMaxReadAhead
	}
	if o.FetchTimeout <= 0 {
		o.FetchTimeout = DefaultFetchTimeout
	}
	return o
}

// ChunkBytes is the size of chunks: an object of no more bytes is fetched by one GET.
func (c *Cache) ChunkBytes() int { return c.o.ChunkBytes }

// Slices are the bytes of a Read: pieces of shared chunks, to be read only, until Release.
type Slices struct {
	Bufs [][]byte
	pins *pins
}

// pins are the chunks that a Read holds.
type pins struct {
	c      *Cache
	once   sync.Once
	chunks []*chunk
}

// Len is the number of bytes.
func (s Slices) Len() int {
	n := 0
	for _, b := range s.Bufs {
		n += len(b)
	}
	return n
}

// Release gives the bytes back: nobody may touch Bufs afterwards. Further calls do nothing.
func (s Slices) Release() {
	if s.pins != nil {
		s.pins.once.Do(func() { s.pins.c.release(s.pins.chunks) })
	}
}

// Read returns the bytes [off, off+n) of the immutable object key, whose size the caller knows. It waits for memory and for
// GETs until ctx ends; both go on without it. Errors are the bucket's; ErrRange if the range is not inside size, ErrCorrupt if
// the object has another size. The caller must Release what it got.
func (c *Cache) Read(ctx context.Context, op bucket.Op, key string, size, off, n int64) (Slices, error) {
	if off < 0 || n < 0 || off > size || n > size-off {
		return Slices{}, bucket.NewError("read", key, bucket.ErrRange, fmt.Errorf("bytes %d to %d of an object of %d bytes", off, off+n, size))
	}
	if n == 0 {
		return Slices{}, nil
	}
	if !c.enter() {
		return Slices{}, bucket.NewError("read", key, bucket.ErrUnavailable, ErrClosed)
	}
	defer c.reads.Done()
	r := &request{op: op, key: key, size: size, first: off / int64(c.o.ChunkBytes), last: (off + n - 1) / int64(c.o.ChunkBytes)}
	if err := c.acquire(ctx, r); err != nil {
		return Slices{}, bucket.NewError("read", key, bucket.ErrUnavailable, err)
	}
	for _, ch := range r.chunks {
		if err := ch.wait(ctx); err != nil {
			c.release(r.chunks)
			var known *bucket.Error
			if !errors.As(err, &known) {
				err = bucket.NewError("read", key, bucket.ErrUnavailable, err)
			}
			return Slices{}, err
		}
	}
	s := Slices{Bufs: make([][]byte, 0, len(r.chunks)), pins: &pins{c: c, chunks: r.chunks}}
	for _, ch := range r.chunks {
		start := max(off-ch.off, 0)
		s.Bufs = append(s.Bufs, ch.data[start:min(off+n-ch.off, int64(len(ch.data)))])
		c.policy.touch(ch)
	}
	c.readAhead(r, off, off+n)
	return s, nil
}

// enter counts a Read, unless the cache is closed.
func (c *Cache) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.reads.Add(1)
	}
	return !c.closed
}

// Prefetch begins to fetch the chunks of [off, off+n) that are not there, as far as read-ahead has room; it never waits.
func (c *Cache) Prefetch(op bucket.Op, key string, size, off, n int64) {
	if off < 0 || n <= 0 || off >= size {
		return
	}
	n = min(n, size-off)
	chunk := int64(c.o.ChunkBytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prefetch(op, key, size, off/chunk, (off+n-1)/chunk)
}

// Drop forgets the chunks of an object, those being fetched too: the next Read fetches them again. Readers keep what they have.
func (c *Cache) Drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[key]
	if o == nil {
		return
	}
	for _, ch := range o.chunks {
		c.forget(ch)
	}
	c.serve()
}

// Stats are counters since the start, and sizes of the moment.
type Stats struct {
	Hits          int64 // chunks found resident
	Joined        int64 // chunks found in flight
	Misses        int64 // chunks fetched for a reader
	Ahead         int64 // chunks fetched ahead
	AheadUsed     int64 // of these, asked for later
	Fetched       int64 // bytes of all successful GETs
	FetchErrors   int64
	Evictions     int64
	Waits         int64 // reads that waited for memory
	Bytes         int64 // memory of all chunks
	PinnedBytes   int64 // of these, handed out or being fetched
	Chunks        int64 // resident or in flight
	InFlight      int64 // GETs queued and running
	PolicyDropped int64 // chunks that the policy did not take in
}

// Stats returns the statistics.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Bytes, s.PinnedBytes = c.used, c.pinned
	for _, o := range c.objects {
		s.Chunks += int64(len(o.chunks))
	}
	s.InFlight = int64(c.demand.Len() + c.ahead.Len() + c.running)
	return s
}

// Close ends all GETs, waits for the workers, and frees the memory. The error tells how much was not released: that memory is
// freed when it is.
func (c *Cache) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.cancel()
	c.work.Broadcast()
	for e := c.waiters.Front(); e != nil; e = c.waiters.Front() {
		w := c.waiters.Remove(e).(*waiter)
		w.err = ErrClosed
		close(w.ready)
	}
	c.mu.Unlock()
	c.wg.Wait()
	c.policy.close()
	c.mu.Lock()
	for _, l := range []*list.List{&c.demand, &c.ahead} {
		for e := l.Front(); e != nil; e = l.Front() {
			c.finish(e.Value.(*chunk), ErrClosed)
		}
	}
	c.mu.Unlock()
	c.reads.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.objects {
		for _, ch := range o.chunks {
			c.forget(ch)
		}
	}
	err := c.slabs.close()
	if c.used != 0 {
		err = errors.Join(err, fmt.Errorf("cache: %d bytes were read and not released", c.used))
	}
	return err
}
