package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kib = 1 << 10

var op = bucket.Op{Class: bucket.ClassCold, Topic: "t", Kind: bucket.KindData}

// world is a cache over a bucket that counts and can fail.
type world struct {
	*testing.T
	fault *bucket.Fault
	mem   *bucket.Memory
	guard *guard
	c     *Cache
	gets  atomic.Int64
	data  map[string][]byte
}

func newWorld(t *testing.T, o Options) *world {
	w := &world{T: t, mem: bucket.NewMemory(), guard: &guard{}, data: map[string][]byte{}}
	w.fault = bucket.NewFault(w.mem, nil)
	o.Bucket = bucket.NewMeter(w.fault, func(_ bucket.Op, verb string, _ int64, _ time.Duration, _ error) {
		if verb == bucket.VerbGet {
			w.gets.Add(1)
		}
	})
	if o.ChunkBytes == 0 {
		o.ChunkBytes = 16 * kib
	}
	if o.Workers == 0 {
		o.Workers = 4
	}
	if o.MaxReadAhead == 0 {
		o.MaxReadAhead = -1
	}
	w.c = newCache(o, w.guard)
	t.Cleanup(func() {
		require.NoError(t, w.c.Close())
		require.NoError(t, w.guard.unmap())
	})
	return w
}

// object stores n bytes that tell where they are from.
func (w *world) object(key string, n int) {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16) ^ byte(len(key)) ^ key[len(key)-1]
	}
	w.data[key] = b
	_, err := w.mem.Put(context.Background(), op, key, bucket.BytesBody(b), bucket.Condition{})
	require.NoError(w, err)
}

func (w *world) read(ctx context.Context, key string, off, n int64) (Slices, error) {
	return w.c.Read(ctx, op, key, int64(len(w.data[key])), off, n)
}

// check compares what was read, byte by byte.
func (w *world) check(s Slices, key string, off, n int64) error {
	if s.Len() != int(n) {
		return fmt.Errorf("%d bytes instead of %d", s.Len(), n)
	}
	if got := bytes.Join(s.Bufs, nil); !bytes.Equal(got, w.data[key][off:off+n]) {
		return fmt.Errorf("wrong bytes of %s at %d+%d", key, off, n)
	}
	return nil
}

func (w *world) mustRead(key string, off, n int64) {
	w.Helper()
	s, err := w.read(w.Context(), key, off, n)
	require.NoError(w, err)
	require.NoError(w, w.check(s, key, off, n))
	s.Release()
}

func TestReadRanges(t *testing.T) {
	w := newWorld(t, Options{Bytes: 1 << 20})
	for _, size := range []int{1, 100, 16*kib - 1, 16 * kib, 16*kib + 1, 50 * kib} {
		key := fmt.Sprintf("o/%d", size)
		w.object(key, size)
		for _, r := range [][2]int{{0, size}, {0, 1}, {size - 1, 1}, {size / 2, size - size/2}, {size / 3, size / 3}, {size, 0}, {0, 0}} {
			w.mustRead(key, int64(r[0]), int64(r[1]))
		}
		for _, r := range [][2]int64{{-1, 1}, {0, int64(size) + 1}, {int64(size), 1}, {int64(size) + 1, 0}, {0, -1}, {1 << 62, 1 << 62}} {
			_, err := w.read(t.Context(), key, r[0], r[1])
			require.ErrorIs(t, err, bucket.ErrRange, "range %v", r)
		}
	}
	st := w.c.Stats()
	require.EqualValues(t, 1+1+1+1+2+4, st.Misses)
	require.EqualValues(t, w.gets.Load(), st.Misses)
	require.Zero(t, st.PinnedBytes)
	require.EqualValues(t, 10*16*kib, st.Bytes)
	require.EqualValues(t, 10, st.Chunks)
}

