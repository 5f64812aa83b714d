package broker

import (
	"context"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/partition"
)

// coldQueue is how many reads may wait for a cold worker. A fetch that finds the queue full leaves its partition for
// the next time.
const coldQueue = 4096

// coldPool reads from the bucket for fetches on a fixed number of goroutines, so that a replay takes neither the
// goroutines of other connections nor more than its share of the bucket's bandwidth.
type coldPool struct {
	ctx     context.Context
	timeout time.Duration
	queue   chan *coldRead
	workers sync.WaitGroup
}

func newColdPool(ctx context.Context, workers int, timeout time.Duration) *coldPool {
	c := &coldPool{ctx: ctx, timeout: timeout, queue: make(chan *coldRead, coldQueue)}
	for range workers {
		c.workers.Go(c.work)
	}
	return c
}

// close waits for the workers; the pool's context must have ended.
func (c *coldPool) close() { c.workers.Wait() }

// start queues a read and returns nil when the queue is full. wake gets a value when the read is done.
func (c *coldPool) start(p Partition, req partition.ReadRequest, wake chan<- struct{}) *coldRead {
	r := &coldRead{p: p, req: req, wake: wake}
	select {
	case c.queue <- r:
		return r
	default:
		return nil
	}
}

func (c *coldPool) work() {
	for {
		select {
		case r := <-c.queue:
			r.run(c.ctx, c.timeout)
		case <-c.ctx.Done():
			return
		}
	}
}

// coldRead is one read under way. Whoever started it must take or abandon it.
type coldRead struct {
	p    Partition
	req  partition.ReadRequest
	wake chan<- struct{}

	mu        sync.Mutex
	done      bool
	abandoned bool
	out       partition.Batches
	err       error
}

// run reads with a deadline of its own: the fetch may be answered meanwhile, and the chunks it asked for will be in
// the cache when the client asks again.
func (r *coldRead) run(ctx context.Context, timeout time.Duration) {
	r.mu.Lock()
	skip := r.abandoned
	r.mu.Unlock()
	if skip {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := r.p.Read(ctx, r.req)
	r.mu.Lock()
	abandoned := r.abandoned
	if !abandoned {
		r.done, r.out, r.err = true, out, err
	}
	r.mu.Unlock()
	if abandoned {
		out.Release()
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take hands the result over, once; false while the read is under way.
func (r *coldRead) take() (out partition.Batches, err error, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.done {
		return out, nil, false
	}
	out, err = r.out, r.err
	r.out, r.abandoned = partition.Batches{}, true
	return out, err, true
}

// abandon gives the result up, now or when it comes.
func (r *coldRead) abandon() {
	r.mu.Lock()
	out := r.out
	r.abandoned, r.out = true, partition.Batches{}
	r.mu.Unlock()
	out.Release()
}
