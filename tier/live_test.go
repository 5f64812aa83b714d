package tier

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

// TestEverythingAtOnce runs rolls, merges, retention, sweeps without delay, and readers at the same time. All of the owner's tasks
// change the same head, each from the one it knows; readers follow with heads that grow old.
func TestEverythingAtOnce(t *testing.T) {
	w := newWorld(t, 11)
	w.open(withCache(t, func() bucket.Bucket { return w.b }))
	w.claim()
	const rolls = 60
	first := w.h
	for range rolls { // the model is complete before anything runs, so that readers need no lock
		w.write(4)
	}
	var head atomic.Pointer[Head]
	head.Store(first)
	newer := func(h *Head) {
		for {
			cur := head.Load()
			if h == nil || h.Version <= cur.Version || head.CompareAndSwap(cur, h) {
				return
			}
		}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	task := func(f func(h *Head) (*Head, error)) {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				h, err := f(head.Load())
				newer(h)
				// The sweep without delay takes objects from under a merge that began with an older head.
				if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrGone) {
					t.Error(err)
					return
				}
			}
		})
	}
	task(func(h *Head) (*Head, error) {
		h, _, err := w.a.Merge(ctx(t), w.id, h, w.owner, MergeOptions{SmallBytes: 4000, TargetBytes: 9000, MinObjects: 3, Now: w.now})
		return h, err
	})
	task(func(h *Head) (*Head, error) {
		h, _, err := w.a.Retain(ctx(t), w.id, h, w.owner, Retention{Ms: -1, Bytes: 20_000, Now: w.now})
		return h, err
	})
	task(func(h *Head) (*Head, error) {
		h, _, err := w.a.SweepPartition(ctx(t), w.id, h, w.now, 0)
		return h, err
	})
	for range 2 {
		task(func(h *Head) (*Head, error) { return nil, w.followReader(h) })
	}
	for i := range rolls {
		src := w.batches[i*4 : i*4+4]
		for {
			h := head.Load()
			spec := ObjectSpec{ID: w.id, Topic: "logs", Epoch: 1, Start: src[0].base, End: src[3].last + 1, Now: w.now, Epochs: h.Epochs}
			e, err := w.a.Upload(ctx(t), spec, sliceSource(src))
			require.NoError(t, err)
			h, err = w.a.CommitRoll(ctx(t), w.id, h, w.owner, []Extent{e}, nil)
			if newer(h); err == nil {
				break
			}
			require.ErrorIs(t, err, ErrConflict)
		}
	}
	close(done)
	wg.Wait()
	h, err := w.a.Load(ctx(t), w.id)
	require.NoError(t, err)
	w.h = h
	require.Equal(t, w.next, h.End)
	w.checkHead(h)
	w.checkAll(h)
	w.checkTimes(h, 20)
	w.owner = Owner{1, "run-2", 2}
	w.claim()
	w.checkSwept()
	w.checkVerify()
}

// followReader reads from the head's start to its end, as a consumer would.
func (w *world) followReader(h *Head) error {
	for at := h.Start; at < h.End; {
		b, err := w.a.Read(ctx(w.t), h, at, 3000, coldOp)
		if err != nil {
			return err
		}
		if b.Bytes > 0 {
			want := w.wantFrom(at, h.End)
			if b.First != want[0].base || string(flat(b)[:len(want[0].bytes)]) != string(want[0].bytes) {
				return errors.New("wrong bytes")
			}
			b.Release()
		}
		at = b.Next
	}
	return nil
}

func TestOverADirectory(t *testing.T) {
	d, err := bucket.OpenDir(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	lifeOver(t, d)
}

func TestOverS3(t *testing.T) {
	s := s3test.Start(t)
	lifeOver(t, s.Open(t, "cluster-a"))
}

// lifeOver is the life of a partition over a real store, from racing claims to its destruction.
func lifeOver(t *testing.T, b bucket.Bucket) {
	w := newWorld(t, 12)
	w.b = b
	w.open(withCache(t, func() bucket.Bucket { return w.b }))
	var wg sync.WaitGroup
	var won atomic.Int64
	for i := range int32(6) {
		wg.Go(func() {
			h, err := w.a.Claim(ctx(t), w.id, "logs", nil, Owner{Broker: i, Incarnation: "racer", Epoch: 1})
			if err == nil {
				won.Add(1)
				assert.Equal(t, i, h.Owner)
				return
			}
			assert.ErrorIs(t, err, ErrFenced)
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, won.Load())
	w.owner.Epoch = 2
	w.claim()
	for range 14 {
		w.write(5)
		w.roll()
	}
	require.True(t, w.merge())
	w.deleteTo(w.h.End / 2)
	w.checkAll(w.h)
	w.checkTimes(w.h, 10)
	h, r, err := w.a.SweepPartition(ctx(t), w.id, w.h, w.now, 0)
	require.NoError(t, err)
	require.Positive(t, r.Deleted)
	require.Empty(t, r.InFlight)
	w.h = h
	w.checkVerify()
	w.open()
	h, err = w.a.Load(ctx(t), w.id)
	require.NoError(t, err)
	w.checkAll(h)
	ids, err := w.a.List(ctx(t))
	require.NoError(t, err)
	require.Len(t, ids, 1)
	_, err = w.a.Tombstone(ctx(t), w.id, h, w.owner, w.now)
	require.NoError(t, err)
	done, err := w.a.DestroyPartition(ctx(t), w.id, 0, w.now)
	require.NoError(t, err)
	require.True(t, done)
	p, err := b.List(ctx(t), coldOp, "", "", 0)
	require.NoError(t, err)
	require.Empty(t, p.Items)
}
