package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/partition"
)

// run is one life of a machine: under one epoch, from its load to its first failure. All fields but those that say
// otherwise are guarded by the shard's mu.
type run[M Machine] struct {
	s      *shard[M]
	p      Partition
	epoch  int32
	m      M
	ctx    context.Context // ends with the run
	cancel context.CancelFunc

	next  int64    // offset of the next batch
	queue []*entry // steps whose Done is still to be called, in order
	busy  bool     // the loop is calling a Done
	held  []*entry // those of queue that are not in the log yet
	dead  error    // why the run has ended
	lost  error    // why an append isn't durable: nothing behind it is answered with success

	heldBytes int64
	builder   *batch.Builder
	kick      chan struct{}
	timer     *time.Timer // for the machine's deadline
	armed     time.Time   // what timer is set to; zero when it is not
	retry     *time.Timer // for held

	since     int64 // bytes of the log behind the begin of the last snapshot
	lastSnap  int64 // size of that snapshot
	inSnap    bool  // a snapshot is being appended: everything else is held
	snapping  bool  // a snapshot is under way, or what it replaces is being removed
	snapAfter time.Time
	snapshots sync.WaitGroup
}

// entry is a step on its way.
type entry struct {
	batch    []byte // nil without records
	appended bool
	ack      partition.Ack
	done     func(error)
	now      bool // finish calls Done
	direct   bool // take has appended it: finish writes it
}

func newRun[M Machine](s *shard[M], p Partition, epoch int32) *run[M] {
	r := &run[M]{s: s, p: p, epoch: epoch, m: s.j.o.New(s.index), kick: make(chan struct{}, 1),
		builder: batch.NewBuilder(batch.None, batch.BuilderOptions{})}
	r.ctx, r.cancel = context.WithCancel(s.j.ctx)
	r.timer, r.retry = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	r.timer.Stop()
	r.retry.Stop()
	return r
}

func (r *run[M]) owned() bool {
	epoch, ok := r.p.Writing()
	return ok && epoch == r.epoch
}

// fail ends the run. The caller holds mu.
func (r *run[M]) fail(err error) {
	if r.dead == nil {
		r.dead = err
	}
	r.wakeUp()
}

func (r *run[M]) wakeUp() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// compressFrom is the size from which a batch is compressed: a large group's metadata is mostly repetition.
const compressFrom = 32 << 10

// take puts a step in line and appends its records. The caller holds mu and calls finish without it.
func (r *run[M]) take(st Step) *entry {
	e := &entry{done: st.Done}
	records := st.Records
	for n := atOnce(records); n < len(records); n = atOnce(records) {
		r.enqueue(&entry{batch: r.build(records[:n])})
		records = records[n:]
	}
	if len(records) > 0 {
		e.batch = r.build(records)
	}
	if e.batch == nil && len(r.queue) == 0 && !r.busy {
		e.now = true
	} else {
		r.enqueue(e)
	}
	r.arm()
	return e
}

// maxBatchBytes is the size from which a step is cut into several batches: what a topic takes is limited, and steps that
// delete have no limit.
const maxBatchBytes = 16 << 20

// atOnce returns how many of the records go into the next batch, at least one.
func atOnce(records []Record) int {
	size := 0
	for i := range records {
		size += len(records[i].Key) + len(records[i].Value) + 16
		if size > maxBatchBytes && i > 0 {
			return i
		}
	}
	return len(records)
}

// enqueue puts an entry in line and appends its batch, if it has one. The caller holds mu.
func (r *run[M]) enqueue(e *entry) {
	r.queue = append(r.queue, e)
	if e.batch == nil {
		return
	}
	if r.inSnap || len(r.held) > 0 || !r.append(e) {
		r.held = append(r.held, e)
		r.heldBytes += int64(len(e.batch))
	} else {
		e.direct = true
	}
	r.wakeUp()
}

func (r *run[M]) build(records []Record) []byte {
	now := r.s.j.o.Now().UnixMilli()
	b := r.builder
	b.Reset()
	for i := range records {
		b.Add(now, records[i].Key, records[i].Value, nil)
	}
	if b.Len() < compressFrom {
		return b.Bytes()
	}
	b = batch.NewBuilder(batch.Zstd, batch.BuilderOptions{})
	for i := range records {
		b.Add(now, records[i].Key, records[i].Value, nil)
	}
	r.builder = batch.NewBuilder(batch.None, batch.BuilderOptions{}) // not the large buffer for ever
	return b.Bytes()
}