func TestErrorsAreNotCached(t *testing.T) {
	w := newWorld(t, Options{Bytes: 1 << 20})
	w.object("o", 40*kib)
	w.fault.SetPlan(bucket.FailAt(1, bucket.ErrUnavailable))
	_, err := w.read(t.Context(), "o", 0, 100)
	require.ErrorIs(t, err, bucket.ErrUnavailable)
	w.mustRead("o", 0, 40*kib)
	_, err = w.c.Read(t.Context(), op, "missing", 10, 0, 10)
	require.ErrorIs(t, err, bucket.ErrNotFound)
	_, err = w.c.Read(t.Context(), op, "missing", 10, 0, 10)
	require.ErrorIs(t, err, bucket.ErrNotFound)
	require.EqualValues(t, 3, w.c.Stats().FetchErrors)
	w.guard.fail = errors.New("no memory")
	w.c.Drop("o")
	_, err = w.read(t.Context(), "o", 0, 1)
	require.ErrorContains(t, err, "no memory")
	w.mustRead("o", 0, 1)
}

func TestWrongSize(t *testing.T) {
	w := newWorld(t, Options{Bytes: 1 << 20})
	w.object("o", 40*kib)
	_, err := w.c.Read(t.Context(), op, "o", 39*kib, 0, 10)
	require.ErrorIs(t, err, bucket.ErrCorrupt)
	_, err = w.c.Read(t.Context(), op, "o", 41*kib, 40*kib, 1*kib)
	require.ErrorIs(t, err, bucket.ErrRange)
}

// TestOneGet: many readers of a chunk share its GET, and one that gives up takes nothing from the others.
func TestOneGet(t *testing.T) {
	w := newWorld(t, Options{Bytes: 1 << 20})
	w.object("o", 16*kib)
	hold := make(chan struct{})
	w.fault.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Hold: hold} })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if i < 5 {
				_, err := w.read(ctx, "o", int64(i), 10)
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, bucket.ErrUnavailable)
				return
			}
			w.mustRead("o", int64(i), 10)
		})
	}
	require.Eventually(t, func() bool { s := w.c.Stats(); return s.Misses+s.Joined == 10 }, time.Minute, time.Millisecond)
	cancel()
	close(hold)
	wg.Wait()
	require.EqualValues(t, 1, w.gets.Load())
}

// TestGoesOn: the GET goes on when the only reader has given up; the retry finds the chunk.
func TestGoesOn(t *testing.T) {
	w := newWorld(t, Options{Bytes: 1 << 20})
	w.object("o", 16*kib)
	hold := make(chan struct{})
	w.fault.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Hold: hold} })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := w.read(ctx, "o", 0, 10)
		done <- err
	}()
	require.Eventually(t, func() bool { return w.fault.Calls() == 1 }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	close(hold)
	require.Eventually(t, func() bool { return w.c.Stats().InFlight == 0 }, time.Minute, time.Millisecond)
	w.mustRead("o", 0, 10)
	require.EqualValues(t, 1, w.gets.Load())
	require.EqualValues(t, 1, w.c.Stats().Hits)
	_, err := w.read(ctx, "o", 0, 10)
	require.ErrorIs(t, err, context.Canceled)
}

// TestWaitsForMemory: readers wait in order when all memory is handed out, and get it when it is released.
func TestWaitsForMemory(t *testing.T) {
	w := newWorld(t, Options{Bytes: 64 * kib})
	w.object("a", 64*kib)
	w.object("b", 64*kib)
	first, err := w.read(t.Context(), "a", 0, 64*kib)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := w.read(ctx, "b", 0, 64*kib)
		gone <- err
	}()
	require.Eventually(t, func() bool { return w.c.Stats().Waits == 1 }, time.Minute, time.Millisecond)
	second := make(chan struct{})
	go func() {
		w.mustRead("b", 0, 16*kib)
		close(second)
	}()
	require.Eventually(t, func() bool { return w.c.Stats().Waits == 2 }, time.Minute, time.Millisecond)
	w.mustRead("a", 0, 64*kib) // needs no memory, so it passes
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	select {
	case <-second:
		t.Fatal("there was no memory")
	default:
	}
	require.NoError(t, w.check(first, "a", 0, 64*kib))
	first.Release()
	first.Release()
	<-second
	require.EqualValues(t, 64*kib, w.guard.peak())
}

