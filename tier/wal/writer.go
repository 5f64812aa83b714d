package wal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Options configure a Writer.
type Options struct {
	Bucket             bucket.Bucket // writes, and reads of this stream
	Stream             StreamID
	ClusterID          string
	ClusterIncarnation string
	MaxInFlight        int           // objects that are put and not acknowledged, at most; default 4
	CombineEvery       int           // every so many objects one carries the footers since the floor; default 64
	Now                func() int64  // milliseconds; stamps objects. Default: the wall clock
	RetryMin           time.Duration // first pause between attempts; default 50 ms, doubled each time
	RetryMax           time.Duration // longest pause; default 5 s
}

func (o *Options) setDefaults() {
	setDefault(&o.MaxInFlight, 4)
	setDefault(&o.CombineEvery, 64)
	setDefault(&o.RetryMin, 50*time.Millisecond)
	setDefault(&o.RetryMax, 5*time.Second)
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Writer writes one stream. See the package comment for its states.
type Writer struct {
	o     Options
	op    bucket.Op
	id    attemptID
	slots chan struct{} // one for each object that is put and not acknowledged
	ended chan struct{} // closed when no further Put is taken
	dead  chan struct{} // closed when the stream is found to be sealed
	ctx   context.Context
	stop  context.CancelFunc
	loops sync.WaitGroup

	mu        sync.Mutex
	closing   bool
	next      uint64 // number of the next Put
	acked     uint64 // all numbers below are acknowledged
	deadFrom  uint64 // this number and all above will never be, when deadErr is set
	deadErr   error
	floor     uint64    // as SetFloor wants it
	durable   uint64    // floor that an acknowledged object carries
	swept     uint64    // all numbers below are deleted
	indexed   uint64    // newest number with combined footers, noIndex when there is none
	inFlight  []*Upload // in order; the first one is the number acked
	live      []object  // not swept, in order
	spare     []*Builder
	stats     Stats
	liveBytes int64
}

// object is what the writer remembers of one that is not swept.
type object struct {
	seq    uint64
	size   int64
	footer []byte // nil below the floor
}

// Stats describe a Writer.
type Stats struct {
	Next        uint64 // number of the next object
	Acked       uint64 // all numbers below are acknowledged
	Floor       uint64 // lowest number that may matter, as SetFloor was told
	LiveObjects int    // not swept
	LiveBytes   int64
	InFlight    int           // put, and not acknowledged
	LastLatency time.Duration // of the object that was acknowledged last, from Put on
	Retries     uint64        // attempts that failed
	LastError   string        // of the last attempt that failed, empty after a success
	LastSweep   int64         // milliseconds
	Sealed      bool
}

// Open begins a stream with its opening object. It goes on trying until ctx ends. ErrSealed: somebody else has ended or begun the
// stream, so the run of the broker needs another incarnation. Close the Writer.
func Open(ctx context.Context, o Options) (*Writer, error) {
	o.setDefaults()
	if err := o.Stream.check(); err != nil {
		return nil, err
	}
	if len(o.ClusterID) > maxCluster || len(o.ClusterIncarnation) > maxCluster {
		return nil, fmt.Errorf("open WAL stream %v: cluster id: %w", o.Stream, ErrTooLarge)
	}
	w := &Writer{
		o: o, op: bucket.Op{Class: bucket.ClassWAL, Kind: bucket.KindWAL}, id: newAttempt(),
		slots: make(chan struct{}, o.MaxInFlight), ended: make(chan struct{}), dead: make(chan struct{}), indexed: noIndex,
	}
	w.ctx, w.stop = context.WithCancel(ctx)
	w.slots <- struct{}{}
	u := w.begin(w.NewBuilder())
	defer w.loops.Done()
	_, err := w.send(u, w.compose(u))
	if err == nil {
		err = w.checkFresh(ctx)
	}
	w.stop()
	if err != nil {
		return nil, fmt.Errorf("open WAL stream %v: %w", o.Stream, err)
	}
	w.landed(u)
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w, nil
}

// checkFresh makes sure that nobody has written to the stream before: the opening object of one that was swept could be put again.
func (w *Writer) checkFresh(ctx context.Context) error {
	pause := w.o.RetryMin
	for {
		objects, err := list(ctx, w.o.Bucket, w.op, w.o.Stream, 1)
		if err == nil && len(objects) > 0 {
			return fmt.Errorf("it has object %d already: %w", objects[0].seq, ErrSealed)
		}
		if err == nil {
			return nil
		}
		w.failed(err)
		if serr := sleep(ctx, pause); serr != nil {
			return errors.Join(serr, err)
		}
		pause = min(2*pause, w.o.RetryMax)
	}
}

// NewBuilder returns an empty builder for the next object.
func (w *Writer) NewBuilder() *Builder {
	w.mu.Lock()
	var b *Builder
	if n := len(w.spare); n > 0 {
		b, w.spare = w.spare[n-1], w.spare[:n-1]
	}
	w.mu.Unlock()
	if b == nil {
		b = &Builder{}
	}
	b.reset()
	return b
}

// maxSpare bounds the buffers that are kept for later, maxSpareBytes each.
const (
	maxSpare      = 2
	maxSpareBytes = 16 << 20
)

func (w *Writer) recycle(b *Builder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.spare) < maxSpare && cap(b.buf) <= maxSpareBytes {
		w.spare = append(w.spare, b)
	}
}

