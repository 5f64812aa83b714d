package tier

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// withCache gives the archive a real cache with chunks so small that batches and their headers cross them.
func withCache(t testing.TB, b func() bucket.Bucket) func(*Options) {
	return func(o *Options) {
		c := cache.New(cache.Options{Bucket: b(), Bytes: 1 << 20, ChunkBytes: 16 << 10, Workers: 2})
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		o.Cache = c
	}
}

func TestReadThroughCache(t *testing.T) {
	w := newWorld(t, 5)
	w.open(withCache(t, func() bucket.Bucket { return w.b }))
	w.claim()
	for range 12 {
		w.write(300)
		w.roll()
	}
	require.Greater(t, w.h.Extents[0].Size, int64(3*16<<10))
	w.checkAll(w.h)
	w.checkTimes(w.h, 400)
	for range 3000 {
		w.checkRead(w.h, w.rng.Int64N(w.h.End), w.rng.IntN(9000))
	}
}

func TestHeadersAcrossSlices(t *testing.T) {
	w := newWorld(t, 5)
	w.write(20)
	var all []byte
	for _, b := range w.batches {
		all = append(all, b.bytes...)
	}
	k := Block{Base: 0, Last: w.next - 1, Off: 8, Stored: int64(len(all)), CRC: checksum(all)}
	for _, piece := range []int{1, 7, 60, 61, 62, 100, len(all)} {
		var bufs [][]byte
		for i := 0; i < len(all); i += piece {
			bufs = append(bufs, all[i:min(i+piece, len(all))])
		}
		s := newScatter(bufs)
		require.Equal(t, -1, verifyBlocks(&s, []Block{k}))
		for offset := range w.next {
			want := w.wantFrom(offset, w.next)
			b, err := cutBatches(&s, []Block{k}, offset, w.next, int64(len(want[0].bytes)))
			require.NoError(t, err)
			require.Equal(t, want[0].bytes, flat(b))
			require.Equal(t, []int64{want[0].base, want[0].last + 1}, []int64{b.First, b.Next})
			// Not one byte more than the next batch needs.
			if len(want) > 1 {
				b, err = cutBatches(&s, []Block{k}, offset, w.next, int64(len(want[0].bytes)+len(want[1].bytes)))
				require.NoError(t, err)
				require.Equal(t, want[1].last+1, b.Next)
			}
		}
		n := 0
		_, err := walkBlock(&s, &k, 0, w.next, func(int64, int64) bool { return true }, func(b []byte, _ *batch.Header) (bool, error) {
			require.Equal(t, w.batches[n].bytes, b)
			n++
			return true, nil
		})
		require.NoError(t, err)
		require.Equal(t, 20, n)
	}
}

func TestWrongBytesAreNeverServed(t *testing.T) {
	for _, cached := range []bool{false, true} {
		w := newWorld(t, 5)
		var flips atomic.Int64
		w.b = bucket.NewFault(w.mem, func(c bucket.Call) bucket.Action {
			return bucket.Action{Flip: c.Verb == bucket.VerbGet && c.Op.Kind == bucket.KindData && flips.Add(-1) >= 0, FlipAt: 3000}
		})
		tweak := func(*Options) {}
		if cached {
			tweak = withCache(t, func() bucket.Bucket { return w.b })
		}
		w.open(tweak)
		w.claim()
		w.write(100)
		w.roll()
		w.checkRead(w.h, 0, 1<<20) // block table in memory
		w.open(tweak)
		for range 5 {
			flips.Store(1)
			w.checkRead(w.h, 0, 1<<20)
			w.a.opts.drop(w.h.Extents[0].Key)
		}
		flips.Store(1000)
		w.a.meta.drop(w.h.Extents[0].Key)
		_, err := w.a.Read(ctx(t), w.h, 0, 1<<20, coldOp)
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, w.h.Extents[0].Key)
		flips.Store(0)
		w.checkRead(w.h, 0, 1<<20) // nothing bad has stayed

		// Bad for ever: said so, with the place, at every kind of read, and the blocks beside it are served.
		o, err := OpenObject(ctx(t), w.mem, coldOp, w.h.Extents[0].Key)
		require.NoError(t, err)
		raw, _, err := bucket.GetAll(ctx(t), w.mem, coldOp, o.Key, 1<<20)
		require.NoError(t, err)
		k := o.Blocks[2]
		raw[k.Off+70] ^= 1
		_, err = w.mem.Put(ctx(t), coldOp, o.Key, bucket.BytesBody(raw), bucket.Condition{})
		require.NoError(t, err)
		w.a.opts.drop(o.Key)
		_, err = w.a.Read(ctx(t), w.h, k.Base, 10, coldOp)
		var c *CorruptError
		require.ErrorAs(t, err, &c)
		require.Equal(t, o.Key, c.Key)
		require.Contains(t, c.Part, "block at byte")
		w.checkRead(w.h, o.Blocks[1].Base, 10)
		w.checkRead(w.h, o.Blocks[3].Base, 10)
		var problems []Problem
		require.NoError(t, w.a.Verify(ctx(t), w.id, VerifyOptions{}, func(p Problem) { problems = append(problems, p) }))
		require.Len(t, problems, 1)
		require.Equal(t, k.Base, problems[0].Offset)
	}
}

