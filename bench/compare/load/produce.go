package load

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// share lists what one of n workers has: partitions are dealt out in turn; with fewer of them than workers, several work on one.
func share(i, n, partitions int) []int32 {
	var list []int32
	for p := i % partitions; p < partitions; p += n {
		list = append(list, int32(p))
	}
	return list
}

// producers makes the producers, and returns what each does.
func (r *run) producers() ([]func(context.Context) error, error) {
	var work []func(context.Context) error
	for i := range r.Produce.Producers {
		p, err := r.driver.Producer(r.Topic, r.Produce.Options)
		if err != nil {
			return nil, err
		}
		one := &producer{run: r, Producer: p, index: i, partitions: share(i, r.Produce.Producers, r.Topic.Partitions)}
		loop := one.closed
		switch {
		case r.Produce.Premade:
			loop = one.premade
		case r.Produce.Rate > 0:
			loop = one.open
			r.due += one.plan()
		}
		work = append(work, func(ctx context.Context) error { return errors.Join(loop(ctx), p.Close()) })
	}
	return work, nil
}

// producer is one of the job's producers.
type producer struct {
	*run
	Producer
	index      int
	partitions []int32
	spare      sync.Pool // of *timed

	// The plan of an open loop: record i is due at begin + (i - before) * every, a little later for each further producer.
	every          float64 // nanoseconds
	before, during int64   // records due before the window, and in it
}

// partition gives the n-th record's. A closed loop stays with one for a while, as partitioners of producers do.
func (p *producer) partition(n int64) int32 {
	return p.partitions[n/int64(max(1, p.Produce.Run))%int64(len(p.partitions))]
}

// filler is what records hold: nothing that compresses.
func filler(n int) []byte {
	b := make([]byte, n)
	rnd := rand.NewChaCha8([32]byte{})
	_, _ = rnd.Read(b) // never fails
	clear(b[:stampBytes])
	return b
}

// sampled is how many records of a closed loop there are for each whose time is taken.
const sampled = 32

// closed sends as fast as the producer lets.
func (p *producer) closed(ctx context.Context) error {
	value, size := filler(p.Produce.Record), int64(p.Produce.Record)
	most := int64(-1)
	if p.Produce.Bytes > 0 {
		n := int64(p.Produce.Producers)
		most = (p.Produce.Bytes/size + n - 1 - int64(p.index)) / n
	}
	answered := make(chan struct{}, 1)
	done := func(err error) {
		if err != nil {
			p.failed(ctx, err)
		} else {
			p.produced.add(1, size)
		}
		if p.Produce.OneInFlight {
			answered <- struct{}{}
		}
	}
	for n := int64(0); n != most && ctx.Err() == nil; n++ {
		each := done
		if p.Produce.OneInFlight || n%sampled == 0 {
			sent := p.clock.now()
			each = func(err error) {
				if now := p.clock.now(); err == nil && p.inWindow(sent) && p.inWindow(now) {
					p.ack.Record(time.Duration(now-sent), 1)
				}
				done(err)
			}
		}
		p.Send(ctx, p.partition(n), value, each)
		if p.Produce.OneInFlight {
			select {
			case <-answered:
			case <-ctx.Done():
			}
		}
	}
	if ctx.Err() != nil || most < 0 {
		return nil
	}
	return p.Flush(ctx)
}

func (p *producer) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		p.fail(err)
	}
}

// plan lays out an open loop and tells how many records are due in the window.
func (p *producer) plan() int64 {
	p.every = float64(time.Second) * float64(p.Produce.Producers) / p.Produce.Rate
	p.before, p.during = int64(float64(p.Warm)/p.every), int64(float64(p.Job.Run)/p.every)
	return p.during
}

func (p *producer) dueAt(i int64) int64 {
	late := float64(p.index) / float64(p.Produce.Producers)
	return p.begin.Load() + int64((float64(i-p.before)+late)*p.every)
}

// open sends each record when it is due, or as soon as it can after that. A record's time counts from when it was due, whatever held it up.
func (p *producer) open(ctx context.Context) error {
	for i := range p.before + p.during {
		due := p.dueAt(i)
		if p.clock.now() < due && sleep(ctx, p.clock, due) != nil {
			return nil
		}
		t, _ := p.spare.Get().(*timed)
		if t == nil {
			t = p.timed(ctx)
		}
		t.due, t.measured = due, i >= p.before
		binary.LittleEndian.PutUint64(t.value, uint64(due))
		p.Send(ctx, p.partition(i), t.value, t.done)
		if ctx.Err() != nil {
			return nil
		}
	}
	return p.Flush(ctx)
}

// timed is a record of an open loop, used again and again.
type timed struct {
	value    []byte
	due      int64
	measured bool
	done     func(error)
}

func (p *producer) timed(ctx context.Context) *timed {
	t := &timed{value: filler(p.Produce.Record)}
	t.done = func(err error) {
		if err != nil {
			p.failed(ctx, err)
			return
		}
		p.produced.add(1, int64(len(t.value)))
		if t.measured {
			p.ack.Record(time.Duration(p.clock.now()-t.due), 1)
			p.acked.Add(1)
		}
		p.spare.Put(t)
	}
	return t
}