// Upload is an object on its way.
type Upload struct {
	Seq uint64 // its number

	b         *Builder
	h         header
	index     []numbered // footers to combine, nil for none
	lastIndex uint64
	started   time.Time
	ctx       context.Context // ends with the Writer, and when the number is lost
	stop      context.CancelFunc
	landed    bool
	done      chan struct{}
	err       error
}

// Done is closed when this object and all before it are in the bucket, or never will be: see Err.
func (u *Upload) Done() <-chan struct{} { return u.done }

// Err is nil when the object is acknowledged. It may be asked once Done is closed. ErrSealed: what the object holds was never
// acknowledged and must not be. Any other error: Close ended the wait; what the object holds may be found by a successor.
func (u *Upload) Err() error { return u.err }

// Put starts the upload of the next number and returns at once, unless MaxInFlight objects are not acknowledged: then it waits for the
// oldest of them. An empty builder makes an object that only carries the floor. The builder is the Writer's from now on. ErrSealed,
// ErrClosed.
func (w *Writer) Put(b *Builder) (*Upload, error) {
	select {
	case w.slots <- struct{}{}:
	case <-w.dead:
		return nil, w.putError()
	case <-w.ended:
		return nil, w.putError()
	case <-w.ctx.Done():
		return nil, w.putError()
	}
	u := w.begin(b)
	if u == nil {
		<-w.slots
		return nil, w.putError()
	}
	go w.run(u)
	return u, nil
}

func (w *Writer) putError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.deadErr
	if err == nil {
		err = ErrClosed
	}
	return fmt.Errorf("put object %d of WAL stream %v: %w", w.next, w.o.Stream, err)
}

// begin gives the builder the next number and what has to be known in its order. nil: nothing may be put any more.
func (w *Writer) begin(b *Builder) *Upload {
	b.endPart()
	u := &Upload{b: b, started: time.Now(), done: make(chan struct{})}
	f := footer{
		created: w.o.Now(), cluster: w.o.ClusterID, clusterIncarnation: w.o.ClusterIncarnation, incarnation: w.o.Stream.Incarnation,
		end: int64(len(b.buf)), count: b.count, parts: b.parts,
	}
	encoded := f.append(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing || w.deadErr != nil {
		return nil
	}
	u.ctx, u.stop = context.WithCancel(w.ctx)
	u.Seq = w.next
	w.next++
	u.h = header{
		broker: w.o.Stream.Broker, stream: checksum([]byte(w.o.Stream.Incarnation)), seq: u.Seq,
		floor: w.carried(), acked: w.acked, writer: w.id, attempt: newAttempt(),
	}
	u.lastIndex = w.indexed
	w.forgetFooters(u.h.floor)
	if u.Seq%uint64(w.o.CombineEvery) == 0 && u.Seq > 0 {
		u.index = make([]numbered, 0, len(w.live))
		for _, o := range w.live {
			if o.footer != nil {
				u.index = append(u.index, numbered{seq: o.seq, footer: o.footer})
			}
		}
		w.indexed = u.Seq
	}
	w.live = append(w.live, object{seq: u.Seq, footer: encoded})
	w.inFlight = append(w.inFlight, u)
	w.loops.Add(1)
	return u
}

// carried is the floor that the next object may carry: never above the newest acknowledged object.
func (w *Writer) carried() uint64 {
	if w.acked == 0 {
		return 0
	}
	return min(w.floor, w.acked-1)
}

// forgetFooters drops footers that no combined footers need any more.
func (w *Writer) forgetFooters(floor uint64) {
	for i := range w.live {
		if w.live[i].seq >= floor {
			return
		}
		w.live[i].footer = nil
	}
}

// compose completes the object's bytes, which don't change from then on.
func (w *Writer) compose(u *Upload) []byte {
	b := u.b
	w.mu.Lock()
	i := w.find(u.Seq)
	encoded := w.live[i].footer
	w.mu.Unlock()
	u.h.put(b.buf)
	t := trailer{combinedOff: int64(len(b.buf)), seq: u.Seq, lastIndex: u.lastIndex}
	if u.index != nil {
		if buf, ok := appendCombined(b.buf, u.index); ok {
			b.buf = buf
		}
		u.index = nil
	}
	t.footerOff = int64(len(b.buf))
	t.combinedCRC = checksum(b.buf[t.combinedOff:])
	t.footerCRC = checksum(encoded)
	t.size = t.footerOff + int64(len(encoded)) + trailerLen
	b.buf = append(b.buf, encoded...)
	b.buf = t.append(b.buf)
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.find(u.Seq); i >= 0 {
		w.live[i].size = t.size
		w.liveBytes += t.size
	}
	return b.buf
}

// find returns the place of a number in live. Numbers there follow each other.
func (w *Writer) find(seq uint64) int {
	if len(w.live) == 0 || seq < w.live[0].seq {
		return -1
	}
	return int(seq - w.live[0].seq)
}