// append gives a batch to the log. False means that the log takes nothing now, and that the batch isn't in it. The
// caller holds mu.
func (r *run[M]) append(e *entry) bool {
	if r.dead != nil {
		return false
	}
	ack, err := r.p.Append(e.batch, partition.AppendOptions{Epoch: r.epoch, Now: r.s.j.o.Now().UnixMilli(), Exact: true, Base: r.next})
	if err != nil {
		if errors.Is(err, partition.ErrStorage) {
			r.retry.Reset(r.s.j.o.RetryMin)
			return false
		}
		r.fail(fmt.Errorf("append: %w", err))
		return false
	}
	e.appended, e.ack = true, ack
	r.next = ack.LastOffset + 1
	r.since += int64(len(e.batch))
	return true
}

// finish does what take left for when mu is free.
func (r *run[M]) finish(e *entry) {
	if e.now {
		if e.done != nil {
			e.done(nil)
		}
		return
	}
	if e.direct {
		r.written(&e.ack)
	}
	r.wakeUp()
}

func (r *run[M]) written(a *partition.Ack) {
	if err := r.p.Written(a); err != nil {
		r.s.mu.Lock()
		r.fail(fmt.Errorf("write: %w", err))
		r.s.mu.Unlock()
	}
}

// drain appends what was held, as far as the log takes it.
func (r *run[M]) drain() {
	r.s.mu.Lock()
	last := r.appendHeld()
	r.s.mu.Unlock()
	if last != nil {
		r.written(&last.ack)
	}
}

// appendHeld returns the last entry that it appended, nil for none. The caller holds mu.
func (r *run[M]) appendHeld() (last *entry) {
	if r.inSnap {
		return nil
	}
	for len(r.held) > 0 && r.append(r.held[0]) {
		last = r.held[0]
		r.heldBytes -= int64(len(last.batch))
		r.held[0] = nil
		r.held = r.held[1:]
	}
	if len(r.held) == 0 {
		r.held = nil
	}
	return last
}

// release calls the Done of every step whose turn has come. Only the loop calls it.
func (r *run[M]) release() {
	for {
		r.s.mu.Lock()
		if len(r.queue) == 0 {
			r.queue, r.busy = nil, false
			r.s.mu.Unlock()
			return
		}
		e, dead := r.queue[0], r.dead
		if e.batch != nil && !e.appended && dead == nil {
			r.busy = false
			r.s.mu.Unlock()
			return
		}
		r.queue[0] = nil
		r.queue = r.queue[1:]
		r.busy = true
		r.s.mu.Unlock()
		err := dead
		if e.appended {
			// What was appended before the run ended may well be durable.
			err = r.await(&e.ack)
		}
		if e.done != nil {
			e.done(outcome(err))
		}
	}
}

// await returns nil when an append is durable. After an error nothing behind it is answered with success: what
// follows was built on it.
func (r *run[M]) await(a *partition.Ack) error {
	r.s.mu.Lock()
	lost := r.lost
	r.s.mu.Unlock()
	if lost != nil {
		return lost
	}
	err := r.p.Durable(r.s.j.ctx, a)
	if err != nil {
		err = fmt.Errorf("wait until durable: %w", err)
		r.s.mu.Lock()
		r.lost = err
		r.fail(err)
		r.s.mu.Unlock()
	}
	return err
}

// arm sets the timer to the machine's deadline. The caller holds mu.
func (r *run[M]) arm() {
	at, ok := r.m.Deadline()
	if !ok {
		if !r.armed.IsZero() {
			r.armed = time.Time{}
			r.timer.Stop()
		}
		return
	}
	if at.Equal(r.armed) {
		return
	}
	r.armed = at
	r.timer.Reset(min(max(at.Sub(r.s.j.o.Now()), time.Millisecond), time.Hour))
}

// expire lets the machine do what is due. While the log takes nothing, nothing expires.
func (r *run[M]) expire() {
	r.s.mu.Lock()
	r.armed = time.Time{}
	if r.dead != nil {
		r.s.mu.Unlock()
		return
	}
	if !r.due() {
		r.arm()
		r.s.mu.Unlock()
		return
	}
	if r.heldBytes > r.s.j.o.MaxHeldBytes {
		r.timer.Reset(r.s.j.o.RetryMin)
		r.s.mu.Unlock()
		return
	}
	e := r.take(r.m.Expire(r.s.j.o.Now()))
	r.s.mu.Unlock()
	r.finish(e)
}

// due says whether the machine's deadline has come; the timer goes off at least once an hour.
func (r *run[M]) due() bool {
	at, ok := r.m.Deadline()
	return ok && !at.After(r.s.j.o.Now())
}