// TestLargerThanBudget: such a read waits until it is alone, then gets what it wants.
func TestLargerThanBudget(t *testing.T) {
	w := newWorld(t, Options{Bytes: 64 * kib})
	w.object("a", 300*kib)
	w.object("b", 16*kib)
	held, err := w.read(t.Context(), "b", 0, 10)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { w.mustRead("a", 0, 300*kib) })
	}
	require.Eventually(t, func() bool { return w.c.Stats().Waits == 4 }, time.Minute, time.Millisecond)
	passed := make(chan struct{})
	go func() {
		w.mustRead("b", 0, 16*kib)
		close(passed)
	}()
	require.Eventually(t, func() bool { return w.c.Stats().Waits == 5 }, time.Minute, time.Millisecond)
	held.Release()
	wg.Wait()
	<-passed
	require.LessOrEqual(t, w.guard.peak(), int64(304*kib+64*kib))
	w.mustRead("a", 299*kib, 1*kib)
	require.LessOrEqual(t, w.c.Stats().Bytes, int64(64*kib))
}

func TestDrop(t *testing.T) {
	w := newWorld(t, Options{Bytes: 1 << 20})
	w.object("o", 40*kib)
	s, err := w.read(t.Context(), "o", 0, 40*kib)
	require.NoError(t, err)
	w.c.Drop("o")
	w.c.Drop("nothing")
	require.NoError(t, w.check(s, "o", 0, 40*kib), "readers keep what they have")
	w.mustRead("o", 0, 40*kib)
	require.EqualValues(t, 6, w.gets.Load())
	s.Release()
	require.EqualValues(t, 3*16*kib, w.c.Stats().Bytes)
}

// TestRejectedChunksStayForAWhile: a chunk that the policy does not want must serve the small reads that follow the first.
func TestRejectedChunksStayForAWhile(t *testing.T) {
	w := newWorld(t, Options{Bytes: 256 * kib})
	w.object("o", 1<<20)
	for off := int64(0); off < 1<<20; off += 1 * kib {
		w.mustRead("o", off, 1*kib)
		if off%(16*kib) == 0 { // the worst that the policy can say
			w.c.mu.Lock()
			ch := w.c.objects["o"].chunks[off/(16*kib)]
			w.c.mu.Unlock()
			w.c.demote(ch)
		}
	}
	require.EqualValues(t, 64, w.gets.Load())
}

func TestCloseReportsLeaks(t *testing.T) {
	mem := bucket.NewMemory()
	_, err := mem.Put(t.Context(), op, "o", bucket.BytesBody(make([]byte, 40*kib)), bucket.Condition{})
	require.NoError(t, err)
	c := New(Options{Bucket: mem, Bytes: 1 << 20, ChunkBytes: 16 * kib})
	s, err := c.Read(t.Context(), op, "o", 40*kib, 0, 17*kib)
	require.NoError(t, err)
	require.ErrorContains(t, c.Close(), "32768 bytes were read and not released")
	require.Equal(t, make([]byte, 16*kib), s.Bufs[0], "still there")
	s.Release()
	require.Zero(t, c.Stats().Bytes)
	require.NoError(t, c.Close())
	_, err = c.Read(t.Context(), op, "o", 40*kib, 0, 1)
	require.ErrorIs(t, err, ErrClosed)
	c.Prefetch(op, "o", 40*kib, 0, 40*kib)
	c.Drop("o")
}

// TestCloseWhileReading: readers that wait for memory or a GET get an error, not a hang.
func TestCloseWhileReading(t *testing.T) {
	w := newWorld(t, Options{Bytes: 64 * kib, Workers: 1})
	w.object("a", 64*kib)
	w.object("b", 64*kib)
	w.fault.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Hold: make(chan struct{})} })
	var wg sync.WaitGroup
	for _, key := range []string{"a", "a", "b"} {
		wg.Go(func() {
			_, err := w.read(context.Background(), key, 0, 64*kib)
			require.ErrorIs(t, err, bucket.ErrUnavailable)
		})
	}
	require.Eventually(t, func() bool { s := w.c.Stats(); return s.Waits >= 1 && w.fault.Calls() == 1 && s.Joined+s.Waits >= 2 }, time.Minute, time.Millisecond)
	require.NoError(t, w.c.Close())
	wg.Wait()
}

func TestFetchTimeout(t *testing.T) {
	w := newWorld(t, Options{Bytes: 64 * kib, FetchTimeout: 10 * time.Millisecond})
	w.object("a", 64*kib)
	w.fault.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Hold: make(chan struct{})} })
	_, err := w.read(t.Context(), "a", 0, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	w.fault.SetPlan(nil)
	w.mustRead("a", 0, 1)
}
