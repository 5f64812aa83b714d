package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// stream uploads what object partitions have stored, in the order in which it was stored, as numbered objects that hold
// batches of many partitions each. One goroutine makes and sends the objects, another follows their acknowledgements,
// which come in order.
type stream struct {
	s    *Set
	o    wal.Options
	wake chan struct{}

	mu      sync.Mutex
	queue   []upload
	queued  int64 // bytes in queue
	pending int64 // bytes in queue and under way
	opened  chan struct{}
	writer  *wal.Writer

	// live counts, by number, the parts of objects that heads don't cover yet; below the lowest of them nothing matters.
	live map[uint64]*liveObject

	flights chan flight
}

// upload is one batch on its way into the stream.
type upload struct {
	p       *Partition
	epoch   int32
	entry   index.Entry
	counted bool // as pending: it was durable before it came here
}

// flight is one object under way.
type flight struct {
	u     *wal.Upload
	parts []streamed
	bytes int64
}

// streamed is what an object holds of one partition.
type streamed struct {
	p     *Partition
	to    int64
	bytes int64 // that aren't counted as pending yet
	since int64 // append time of the first batch, ms
}

// maxStreamBacklog bounds the bytes that wait for the bucket: beyond it object partitions take no more.
const maxStreamBacklog = 256 << 20

func newStream(s *Set, o wal.Options) *stream {
	return &stream{s: s, o: o, wake: make(chan struct{}, 1), live: map[uint64]*liveObject{}, flights: make(chan flight, 16)}
}

// admit refuses a batch while the bucket is too far behind.
func (st *stream) admit() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.pending > maxStreamBacklog {
		return fmt.Errorf("%w: %d MiB wait for the bucket", ErrStorage, st.pending>>20)
	}
	return nil
}

// push queues a stored batch. The caller holds p.mu.
func (st *stream) push(p *Partition, e *index.Entry, counted bool) {
	st.mu.Lock()
	st.queue = append(st.queue, upload{p, e.Epoch, *e, counted})
	st.queued += int64(e.Length)
	st.pending += int64(e.Length)
	first, full := len(st.queue) == 1, st.queued >= st.s.o.StreamBytes
	st.mu.Unlock()
	if first || full {
		st.kick()
	}
}

