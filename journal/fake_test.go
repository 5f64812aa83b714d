package journal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/partition"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDisk = fmt.Errorf("%w: the test's disk", partition.ErrStorage)

// fakeLog is a partition in memory. Batches are durable at once unless it is held.
type fakeLog struct {
	mu       sync.Mutex
	changed  chan struct{}
	writing  bool
	epoch    int32
	start    int64
	batches  [][]byte // stamped
	durable  int      // of batches
	hold     bool     // nothing becomes durable
	refuse   error    // of Append
	lost     map[int64]error
	appends  int
	onAppend func(n int) error // before the n-th append, from 1
	deleteAt func(before int64) error
	reads    int
}

func newFakeLog() *fakeLog {
	return &fakeLog{changed: make(chan struct{}), writing: true, epoch: 1, lost: map[int64]error{}}
}

func (l *fakeLog) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *fakeLog) set(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn()
	if !l.hold {
		l.durable = len(l.batches)
	}
	l.notify()
}

func (l *fakeLog) Writing() (int32, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch, l.writing
}

func (l *fakeLog) end(n int) int64 {
	if n == 0 {
		return 0
	}
	h, err := batch.ParseHeader(l.batches[n-1])
	if err != nil {
		panic(err)
	}
	return h.LastOffset() + 1
}

func (l *fakeLog) Offsets() partition.Offsets {
	l.mu.Lock()
	defer l.mu.Unlock()
	return partition.Offsets{Start: l.start, Durable: l.end(l.durable), End: l.end(len(l.batches)), Epoch: l.epoch}
}

func (l *fakeLog) Append(b []byte, o partition.AppendOptions) (partition.Ack, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appends++
	if l.onAppend != nil {
		if err := l.onAppend(l.appends); err != nil {
			return partition.Ack{}, err
		}
	}
	switch {
	case !l.writing:
		return partition.Ack{}, partition.ErrNotOwner
	case o.Epoch != l.epoch:
		return partition.Ack{}, partition.ErrFencedEpoch
	case l.refuse != nil:
		return partition.Ack{}, l.refuse
	}
	h, err := batch.Validate(b, batch.Limits{MaxBytes: 64 << 20, NeedKeys: true, Now: o.Now, CreateTime: true, MaxBefore: -1, MaxAfter: -1})
	if err != nil {
		return partition.Ack{}, err
	}
	base := l.end(len(l.batches))
	if o.Exact && o.Base != base {
		return partition.Ack{}, partition.ErrMoved
	}
	batch.Stamp(b, base, l.epoch)
	l.batches = append(l.batches, slices.Clone(b))
	if !l.hold {
		l.durable = len(l.batches)
	}
	l.notify()
	return partition.Ack{BaseOffset: base, LastOffset: base + int64(h.RecordCount) - 1}, nil
}

func (l *fakeLog) Written(*partition.Ack) error { return nil }