// TestSmallObjectTakesOneGet: block table and batches of an object that fits into a chunk come together, and damage on the way is made good.
func TestSmallObjectTakesOneGet(t *testing.T) {
	w := newWorld(t, 5)
	var gets, flips atomic.Int64
	var at atomic.Int64
	w.b = bucket.NewFault(w.mem, func(c bucket.Call) bucket.Action {
		if c.Verb != bucket.VerbGet || c.Op.Kind != bucket.KindData {
			return bucket.Action{}
		}
		gets.Add(1)
		return bucket.Action{Flip: flips.Add(-1) >= 0, FlipAt: at.Load()}
	})
	tweak := withCache(t, func() bucket.Bucket { return w.b })
	w.open(tweak)
	w.claim()
	w.write(10)
	w.roll()
	e := &w.h.Extents[0]
	require.LessOrEqual(t, e.Size, int64(16<<10))
	all := func() {
		for offset := int64(0); offset < w.h.End; {
			offset = w.checkRead(w.h, offset, 1000)
		}
	}
	gets.Store(0)
	all()
	require.EqualValues(t, 1, gets.Load())
	for _, place := range []int64{e.IndexOff + 3, e.Size - 2, 100} { // block table, trailer, batches
		w.open(tweak)
		gets.Store(0)
		flips.Store(1)
		at.Store(place)
		all()
		require.EqualValues(t, 2, gets.Load(), "fetched once more")
	}
	w.open(tweak)
	at.Store(e.IndexOff + 3)
	flips.Store(1000)
	_, err := w.a.Read(ctx(t), w.h, 0, 1000, coldOp)
	require.ErrorIs(t, err, ErrCorrupt)
}

// drop empties the cache of an object, if there is one.
func (o *Options) drop(key string) {
	if o.Cache != nil {
		o.Cache.Drop(key)
	}
}

func TestGoneObjectsAreTold(t *testing.T) {
	w := newWorld(t, 5)
	w.claim()
	for range 30 {
		w.write(5)
		w.roll()
	}
	old := w.h
	w.deleteTo(w.h.End - 3)
	w.checkSwept()
	w.open()
	_, err := w.a.Read(ctx(t), old, 0, 100, coldOp)
	require.ErrorIs(t, err, ErrGone)
	_, _, _, _, err = w.a.FindTime(ctx(t), old, 0, 0)
	require.ErrorIs(t, err, ErrGone)
	w.checkAll(w.h)
}

func TestReaderThatGivesUpLeavesTheLoadRunning(t *testing.T) {
	w := newWorld(t, 5)
	w.claim()
	w.write(5)
	w.roll()
	hold := make(chan struct{})
	var gets atomic.Int64
	w.b = bucket.NewFault(w.mem, func(c bucket.Call) bucket.Action {
		if c.Verb == bucket.VerbGet && gets.Add(1) == 1 {
			return bucket.Action{Hold: hold}
		}
		return bucket.Action{}
	})
	w.open()
	c, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := w.a.Read(c, w.h, 0, 100, coldOp)
	require.ErrorIs(t, err, context.Canceled)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { w.checkRead(w.h, 0, 100) })
	}
	close(hold)
	wg.Wait()
	require.EqualValues(t, 1+8, gets.Load(), "one footer, and the block for each reader")
	require.NoError(t, w.a.Close())
	_, err = w.a.Read(ctx(t), w.h, 0, 100, coldOp)
	require.NoError(t, err, "what is in memory is served")
	w.a.meta.drop(w.h.Extents[0].Key)
	_, err = w.a.Read(ctx(t), w.h, 0, 100, coldOp)
	require.ErrorIs(t, err, errClosed)
}