func (st *stream) kick() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// open returns the stream's writer, and begins the stream at its first use: a broker without object partitions writes
// nothing.
func (st *stream) open(ctx context.Context) (*wal.Writer, error) {
	for {
		st.mu.Lock()
		w, opening := st.writer, st.opened
		if w == nil && opening == nil {
			st.opened = make(chan struct{})
		}
		st.mu.Unlock()
		switch {
		case w != nil:
			return w, nil
		case opening == nil:
			return st.begin(ctx)
		}
		select {
		case <-opening:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (st *stream) begin(ctx context.Context) (*wal.Writer, error) {
	w, err := wal.Open(ctx, st.o)
	st.mu.Lock()
	st.writer = w
	if err != nil {
		st.writer = nil
	}
	close(st.opened)
	st.opened = nil
	st.mu.Unlock()
	if errors.Is(err, wal.ErrSealed) {
		st.s.fence(err)
	}
	return w, bucketError(err)
}

// ID names the stream.
func (st *stream) ID() wal.StreamID { return st.o.Stream }

// inHead is how a head names the stream: since an epoch of the partition, and from a number on.
func (st *stream) inHead(epoch int32, from uint64) *tier.PendingStream {
	return &tier.PendingStream{Broker: st.o.Stream.Broker, Incarnation: st.o.Stream.Incarnation, Epoch: epoch, From: int64(from)}
}

// loop makes objects: by size, or by the time that their first batch has waited.
func (st *stream) loop() {
	defer close(st.flights)
	for {
		select {
		case <-st.s.ctx.Done():
			return
		case <-st.wake:
		}
		t := time.NewTimer(st.s.o.StreamInterval)
	wait:
		for !st.full() {
			select {
			case <-st.s.ctx.Done():
				t.Stop()
				return
			case <-st.wake:
			case <-t.C:
				break wait
			}
		}
		t.Stop()
		for us := st.take(); len(us) > 0; us = st.take() {
			if !st.send(us) {
				return
			}
			if !st.full() {
				break
			}
		}
		st.mu.Lock()
		more := len(st.queue) > 0
		st.mu.Unlock()
		if more {
			st.kick()
		}
	}
}

func (st *stream) full() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.queued >= st.s.o.StreamBytes
}

// take returns the batches of the next object.
func (st *stream) take() []upload {
	st.mu.Lock()
	defer st.mu.Unlock()
	n, size := 0, int64(0)
	for n < len(st.queue) && (n == 0 || size+int64(st.queue[n].entry.Length) <= st.s.o.StreamBytes) {
		size += int64(st.queue[n].entry.Length)
		n++
	}
	us := slices.Clone(st.queue[:n])
	st.queue = slices.Delete(st.queue, 0, n)
	st.queued -= size
	return us
}

// send puts one object on its way. It waits while too many are under way.
func (st *stream) send(us []upload) bool {
	w, err := st.open(st.s.ctx)
	for err != nil {
		if st.s.ctx.Err() != nil || st.s.fatal.Load() != nil {
			return false
		}
		select {
		case <-st.s.ctx.Done():
			return false
		case <-time.After(st.s.o.RetryPause):
		}
		w, err = st.open(st.s.ctx)
	}
	b, parts, bytes := st.build(w, us)
	if len(parts) == 0 {
		st.settle(bytes)
		return true
	}
	// Noted under its number before it has it (nobody else puts): in between the sweep would take the floor past it.
	st.note(w.Next(), parts, bytes)
	st.setFloor(w)
	u, err := w.Put(b)
	if err != nil {
		st.dead(err)
		return false
	}
	select {
	case st.flights <- flight{u, parts, bytes}:
		return true
	case <-st.s.ctx.Done():
		return false
	}
}

// build groups batches by partition. What a head covers by now, or nobody serves here any more, is left out.
func (st *stream) build(w *wal.Writer, us []upload) (b *wal.Builder, parts []streamed, bytes int64) {
	slices.SortStableFunc(us, func(a, b upload) int { return a.p.id.Compare(b.p.id) })
	b = w.NewBuilder()
	src := rollSource{log: st.s.log}
	r := logReader{log: st.s.log}
	defer r.close()
	for len(us) > 0 {
		n := 1
		for n < len(us) && us[n].p == us[0].p && us[n].epoch == us[0].epoch && us[n].entry.Base == us[n-1].entry.Last+1 {
			n++
		}
		group := us[:n]
		us = us[n:]
		for i := range group {
			bytes += int64(group[i].entry.Length)
		}
		if pt, ok := st.add(b, &src, &r, group); ok {
			parts = append(parts, pt)
		}
	}
	return b, parts, bytes
}

func (st *stream) add(b *wal.Builder, src *rollSource, r *logReader, group []upload) (streamed, bool) {
	p := group[0].p
	p.mu.Lock()
	from, serving, epoch := max(p.covered(), p.sent), p.serving() || p.state == Recovering, p.epoch
	p.mu.Unlock()
	group = slices.DeleteFunc(group, func(u upload) bool { return u.entry.Last < from })
	if !serving || len(group) == 0 || group[0].entry.Base > from {
		return streamed{}, false // what lies before these was left out when the partition failed: all of it is queued again
	}
	b.Begin(wal.Part{ID: p.id, Topic: p.Topic(), Epoch: epoch})
	pt := streamed{p: p, since: group[0].entry.AppendTime}
	for i := range group {
		e := &group[i].entry
		data, err := src.read(r, e, int(e.Length))
		var h batch.Header
		if err == nil {
			h, err = batch.ParseHeader(data)
		}
		if err == nil {
			err = b.Add(data, &h, e.AppendTime)
		}
		if err != nil {
			p.fail("a stored batch can't be read back for the upload", err)
			break // what follows must not be acknowledged before it
		}
		pt.to = e.Last + 1
		if !group[i].counted {
			pt.bytes += int64(e.Length)
		}
	}
	p.mu.Lock()
	p.sent = max(p.sent, pt.to)
	p.mu.Unlock()
	return pt, pt.to > 0
}

// follow learns what became of the objects, in their order.
func (st *stream) follow() {
	for f := range st.flights {
		select {
		case <-f.u.Done():
		case <-st.s.ctx.Done():
			return
		}
		if err := f.u.Err(); err != nil {
			st.dead(err)
			return
		}
		for _, pt := range f.parts {
			pt.p.uploadedPart(&pt)
		}
		st.settle(f.bytes)
	}
}

// uploadedPart lets be seen what an acknowledged object holds of the partition.
func (p *Partition) uploadedPart(pt *streamed) {
	p.mu.Lock()
	if pt.to > p.tiered && pt.bytes > 0 {
		if p.pending == 0 {
			p.pendingSince = pt.since
		}
		p.pending += pt.bytes
	}
	p.mu.Unlock()
	p.uploadedTo(pt.to)
}

func (st *stream) settle(bytes int64) {
	st.mu.Lock()
	st.pending -= bytes
	st.mu.Unlock()
}

// dead follows an upload that will never be: the stream was sealed by a successor of this broker, or the broker stops.
func (st *stream) dead(err error) {
	if errors.Is(err, wal.ErrSealed) {
		st.s.fence(err)
	}
}

func (st *stream) close(ctx context.Context) error {
	st.mu.Lock()
	w := st.writer
	st.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.Close(ctx)
}

// fence ends this run of the broker: somebody else has taken over for it.
func (s *Set) fence(err error) {
	if s.fatal.Load() != nil || s.closing.Load() {
		return
	}
	err = fmt.Errorf("%w: %w", ErrFencedRun, err)
	if !s.fatal.CompareAndSwap(nil, &err) {
		return
	}
	s.event(Error, nil, "this run of the broker was fenced: another one has sealed its WAL stream", err)
	for _, p := range s.All() {
		p.mu.Lock()
		object := p.object
		p.mu.Unlock()
		if object {
			p.fail("the broker's WAL stream was sealed", err)
		}
	}
}
