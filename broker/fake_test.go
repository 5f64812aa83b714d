package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/partition"
)

// fakePart is a partition in memory that a test can hold up and break.
type fakePart struct {
	mu       sync.Mutex
	batches  []fakeBatch
	start    int64
	local    int64
	tiered   int64
	durable  int64
	next     int64
	epoch    int32
	epochs   []epochEnd
	closed   bool
	manual   bool // durability comes by settle
	changed  chan struct{}
	watching map[*partition.Waiter]int32

	limits                                     batch.Limits
	appendTime                                 bool
	appendErr, writtenErr, durableErr, findErr error
	readErr                                    error
	throttle                                   time.Duration
	coldGate                                   chan struct{} // cold reads wait for it
	reads, coldReads                           atomic.Int64
	open                                       atomic.Int64 // batches read and not released
}

type fakeBatch struct {
	base, last int64
	b          []byte
}

type epochEnd struct {
	epoch int32
	end   int64
}

func newFakePart() *fakePart {
	return &fakePart{epoch: 5, changed: make(chan struct{}), watching: map[*partition.Waiter]int32{}}
}

func (p *fakePart) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
	for w, t := range p.watching {
		w.Notify(t)
	}
}

// set changes the partition under its lock and wakes everybody.
func (p *fakePart) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.wake()
}

func (p *fakePart) close() { p.set(func() { p.closed = true }) }

// settle makes everything durable.
func (p *fakePart) settle() { p.set(func() { p.durable = p.next }) }

// write appends as a producer would and makes it durable.
func (p *fakePart) write(b []byte) int64 {
	a, err := p.Append(b, partition.AppendOptions{Epoch: -1, Now: time.Now().UnixMilli()})
	if err != nil {
		panic(err)
	}
	p.settle()
	return a.BaseOffset
}

func (p *fakePart) Append(b []byte, o partition.AppendOptions) (partition.Ack, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.appendErr != nil {
		return partition.Ack{}, p.appendErr
	}
	if p.closed {
		return partition.Ack{}, partition.ErrNotOwner
	}
	h, err := batch.Validate(b, p.limits)
	if err != nil {
		return partition.Ack{}, err
	}
	a := partition.Ack{AppendTime: -1, LogStart: p.start, Throttle: p.throttle, BaseOffset: p.next}
	if p.appendTime {
		batch.StampAppendTime(b, o.Now)
		a.AppendTime = o.Now
	}
	batch.Stamp(b, p.next, p.epoch)
	p.next += int64(h.RecordCount)
	a.LastOffset = p.next - 1
	p.batches = append(p.batches, fakeBatch{a.BaseOffset, a.LastOffset, append([]byte(nil), b...)})
	if !p.manual {
		p.durable = p.next
		p.wake()
	}
	return a, nil
}

func (p *fakePart) Writing() (int32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch, !p.closed
}

func (p *fakePart) Written(*partition.Ack) error { return p.writtenErr }

func (p *fakePart) DurableBy(ctx context.Context, a *partition.Ack, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return p.Durable(ctx, a)
}

func (p *fakePart) Durable(ctx context.Context, a *partition.Ack) error {
	for {
		p.mu.Lock()
		done, err, changed := p.durable > a.LastOffset, p.durableErr, p.changed
		p.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *fakePart) Offsets() partition.Offsets {
	p.mu.Lock()
	defer p.mu.Unlock()
	return partition.Offsets{Start: p.start, LocalStart: max(p.local, p.start), Tiered: p.tiered, Durable: p.durable, End: p.next, Epoch: p.epoch}
}

func (p *fakePart) CheckEpoch(e int32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return partition.ErrNotOwner
	case e >= 0 && e < p.epoch:
		return partition.ErrFencedEpoch
	case e > p.epoch:
		return partition.ErrUnknownEpoch
	}
	return nil
}

func (p *fakePart) Locate(offset int64) partition.Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case offset < p.start || offset > p.durable:
		return partition.OutOfRange
	case offset == p.durable:
		return partition.Tail
	case offset < p.local:
		return partition.Cold
	}
	return partition.Hot
}

func (p *fakePart) Read(ctx context.Context, r partition.ReadRequest) (partition.Batches, error) {
	p.reads.Add(1)
	p.mu.Lock()
	gate, cold := p.coldGate, r.Offset < p.local
	p.mu.Unlock()
	if cold {
		p.coldReads.Add(1)
		if gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
				return partition.Batches{}, ctx.Err()
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readErr != nil {
		return partition.Batches{}, p.readErr
	}
	var out [][]byte
	n, next := 0, r.Offset
	for _, b := range p.batches {
		if b.last < r.Offset || b.base >= p.durable || cold && b.base >= p.local {
			continue
		}
		if n+len(b.b) > r.MaxBytes && !(r.AtLeastOne && n == 0) {
			break
		}
		out, n, next = append(out, b.b), n+len(b.b), b.last+1
	}
	p.open.Add(1)
	return partition.NewBatches(out, n, next, func() { p.open.Add(-1) }), nil
}

func (p *fakePart) Watch(w *partition.Waiter, token int32, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watching[w] = token
	if p.durable > offset || p.closed {
		w.Notify(token)
	}
}

func (p *fakePart) Unwatch(w *partition.Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.watching, w)
}

func (p *fakePart) find(ok func(r *batch.Record) bool) (partition.TimeResult, error) {
	if p.findErr != nil {
		return partition.TimeResult{}, p.findErr
	}
	out := partition.TimeResult{Offset: -1, Timestamp: -1, Epoch: -1}
	for _, b := range p.batches {
		err := batch.Iterate(b.b, func(r *batch.Record) bool {
			if r.Offset >= p.start && r.Offset < p.durable && ok(r) {
				out = partition.TimeResult{Offset: r.Offset, Timestamp: r.Timestamp, Epoch: p.epoch, Found: true}
				return false
			}
			return true
		})
		if err != nil || out.Found {
			return out, err
		}
	}
	return out, nil
}

func (p *fakePart) OffsetForTime(_ context.Context, ts int64) (partition.TimeResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.find(func(r *batch.Record) bool { return r.Timestamp >= ts })
}

func (p *fakePart) MaxTimestamp(context.Context) (partition.TimeResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	top := int64(-1)
	if _, err := p.find(func(r *batch.Record) bool { top = max(top, r.Timestamp); return false }); err != nil {
		return partition.TimeResult{}, err
	}
	return p.find(func(r *batch.Record) bool { return r.Timestamp == top })
}

func (p *fakePart) EpochEnd(epoch int32) (int32, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch == p.epoch {
		return epoch, p.durable
	}
	for i := len(p.epochs) - 1; i >= 0; i-- {
		if p.epochs[i].epoch <= epoch {
			return p.epochs[i].epoch, p.epochs[i].end
		}
	}
	return -1, -1
}

func (p *fakePart) EpochAt(int64) int32 { return p.epoch }

func (p *fakePart) DeleteRecords(_ context.Context, before int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start = max(p.start, before)
	return p.start, p.findErr
}

func (p *fakePart) Stats() partition.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := int64(0)
	for _, b := range p.batches {
		n += int64(len(b.b))
	}
	return partition.Stats{LocalBytes: n}
}
