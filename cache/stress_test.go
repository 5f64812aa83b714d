package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// TestStress lets many readers do everything at once over memory that crashes whoever uses a slab too late, in a budget that is
// far too small, over a bucket that fails and dawdles. All bytes must be right, the budget must hold, nothing may hang or leak.
func TestStress(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, o := range []Options{
		{Bytes: 256 * kib, Workers: 3, MaxReadAhead: 4},
		{Bytes: 64 * kib, Workers: 8, MaxReadAhead: -1},
		{Bytes: 2 << 20, ChunkBytes: 64 * kib, Workers: 4, MaxReadAhead: 8},
	} {
		t.Run(fmt.Sprintf("%d", o.Bytes/kib), func(t *testing.T) { stress(t, o, seed) })
	}
}

func stress(t *testing.T, o Options, seed uint64) {
	w := newWorld(t, o)
	keys := []string{"a", "bb", "ccc", "dddd", "eeeee"}
	for i, key := range keys {
		w.object(key, 1+i*i*40*kib)
	}
	w.fault.SetPlan(func(c bucket.Call) bucket.Action {
		r := rand.New(rand.NewPCG(seed, uint64(c.N)))
		a := bucket.Action{}
		switch r.IntN(20) {
		case 0:
			a.Before = bucket.ErrUnavailable
		case 1:
			a.Cut = true
		case 2:
			a.Latency = time.Duration(r.IntN(2000)) * time.Microsecond
		}
		return a
	})
	// What fits for sure, and what must run alone.
	small := min(o.Bytes/4, 128*kib)
	var wg sync.WaitGroup
	for reader := range uint64(8) {
		wg.Go(func() { w.stressReader(keys, rand.New(rand.NewPCG(seed, 1000+reader)), small) })
	}
	wg.Wait()
	w.idle()
	st := w.c.Stats()
	require.Zero(t, st.PinnedBytes)
	require.LessOrEqual(t, st.Bytes, o.Bytes)
	require.LessOrEqual(t, w.guard.peak(), o.Bytes)
	t.Logf("%+v", st)
}

func (w *world) stressReader(keys []string, r *rand.Rand, small int64) {
	pos := map[string]int64{}
	var held []func()
	for range 400 {
		key := keys[r.IntN(len(keys))]
		size := int64(len(w.data[key]))
		off := r.Int64N(size)
		if r.IntN(2) == 0 { // go on where this reader was
			off = pos[key] % size
		}
		n := min(1+r.Int64N(small), size-off)
		ctx, cancel := context.WithCancel(context.Background())
		if r.IntN(10) == 0 {
			ctx, cancel = context.WithTimeout(context.Background(), time.Duration(r.IntN(1000))*time.Microsecond)
		}
		s, err := w.read(ctx, key, off, n)
		cancel()
		switch {
		case err == nil:
			pos[key] = off + n
			if err := w.check(s, key, off, n); err != nil {
				w.Error(err)
			}
			if r.IntN(4) == 0 && len(held) == 0 {
				held = append(held, func() {
					if err := w.check(s, key, off, n); err != nil {
						w.Error("after a while: ", err)
					}
					s.Release()
				})
				break
			}
			s.Release()
		case !errors.Is(err, bucket.ErrUnavailable):
			w.Error(err)
		}
		// Nobody may hold memory while waiting for more of it.
		for _, release := range held {
			release()
		}
		held = held[:0]
		switch r.IntN(20) {
		case 0:
			w.c.Drop(key)
		case 1:
			w.c.Prefetch(op, key, size, off, n)
		}
	}
}

// TestSlabPool: what is pooled counts, and gives way to other sizes.
func TestSlabPool(t *testing.T) {
	p := newSlabPool(128 * kib)
	var got [][]byte
	for range 4 {
		b, err := p.get(20 * kib)
		require.NoError(t, err)
		require.Len(t, b, 20*kib)
		require.Equal(t, 32*kib, cap(b))
		b[0], b[len(b)-1] = 1, 2
		got = append(got, b)
	}
	require.EqualValues(t, 128*kib, p.mapped)
	for _, b := range got {
		p.put(b)
	}
	b, err := p.get(32 * kib)
	require.NoError(t, err)
	require.EqualValues(t, 128*kib, p.mapped, "reused")
	p.put(b)
	b, err = p.get(64*kib + 1)
	require.NoError(t, err)
	require.EqualValues(t, 128*kib, p.mapped, "all others were unmapped")
	over, err := p.get(16 * kib)
	require.NoError(t, err)
	p.put(over)
	require.EqualValues(t, 128*kib, p.mapped, "beyond the budget nothing is pooled")
	require.NoError(t, p.close())
	p.put(b)
	require.Zero(t, p.mapped)
	for n, want := range map[int]int64{0: 16 * kib, 1: 16 * kib, 16 * kib: 16 * kib, 16*kib + 1: 32 * kib, 4 << 20: 4 << 20} {
		require.Equal(t, want, slabSize(n))
	}
}
