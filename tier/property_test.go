package tier

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// liveExtents returns the extents of a head as a slice.
func (w *world) liveExtents(h *Head) []Extent {
	var es []Extent
	for e, err := range w.a.Extents(ctx(w.t), h) {
		require.NoError(w.t, err)
		es = append(es, e)
	}
	return es
}

// wantCut is retention over a plain slice.
func wantCut(es []Extent, start int64, r Retention) int64 {
	total := r.LocalBytes
	for _, e := range es {
		total += e.Bytes
	}
	for _, e := range es {
		old := r.Ms >= 0 && e.RetentionTime < r.Now-r.Ms
		big := r.Bytes >= 0 && total-e.Bytes >= r.Bytes && total > r.Bytes
		if !old && !big {
			break
		}
		start, total = e.End, total-e.Bytes
	}
	return start
}

func (w *world) retain(r Retention) {
	want := wantCut(w.liveExtents(w.h), w.h.Start, r)
	h, changed, err := w.a.Retain(ctx(w.t), w.id, w.h, w.owner, r)
	require.NoError(w.t, err)
	require.Equal(w.t, want, h.Start)
	require.Equal(w.t, want > w.h.Start, changed)
	w.h = h
}

func (w *world) deleteTo(before int64) {
	h, err := w.a.DeleteRecords(ctx(w.t), w.id, w.h, w.owner, before, w.now)
	require.NoError(w.t, err)
	require.Equal(w.t, max(before, w.h.Start), h.Start)
	w.h = h
}

func (w *world) merge() bool {
	h, changed, err := w.a.Merge(ctx(w.t), w.id, w.h, w.owner, MergeOptions{SmallBytes: 8000, TargetBytes: 16_000, MinObjects: 2, Now: w.now})
	require.NoError(w.t, err)
	w.h = h
	return changed
}

// keysOf returns what lies below a partition's prefix.
func (w *world) keysOf(prefix string) []string {
	var keys []string
	require.NoError(w.t, listAll(ctx(w.t), w.mem, bucket.Op{}, prefix, func(i bucket.Info) error {
		keys = append(keys, i.Key)
		return nil
	}))
	return keys
}

// checkSwept says that after a sweep without delay the bucket holds exactly what the head names.
func (w *world) checkSwept() {
	h, r, err := w.a.SweepPartition(ctx(w.t), w.id, w.h, w.now, 0)
	require.NoError(w.t, err)
	w.h = h
	require.Empty(w.t, h.Dropped)
	require.Zero(w.t, r.Waiting)
	require.Empty(w.t, r.InFlight)
	named := map[string]bool{}
	require.NoError(w.t, w.a.allRefs(ctx(w.t), h, func(key string) { named[key] = true }))
	for _, key := range append(w.keysOf(DataPrefix(w.id)), w.keysOf(PagePrefix(w.id))...) {
		require.True(w.t, named[key], "%s is left over", key)
	}
	for _, e := range w.liveExtents(h) {
		if e.Kind == KindData {
			_, err := w.mem.Stat(ctx(w.t), bucket.Op{}, e.Key)
			require.NoError(w.t, err)
		}
	}
}

func (w *world) checkVerify() {
	require.NoError(w.t, w.a.Verify(ctx(w.t), w.id, VerifyOptions{}, func(p Problem) { w.t.Errorf("verify: %v", p) }))
}

func TestRandomHistoriesMatchModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		w := newWorld(t, seed)
		w.claim()
		var log []string
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"roll", "roll", "roll", "roll", "two", "void", "delete", "retainTime", "retainSize", "merge", "claim", "sweep", "reopen", "ceiling", "adopt", "adopt"}), 20, 120).Draw(rt, "steps")
		for _, s := range steps {
			log = append(log, s)
			w.step(s)
			require.NoError(t, w.h.check(), "seed %d, steps %v", seed, log)
		}
		w.checkHead(w.h)
		w.checkAll(w.h)
		w.checkTimes(w.h, 40)
		w.checkSwept()
		w.checkVerify()
		w.checkAll(w.h)
		if t.Failed() {
			rt.Fatalf("seed %d, steps %v", seed, log)
		}
	})
}

func (w *world) step(s string) {
	switch s {
	case "roll":
		w.write(1 + w.rng.IntN(12))
		w.roll()
	case "two":
		w.write(4)
		src := w.pending(w.h)
		first, second := src[:2], src[2:]
		a, err := w.a.Upload(ctx(w.t), w.spec(w.h, first), first)
		require.NoError(w.t, err)
		spec := w.spec(w.h, second)
		spec.Start = a.End
		b, err := w.a.Upload(ctx(w.t), spec, second)
		require.NoError(w.t, err)
		w.h, err = w.a.CommitRoll(ctx(w.t), w.id, w.h, w.owner, []Extent{a, b}, nil)
		require.NoError(w.t, err)
	case "adopt":
		w.write(1 + w.rng.IntN(12))
		w.adopt(4)
	case "void":
		to := w.next + 1 + w.rng.Int64N(3)
		h, err := w.a.CommitRoll(ctx(w.t), w.id, w.h, w.owner, []Extent{VoidExtent(w.next, to, w.owner.Epoch)}, nil)
		require.NoError(w.t, err)
		w.h, w.next = h, to
	case "delete":
		// Mostly a little, sometimes past what is rolled.
		to := w.h.Start + w.rng.Int64N(8)
		if w.rng.IntN(8) == 0 {
			w.write(3)
			to = w.next - w.rng.Int64N(4)
		}
		w.deleteTo(min(to, w.next))
		w.roll()
	case "retainTime":
		w.retain(Retention{Ms: 200 + w.rng.Int64N(4000), Bytes: -1, Now: w.now})
	case "retainSize":
		w.retain(Retention{Ms: -1, Bytes: w.rng.Int64N(60_000), LocalBytes: w.rng.Int64N(3000), Now: w.now})
	case "merge":
		w.merge()
	case "claim":
		w.owner.Epoch++
		w.owner.Incarnation = fmt.Sprintf("run-%d", w.owner.Epoch)
		w.claim()
	case "sweep":
		h, _, err := w.a.SweepDropped(ctx(w.t), w.id, w.h, w.now, time.Duration(w.rng.Int64N(300))*time.Millisecond)
		require.NoError(w.t, err)
		w.h = h
	case "reopen":
		w.open()
		h, err := w.a.Load(ctx(w.t), w.id)
		require.NoError(w.t, err)
		w.h = h
	case "ceiling":
		h, err := w.a.RaiseCeiling(ctx(w.t), w.id, w.h, w.owner, w.h.Ceiling+5)
		require.NoError(w.t, err)
		require.Greater(w.t, h.Ceiling, w.h.Ceiling+5)
		w.h = h
	}
}