func TestMetaCacheKeepsItsLimit(t *testing.T) {
	w := newWorld(t, 5, func(o *Options) { o.MetaBytes = 5000 })
	w.claim()
	for range 60 {
		w.write(20)
		w.roll()
	}
	w.checkAll(w.h)
	w.a.meta.mu.Lock()
	defer w.a.meta.mu.Unlock()
	var sum int64
	for _, e := range w.a.meta.entries {
		sum += e.Value.(*metaEntry).cost
	}
	require.Equal(t, sum, w.a.meta.used)
	require.LessOrEqual(t, sum, int64(5000))
	require.Equal(t, len(w.a.meta.entries), w.a.meta.order.Len())
}

func TestSequentialReadersAreReadAhead(t *testing.T) {
	w := newWorld(t, 5)
	w.open(withCache(t, func() bucket.Bucket { return w.b }))
	w.claim()
	for range 6 {
		w.write(100)
		w.roll()
	}
	for at := int64(0); at < w.h.End; {
		at = w.checkRead(w.h, at, 3000)
	}
	s := w.a.opts.Cache.Stats()
	require.Positive(t, s.Ahead)
	// All footers but the first were asked for ahead: they are in memory without a reader's miss.
	for _, e := range w.h.Extents {
		_, ok := w.a.meta.get(e.Key)
		require.True(t, ok)
	}
	require.LessOrEqual(t, len(w.a.readers.m), 2)
	for i := range int64(maxReaders + 100) {
		w.a.readers.advance(w.id, 1<<40+i*2, 1<<40+i*2+1)
	}
	require.LessOrEqual(t, len(w.a.readers.m), maxReaders)
}

func TestReadAllocatesLittle(t *testing.T) {
	w := newWorld(t, 5)
	w.open(withCache(t, func() bucket.Bucket { return w.b }))
	w.claim()
	w.write(300)
	w.roll()
	c := ctx(t)
	read := func() {
		b, err := w.a.Read(c, w.h, 40, 4000, coldOp)
		require.NoError(t, err)
		b.Release()
	}
	read()
	require.LessOrEqual(t, testing.AllocsPerRun(200, read), 16.0)
}

func TestTrimmedExtentsServeTheirRangeOnly(t *testing.T) {
	w := newWorld(t, 5)
	w.claim()
	w.write(40)
	w.roll()
	h := w.h.Clone()
	first := h.Extents[0]
	cut, end := w.batches[7].base, w.batches[30].base
	a, b := first, first
	a.End, b.Start, b.End = cut, cut, end
	h.Extents, h.End = []Extent{a, b}, end
	w.checkAll(h)
	w.checkTimes(h, 5)
	got, err := w.a.Read(ctx(t), h, 0, 1<<20, coldOp)
	require.NoError(t, err)
	require.LessOrEqual(t, got.Next, cut)
	require.True(t, bytes.HasPrefix(flat(got), w.batches[0].bytes))
}

// TestRubbishInsideABatchIsPassedOver: whatever a producer has put into a compressed batch, lookups by time go on behind it.
func TestRubbishInsideABatchIsPassedOver(t *testing.T) {
	w := newWorld(t, 5)
	w.plain = true
	w.claim()
	w.write(3)
	bad := &w.batches[1]
	bad.bytes[22] |= byte(batch.Gzip)
	binary.BigEndian.PutUint32(bad.bytes[17:], batch.CRC(bad.bytes))
	w.recs = slices.DeleteFunc(w.recs, func(r rec) bool { return r.offset >= bad.base && r.offset <= bad.last })
	w.roll()
	w.checkAll(w.h)
	w.checkTimes(w.h, 1)
	w.checkVerify()
}