func (l *fakeLog) Durable(ctx context.Context, a *partition.Ack) error {
	for {
		l.mu.Lock()
		done, err, changed := l.end(l.durable) > a.LastOffset, l.lost[a.BaseOffset], l.changed
		l.mu.Unlock()
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

func (l *fakeLog) Read(_ context.Context, r partition.ReadRequest) (partition.Batches, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if r.Offset < l.start || r.Offset > l.end(l.durable) {
		return partition.Batches{}, partition.ErrOffsetOutOfRange
	}
	next, n := r.Offset, 0
	var out [][]byte
	for i := range l.durable {
		b := l.batches[i]
		if l.end(i+1) <= r.Offset {
			continue
		}
		if n > 0 && n+len(b) > r.MaxBytes {
			break
		}
		out, n, next = append(out, b[:len(b)/2], b[len(b)/2:]), n+len(b), l.end(i+1)
	}
	return partition.NewBatches(out, n, next, func() {}), nil
}

func (l *fakeLog) DeleteRecords(_ context.Context, before int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deleteAt != nil {
		if err := l.deleteAt(before); err != nil {
			return 0, err
		}
	}
	if before > l.end(l.durable) {
		return 0, partition.ErrOffsetOutOfRange
	}
	l.start = max(l.start, before)
	return l.start, nil
}

// lose is a failed fdatasync: what isn't durable never will be, and its offsets are used again.
func (l *fakeLog) lose() {
	l.set(func() {
		for i := l.durable; i < len(l.batches); i++ {
			l.lost[l.end(i)] = errDisk
		}
		l.batches = l.batches[:l.durable]
		l.hold = false
	})
}

// crash is the end of the process: what isn't durable is gone, up to a batch that keep says.
func (l *fakeLog) crash(keep int) {
	l.set(func() {
		l.batches = l.batches[:min(l.durable+keep, len(l.batches))]
		l.hold, l.refuse, l.onAppend, l.deleteAt = false, nil, nil, nil
		l.epoch++
		l.writing = true
		l.lost = map[int64]error{}
	})
}

// mach is a map from names to numbers, with a deadline.
type mach struct {
	state     map[string]int
	applied   int
	deadline  time.Time
	expired   int
	discarded error
	loaded    bool
}

func (m *mach) Apply(r Record) {
	m.applied++
	if r.Value == nil {
		delete(m.state, string(r.Key))
		return
	}
	n, err := strconv.Atoi(string(r.Value))
	if err != nil {
		panic(err)
	}
	m.state[string(r.Key)] = n
}

func (m *mach) Loaded(time.Time) Step { m.loaded = true; return Step{} }

func (m *mach) Snapshot(emit func(Record)) {
	for _, k := range slices.Sorted(maps.Keys(m.state)) {
		emit(Record{Key: []byte(k), Value: []byte(strconv.Itoa(m.state[k]))})
	}
}

func (m *mach) Deadline() (time.Time, bool) { return m.deadline, !m.deadline.IsZero() }

func (m *mach) Expire(time.Time) Step {
	m.deadline = time.Time{}
	m.expired++
	return m.put("expired", m.expired, nil)
}

func (m *mach) Discard(err error) { m.discarded = err }

// put is an operation: it sets a value.
func (m *mach) put(k string, n int, done func(error)) Step {
	r := Record{Key: []byte(k), Value: []byte(strconv.Itoa(n))}
	m.Apply(r)
	return Step{Records: []Record{r}, Done: done}
}

// rig is a journal of one shard over a fake log.
type rig struct {
	t      testing.TB
	log    *fakeLog
	j      *Journal[*mach]
	mu     sync.Mutex
	events []Event
	gone   bool // the partition isn't here
	tune   func(*Options[*mach])
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, log: newFakeLog()}
	t.Cleanup(func() {
		if r.j != nil {
			r.j.Close()
		}
	})
	return r
}

func (r *rig) open() {
	o := Options[*mach]{
		Shards: 1, New: func(int32) *mach { return &mach{state: map[string]int{}} },
		Partition: func(int32) Partition {
			if r.gone {
				return nil
			}
			return r.log
		},
		RetryMin: time.Millisecond, RetryMax: 4 * time.Millisecond,
		OnEvent: func(e Event) { r.mu.Lock(); r.events = append(r.events, e); r.mu.Unlock() },
	}
	if r.tune != nil {
		r.tune(&o)
	}
	r.j = New(o)
}

// reopen ends the process: what isn't durable is lost but for the first keep batches.
func (r *rig) reopen(keep int) {
	r.j.Close()
	r.log.crash(keep)
	r.open()
	r.await()
}

// await waits until the shard runs.
func (r *rig) await() {
	r.t.Helper()
	r.eventually(func() bool { return r.j.Status(0) == nil })
}

func (r *rig) eventually(ok func() bool) {
	r.t.Helper()
	require.Eventually(r.t, ok, 10*time.Second, time.Millisecond)
}

func (r *rig) count(k Kind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// put starts an operation and returns where its outcome comes.
func (r *rig) put(k string, n int) (<-chan error, error) {
	c := make(chan error, 1)
	err := r.j.Do(0, func(m *mach, _ time.Time) Step { return m.put(k, n, func(err error) { c <- err }) })
	return c, err
}

// mustPut waits until the operation is durable, over any number of failures.
func (r *rig) mustPut(k string, n int) {
	r.t.Helper()
	r.eventually(func() bool {
		c, err := r.put(k, n)
		return err == nil && <-c == nil
	})
}

// get reads durable state.
func (r *rig) get(k string) (<-chan int, error) {
	c := make(chan int, 1)
	err := r.j.Do(0, func(m *mach, _ time.Time) Step {
		n := m.state[k]
		return Step{Done: func(err error) {
			if err != nil {
				n = -1
			}
			c <- n
		}}
	})
	return c, err
}

func (r *rig) state() map[string]int {
	r.t.Helper()
	var out map[string]int
	require.NoError(r.t, r.j.Look(0, func(m *mach) { out = maps.Clone(m.state) }))
	return out
}

// fold is what a reader of the topic who keeps the last value of each key sees.
func (l *fakeLog) fold(t testing.TB, durable bool) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	n := len(l.batches)
	if durable {
		n = l.durable
	}
	for i := range n {
		if l.end(i+1) <= l.start {
			continue
		}
		require.NoError(t, batch.Iterate(l.batches[i], func(rec *batch.Record) bool {
			if _, ok := parseMarker(rec.Key, rec.Value); ok {
				return true
			}
			v, err := strconv.Atoi(string(rec.Value))
			require.NoError(t, err)
			out[string(rec.Key)] = v
			return true
		}))
	}
	return out
}
