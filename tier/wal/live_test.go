package wal

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

func TestOverMemory(t *testing.T) { takeOver(t, bucket.NewMemory()) }

func TestOverADirectory(t *testing.T) {
	d, err := bucket.OpenDir(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	takeOver(t, d)
}

func TestOverS3(t *testing.T) { takeOver(t, s3test.Start(t).Open(t, "cluster-a")) }

// dead is what a broker asks of each entry of a dead stream.
func dead(a *tier.Archive) func(context.Context, Entry) (bool, error) {
	return func(ctx context.Context, e Entry) (bool, error) {
		h, err := a.Load(ctx, e.ID)
		if err != nil {
			return false, err
		}
		held, err := a.HoldsWAL(ctx, h, tier.PendingStream{Broker: stream.Broker, Incarnation: stream.Incarnation}, e.Key, e.Start, e.End)
		return !held, err
	}
}

// takeOver is the way of records of three partitions from a broker that dies to its successors' archives: over a stream, a seal by racing
// successors, adoption, reads, a merge, and the sweep of all the dead broker left.
func takeOver(t *testing.T, b bucket.Bucket) {
	c := ctx(t)
	a := tier.New(tier.Options{Heads: b, ClusterID: "cluster", ClusterIncarnation: "life-1"})
	defer a.Close()
	mine := tier.PendingStream{Broker: stream.Broker, Incarnation: stream.Incarnation, Epoch: 1}
	heads := map[int32]*tier.Head{}
	for p := range int32(3) {
		h, err := a.ClaimWith(c, partition(p), "topic", nil, tier.Owner{Broker: 7, Incarnation: "run-a", Epoch: 1}, tier.ClaimOptions{Stream: &mine})
		require.NoError(t, err)
		heads[p] = h
	}
	o := options(b)
	o.CombineEvery = 5
	w := open(t, o)
	want := map[int32][]one{}
	next := map[int32]int64{}
	for i := range 17 {
		var batches []one
		for p := range int32(3) {
			if i%(int(p)+1) == 0 {
				x := makeBatch(t, partition(p), 1, next[p], 3, 3000)
				next[p] += 3
				batches, want[p] = append(batches, x), append(want[p], x)
			}
		}
		require.NoError(t, wait(t, put(t, w, batches...)))
	}
	// Racing successors find the same end.
	var ends [4]uint64
	var wg sync.WaitGroup
	for i := range ends {
		wg.Go(func() {
			if s, err := Seal(c, b, tailOp, stream, "life-1"); err == nil {
				ends[i] = s.End
			}
		})
	}
	wg.Wait()
	require.Equal(t, [4]uint64{18, 18, 18, 18}, ends)
	late, err := w.Put(w.NewBuilder())
	require.NoError(t, err)
	require.ErrorIs(t, wait(t, late), ErrSealed)

	s, err := Seal(c, b, tailOp, stream, "life-1")
	require.NoError(t, err)
	next2 := tier.Owner{Broker: 8, Incarnation: "run-b", Epoch: 2}
	theirs := tier.PendingStream{Broker: 8, Incarnation: "run-b", Epoch: 2}
	for p := range int32(3) {
		h, err := a.ClaimWith(c, partition(p), "topic", heads[p], next2, tier.ClaimOptions{Stream: &theirs})
		require.NoError(t, err)
		entries, err := s.Entries(c, partition(p))
		require.NoError(t, err)
		var exts []tier.Extent
		for i := range entries {
			exts = append(exts, entries[i].Extent())
		}
		h, err = a.Adopt(c, h.ID, h, next2, exts, nil, []tier.PendingStream{mine})
		require.NoError(t, err)
		require.Equal(t, []tier.PendingStream{theirs}, h.Pending)
		heads[p] = h
		require.Equal(t, next[p], h.End)
		require.Equal(t, joined(want[p]), readAll(t, a, h))
		require.NoError(t, a.Verify(c, h.ID, tier.VerifyOptions{}, func(x tier.Problem) { t.Errorf("%v", x) }))
	}
	r, err := SweepDead(c, b, tailOp, stream, dead(a))
	require.NoError(t, err)
	require.Equal(t, 1, r.Deleted) // the opening object
	require.Equal(t, 17, r.Kept)
	for p := range int32(3) {
		h, changed, err := a.Merge(c, partition(p), heads[p], next2, tier.MergeOptions{Now: 1})
		require.NoError(t, err)
		require.True(t, changed)
		require.Equal(t, joined(want[p]), readAll(t, a, h))
		require.NoError(t, a.Verify(c, h.ID, tier.VerifyOptions{}, func(x tier.Problem) { t.Errorf("%v", x) }))
	}
	r, err = SweepDead(c, b, tailOp, stream, dead(a))
	require.NoError(t, err)
	require.Equal(t, 17, r.Deleted)
	left, err := list(c, b, tailOp, stream, 0)
	require.NoError(t, err)
	require.Equal(t, []found{{seq: 18, size: sealLen}}, left)
	again, err := Seal(c, b, tailOp, stream, "life-1")
	require.NoError(t, err)
	require.EqualValues(t, 18, again.End)
	// The zombie comes back: nothing gets through, and nothing changes.
	late, err = w.Put(w.NewBuilder())
	require.ErrorIs(t, err, ErrSealed)
	require.Nil(t, late)
	require.NoError(t, w.Close(c))
}

func joined(batches []one) string {
	var all strings.Builder
	for _, x := range batches {
		all.Write(x.b)
	}
	return all.String()
}

func readAll(t *testing.T, a *tier.Archive, h *tier.Head) string {
	var all strings.Builder
	for at := h.Start; at < h.End; {
		b, err := a.Read(ctx(t), h, at, 5000, tailOp)
		require.NoError(t, err)
		for _, s := range b.Slices {
			all.Write(s)
		}
		if b.Release != nil {
			b.Release()
		}
		require.Greater(t, b.Next, at)
		at = b.Next
	}
	return all.String()
}

// TestZombieAfterSweep: a writer that was stopped comes back after its stream was sealed, adopted and swept, with uploads under way at
// numbers before, at, and behind the seal.
func TestZombieAfterSweep(t *testing.T) {
	for stop := range 8 {
		mem := bucket.NewMemory()
		hold := make(chan struct{})
		var stopped atomic.Bool
		f := bucket.NewFault(mem, func(bucket.Call) bucket.Action {
			if stopped.Load() {
				return bucket.Action{Hold: hold} // SIGSTOP: nothing leaves the process any more
			}
			return bucket.Action{}
		})
		w := open(t, options(f))
		for i := range stop {
			require.NoError(t, wait(t, put(t, w, makeBatch(t, partition(1), 0, int64(i), 1, 10))))
			w.SetFloor(uint64(i))
			_, err := w.Sweep(ctx(t), 1)
			require.NoError(t, err)
		}
		stopped.Store(true)
		var us []*Upload
		for i := range 3 {
			us = append(us, put(t, w, makeBatch(t, partition(1), 0, int64(stop+i), 1, 10)))
		}
		s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
		require.NoError(t, err)
		require.EqualValues(t, stop+1, s.End)
		_, err = SweepDead(ctx(t), mem, tailOp, stream, func(context.Context, Entry) (bool, error) { return true, nil })
		require.NoError(t, err)
		close(hold)
		for _, u := range us {
			require.ErrorIs(t, wait(t, u), ErrSealed)
		}
		_, err = w.Sweep(ctx(t), 1)
		require.NoError(t, err)
		again, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
		require.NoError(t, err)
		require.Equal(t, s.End, again.End)
		got, err := again.Entries(ctx(t), partition(1))
		require.NoError(t, err)
		require.Empty(t, got)
	}
}

// TestAdoptionIsCheap: a thousand partitions find what is theirs in a stream of 200 objects with one pass: a few dozen reads, and
// memory in proportion to the footers.
func TestAdoptionIsCheap(t *testing.T) {
	const partitions, objects = 1000, 200
	mem := bucket.NewMemory()
	o := options(mem)
	o.CombineEvery = 64
	w := open(t, o)
	raw := makeBatch(t, partition(0), 1, 0, 1, 1)
	for i := range objects {
		b := w.NewBuilder()
		for p := range int32(partitions) {
			batch.Stamp(raw.b, int64(i), 1)
			raw.h.BaseOffset = int64(i)
			b.Begin(Part{ID: frame.PartitionID{Topic: frame.TopicID{1, 15: byte(p % 7)}, Partition: p}, Topic: fmt.Sprintf("topic-%d", p%7), Epoch: 1})
			require.NoError(t, b.Add(raw.b, &raw.h, 1_700_000_000_000+int64(i)))
		}
		u, err := w.Put(b)
		require.NoError(t, err)
		require.NoError(t, wait(t, u))
	}
	var calls, bytes atomic.Int64
	meter := bucket.NewMeter(mem, func(_ bucket.Op, _ string, n int64, _ time.Duration, _ error) {
		calls.Add(1)
		bytes.Add(n)
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	s, err := Seal(ctx(t), meter, tailOp, stream, "life-1")
	require.NoError(t, err)
	n := 0
	for p := range int32(partitions) {
		entries, err := s.Entries(ctx(t), frame.PartitionID{Topic: frame.TopicID{1, 15: byte(p % 7)}, Partition: p})
		require.NoError(t, err)
		require.Len(t, entries, objects)
		require.True(t, slices.IsSortedFunc(entries, func(a, b Entry) int { return int(a.Start - b.Start) }))
		n += len(entries)
	}
	took := time.Since(start)
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	runtime.KeepAlive(s)
	t.Logf("%d entries of %d objects: %d calls, %d KiB read, %v, %d MiB held", n, objects, calls.Load(), bytes.Load()>>10, took, held>>20)
	require.Less(t, calls.Load(), int64(40))
	require.Less(t, held, int64(96<<20))
}

// TestManyPuts: several uploads in flight and in order, from many objects, under a writer's own sweep.
func TestManyPuts(t *testing.T) {
	mem := bucket.NewMemory()
	o := options(mem)
	w := open(t, o)
	var us []*Upload
	for i := range int64(300) {
		us = append(us, put(t, w, makeBatch(t, partition(1), 0, i, 1, 500)))
		if i%10 == 9 {
			w.SetFloor(w.Stats().Acked)
			_, err := w.Sweep(ctx(t), i)
			require.NoError(t, err)
		}
		require.LessOrEqual(t, w.Stats().InFlight, 4)
	}
	for i, u := range us {
		require.NoError(t, wait(t, u))
		require.EqualValues(t, i+1, u.Seq)
	}
	require.Less(t, w.Stats().LiveObjects, 40)
	s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
	require.NoError(t, err)
	require.EqualValues(t, 301, s.End)
	got := contents(t, mem, s, partition(1))
	require.NotEmpty(t, got)
	require.Equal(t, makeBatch(t, partition(1), 0, 299, 1, 500).b, got[len(got)-1])
}
