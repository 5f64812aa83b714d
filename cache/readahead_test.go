package cache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

func (w *world) idle() {
	w.Helper()
	require.Eventually(w, func() bool { return w.c.Stats().InFlight == 0 }, time.Minute, time.Millisecond)
}

// TestReadAheadGrows: one chunk ahead, then two, four, eight; and nothing is fetched twice.
func TestReadAheadGrows(t *testing.T) {
	w := newWorld(t, Options{Bytes: 4 << 20, MaxReadAhead: 8})
	w.object("o", 40*16*kib)
	var ahead []int64
	for i := range int64(12) {
		w.mustRead("o", i*16*kib, 16*kib)
		w.idle()
		ahead = append(ahead, w.c.Stats().Misses+w.c.Stats().Ahead-i-1)
	}
	require.Equal(t, []int64{1, 2, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8}, ahead)
	st := w.c.Stats()
	require.EqualValues(t, 1, st.Misses)
	require.EqualValues(t, 11, st.AheadUsed)
	for i := int64(12); i < 40; i++ {
		w.mustRead("o", i*16*kib, 16*kib)
	}
	w.idle()
	require.EqualValues(t, 40, w.gets.Load())
}

// TestSmallReads are one stream too, in the middle of an object after the second read.
func TestSmallReads(t *testing.T) {
	w := newWorld(t, Options{Bytes: 4 << 20, MaxReadAhead: 4})
	w.object("o", 40*16*kib)
	const start = 5*16*kib + 100
	w.mustRead("o", start, 1000)
	w.idle()
	require.Zero(t, w.c.Stats().Ahead)
	w.mustRead("o", start+1000, 1000)
	w.idle()
	require.EqualValues(t, 1, w.c.Stats().Ahead)
	for off := int64(start + 2000); off < 8*16*kib; off += 1000 {
		w.mustRead("o", off, 1000)
	}
	w.idle()
	require.EqualValues(t, 1, w.c.Stats().Misses)
}

// TestStartOfContent: who begins behind a few bytes of an object's format begins at its start.
func TestStartOfContent(t *testing.T) {
	w := newWorld(t, Options{Bytes: 4 << 20, MaxReadAhead: 4})
	w.object("o", 40*16*kib)
	w.mustRead("o", 8, 1000)
	w.idle()
	require.EqualValues(t, 1, w.c.Stats().Ahead)
}

func TestRandomReadsFetchNothingAhead(t *testing.T) {
	w := newWorld(t, Options{Bytes: 4 << 20, MaxReadAhead: 8})
	w.object("o", 200*16*kib)
	for i := int64(1); i < 190; i += 7 {
		w.mustRead("o", (i*37%190)*16*kib+5, 100)
	}
	require.LessOrEqual(t, w.c.Stats().Ahead, int64(3))
}

func TestPrefetch(t *testing.T) {
	w := newWorld(t, Options{Bytes: 1 << 20})
	w.object("o", 100*kib)
	w.c.Prefetch(op, "o", 100*kib, 20*kib, 50*kib)
	w.c.Prefetch(op, "o", 100*kib, -1, 5)
	w.c.Prefetch(op, "o", 100*kib, 100*kib, 5)
	w.c.Prefetch(op, "o", 100*kib, 99*kib, 1<<40)
	w.idle()
	require.EqualValues(t, 5, w.c.Stats().Ahead)
	w.mustRead("o", 20*kib, 50*kib)
	require.Zero(t, w.c.Stats().Misses)
	require.EqualValues(t, 4, w.c.Stats().AheadUsed)
}

// TestPrefetchIsBounded: a quarter of the budget, nothing when readers wait, and given up when they need the memory.
func TestPrefetchIsBounded(t *testing.T) {
	w := newWorld(t, Options{Bytes: 256 * kib, Workers: 1})
	w.object("o", 1<<20)
	w.object("p", 256*kib)
	hold := make(chan struct{})
	w.fault.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Hold: hold} })
	w.c.Prefetch(op, "o", 1<<20, 0, 1<<20)
	require.EqualValues(t, 2, w.c.Stats().Ahead, "twice the workers")
	require.Eventually(t, func() bool { return w.fault.Calls() == 1 }, time.Minute, time.Millisecond)
	w.c.Prefetch(op, "o", 1<<20, 0, 1<<20)
	require.EqualValues(t, 3, w.c.Stats().Ahead)
	done := make(chan struct{})
	go func() {
		w.mustRead("p", 0, 240*kib)
		close(done)
	}()
	require.Eventually(t, func() bool { return w.c.Stats().PinnedBytes == 256*kib }, time.Minute, time.Millisecond)
	require.EqualValues(t, 16, w.c.Stats().Chunks, "what was queued made room, what was running did not")
	close(hold)
	<-done
	w.idle()
}

// TestJoinsReadAhead: a reader that wants a chunk whose read-ahead is queued moves it to the front.
func TestJoinsReadAhead(t *testing.T) {
	w := newWorld(t, Options{Bytes: 1 << 20, Workers: 1})
	w.object("o", 16*16*kib)
	hold := make(chan struct{})
	var order []string
	w.fault.SetPlan(func(c bucket.Call) bucket.Action { order = append(order, c.Key); return bucket.Action{Hold: hold} })
	w.object("first", 1)
	w.object("next", 1)
	w.c.Prefetch(op, "first", 1, 0, 1)
	require.Eventually(t, func() bool { return w.fault.Calls() == 1 }, time.Minute, time.Millisecond)
	w.c.Prefetch(op, "o", 16*kib, 0, 1)
	w.c.Prefetch(op, "next", 1, 0, 1)
	done := make(chan struct{})
	go func() {
		w.mustRead("next", 0, 1)
		close(done)
	}()
	require.Eventually(t, func() bool { return w.c.Stats().Joined == 1 }, time.Minute, time.Millisecond)
	close(hold)
	<-done
	w.idle()
	w.fault.SetPlan(nil) // orders the plan's writes before this goroutine's reads
	require.Equal(t, []string{"first", "next", "o"}, order)
}
