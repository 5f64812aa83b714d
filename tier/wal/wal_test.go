package wal

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

const (
	waitFor = 30 * time.Second
	tick    = time.Millisecond
)

func TestWriteSealRead(t *testing.T) {
	mem := bucket.NewMemory()
	w := open(t, options(mem))
	require.EqualValues(t, 1, w.Next())
	want := map[frame.PartitionID][][]byte{}
	next := map[int32]int64{}
	for i := range 50 {
		var batches []one
		for p := range int32(3) {
			for range 1 + i%3 {
				b := makeBatch(t, partition(p), 4, next[p], 2, 100)
				next[p] += 2
				batches = append(batches, b)
				want[b.id] = append(want[b.id], b.b)
			}
		}
		u := put(t, w, batches...)
		require.EqualValues(t, i+1, u.Seq)
		require.NoError(t, wait(t, u))
		if i == 20 {
			w.SetFloor(10)
		}
	}
	st := w.Stats()
	require.EqualValues(t, 51, st.Next)
	require.EqualValues(t, 51, st.Acked)
	require.Zero(t, st.InFlight)
	require.Equal(t, 51, st.LiveObjects)
	n, err := w.Sweep(ctx(t), 1)
	require.NoError(t, err)
	require.Equal(t, 10, n)
	require.Equal(t, 41, w.Stats().LiveObjects)
	var live int64
	objects, err := list(ctx(t), mem, tailOp, stream, 0)
	require.NoError(t, err)
	for _, o := range objects {
		live += o.size
	}
	require.Equal(t, live, w.Stats().LiveBytes)

	ids, err := List(ctx(t), mem)
	require.NoError(t, err)
	require.Equal(t, []StreamID{stream}, ids)
	_, err = Find(ctx(t), mem, tailOp, stream)
	require.ErrorIs(t, err, ErrNotSealed)
	for range 2 {
		s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
		require.NoError(t, err)
		require.EqualValues(t, 10, s.Floor)
		require.EqualValues(t, 51, s.End)
		require.Empty(t, s.Missing)
		parts, err := s.Partitions(ctx(t))
		require.NoError(t, err)
		require.Len(t, parts, 3)
		for id, all := range want {
			got := contents(t, mem, s, id)
			require.Equal(t, all[len(all)-len(got):], got)
			require.Greater(t, len(got), len(all)/2)
		}
	}
	b := w.NewBuilder()
	fill(t, b, makeBatch(t, partition(0), 4, next[0], 1, 10))
	u, err := w.Put(b)
	require.NoError(t, err)
	require.ErrorIs(t, wait(t, u), ErrSealed)
	_, err = w.Put(w.NewBuilder())
	require.ErrorIs(t, err, ErrSealed)
	require.True(t, w.Stats().Sealed)
	_, err = Open(ctx(t), options(mem))
	require.ErrorIs(t, err, ErrSealed)
	require.NoError(t, w.Close(ctx(t)))
}

func TestSealBeforeOpen(t *testing.T) {
	mem := bucket.NewMemory()
	s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
	require.NoError(t, err)
	require.Zero(t, s.End)
	entries, err := s.Entries(ctx(t), partition(1))
	require.NoError(t, err)
	require.Empty(t, entries)
	_, err = Open(ctx(t), options(mem))
	require.ErrorIs(t, err, ErrSealed)
}

// TestOpenAgain: a start that was cut off goes on; a stream that has more than its opening object is somebody's.
func TestOpenAgain(t *testing.T) {
	mem := bucket.NewMemory()
	require.NoError(t, open(t, options(mem)).Close(ctx(t)))
	w := open(t, options(mem))
	require.NoError(t, wait(t, put(t, w, makeBatch(t, partition(1), 0, 0, 1, 10))))
	_, err := Open(ctx(t), options(mem))
	require.ErrorIs(t, err, ErrSealed)
	// Even when its opening object was swept.
	require.NoError(t, mem.Delete(ctx(t), tailOp, []string{stream.Key(0)}))
	_, err = Open(ctx(t), options(mem))
	require.ErrorIs(t, err, ErrSealed)
}

func TestBuilder(t *testing.T) {
	b := (&Writer{}).NewBuilder()
	x := makeBatch(t, partition(1), 2, 10, 5, 100)
	require.ErrorIs(t, b.Add(x.b, &x.h, 0), ErrNotContiguous) // no part was begun
	b.Begin(Part{ID: x.id, Topic: "t", Epoch: 2})
	require.True(t, b.Empty())
	require.NoError(t, b.Add(x.b, &x.h, 0))
	require.False(t, b.Empty())
	size := b.Size()
	require.Greater(t, size, len(x.b))
	require.ErrorIs(t, b.Add(x.b, &x.h, 0), ErrNotContiguous) // the same again
	y := makeBatch(t, partition(1), 2, 16, 1, 10)
	require.ErrorIs(t, b.Add(y.b, &y.h, 0), ErrNotContiguous) // a hole
	require.ErrorIs(t, b.Add(y.b[:len(y.b)-1], &y.h, 0), ErrNotContiguous)
	require.Equal(t, size, b.Size())
	b.Begin(Part{ID: x.id, Topic: "t", Epoch: 3})
	require.NoError(t, b.Add(y.b, &y.h, 0)) // a hole between parts
	b.Begin(Part{ID: x.id, Topic: "t", Epoch: 4})
	require.ErrorIs(t, b.Add(x.b, &x.h, 0), ErrNotContiguous) // back
	b.endPart()
	require.Equal(t, 2, b.count)
}

// TestLongParts: a part that gets too long goes on as another one; one batch may be longer than that.
func TestLongParts(t *testing.T) {
	mem := bucket.NewMemory()
	w := open(t, options(mem))
	b := w.NewBuilder()
	b.Begin(Part{ID: partition(1), Topic: "t"})
	var all [][]byte
	base := int64(0)
	for _, size := range []int{3 << 20, 1 << 19, 1 << 20, 6 << 20, 100, 100} {
		x := makeBatch(t, partition(1), 0, base, 1, size)
		base++
		require.NoError(t, b.Add(x.b, &x.h, 5))
		all = append(all, x.b)
	}
	u, err := w.Put(b)
	require.NoError(t, err)
	require.NoError(t, wait(t, u))
	s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
	require.NoError(t, err)
	entries, err := s.Entries(ctx(t), partition(1))
	require.NoError(t, err)
	require.Len(t, entries, 4)
	require.Equal(t, all, contents(t, mem, s, partition(1)))
}

func TestEntryCut(t *testing.T) {
	mem := bucket.NewMemory()
	w := open(t, options(mem))
	var batches []one
	for i := range int64(5) {
		batches = append(batches, makeBatch(t, partition(1), 3, 10+10*i, 10, 200))
	}
	require.NoError(t, wait(t, put(t, w, batches...)))
	s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
	require.NoError(t, err)
	entries, err := s.Entries(ctx(t), partition(1))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	e := &entries[0]
	x := e.Extent()
	require.Equal(t, tier.Extent{Start: 10, End: 60, Kind: tier.KindWAL, Key: stream.Key(1), Size: e.Size, Off: headerLen, Len: e.Len, CRC: e.CRC,
		MaxTimestamp: 1_700_000_000_059, MaxAppendTime: 1_700_000_000_500, RetentionTime: 1_700_000_000_059, Bytes: e.Len, Records: 50, Epoch: 3}, x)
	c, ok := e.Cut(25, 40)
	require.True(t, ok)
	require.Equal(t, []int64{25, 40, 20, int64(len(batches[1].b) + len(batches[2].b)), 1_700_000_000_039}, []int64{c.Start, c.End, c.Records, c.Bytes, c.MaxTimestamp})
	require.Equal(t, []any{e.Off, e.Len, e.CRC}, []any{c.Off, c.Len, c.CRC})
	_, ok = e.Cut(60, 90)
	require.False(t, ok)
	_, ok = e.Cut(0, 10)
	require.False(t, ok)
	c, ok = e.Cut(0, 100)
	require.True(t, ok)
	require.Equal(t, *e, c)
}

func TestStreamNames(t *testing.T) {
	for _, s := range []StreamID{{-1, "a"}, {1, ""}, {1, "a/b"}, {1, "a.b"}, {1, string(make([]byte, 101))}} {
		require.False(t, s.Valid(), s)
		_, err := Open(ctx(t), Options{Bucket: bucket.NewMemory(), Stream: s})
		require.Error(t, err)
		_, err = Seal(ctx(t), bucket.NewMemory(), tailOp, s, "")
		require.Error(t, err)
	}
	key := stream.Key(17)
	id, seq, ok := ParseKey(key)
	require.True(t, ok)
	require.Equal(t, stream, id)
	require.EqualValues(t, 17, seq)
	for _, bad := range []string{"", "wal/", key[1:], key + "0", key[:len(key)-1], "wal/0000/7/run-a/00000000000000000017", key[:len(key)-1] + "x", "wal/0/-1/a/00000000000000000017"} {
		_, _, ok := ParseKey(bad)
		require.False(t, ok, bad)
	}
}

// TestFloors: an object never carries a floor above the newest acknowledged one, and a floor never falls.
func TestFloors(t *testing.T) {
	mem := bucket.NewMemory()
	w := open(t, options(mem))
	for i := range int64(5) {
		require.NoError(t, wait(t, put(t, w, makeBatch(t, partition(1), 0, i, 1, 10))))
	}
	w.SetFloor(1000)
	w.SetFloor(3)
	require.EqualValues(t, 1000, w.Stats().Floor)
	n, err := w.Sweep(ctx(t), 1)
	require.NoError(t, err)
	require.Zero(t, n) // nothing durable says so yet
	require.NoError(t, wait(t, put(t, w)))
	n, err = w.Sweep(ctx(t), 1)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	n, err = w.Sweep(ctx(t), 1)
	require.NoError(t, err)
	require.Zero(t, n)
	s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
	require.NoError(t, err)
	require.EqualValues(t, 5, s.Floor)
	require.EqualValues(t, 7, s.End)
	entries, err := s.Entries(ctx(t), partition(1))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// TestOrder: an object that has landed is acknowledged after those before it only, and no more than MaxInFlight are under way.
func TestOrder(t *testing.T) {
	mem := bucket.NewMemory()
	hold := make(chan struct{})
	f := bucket.NewFault(mem, func(c bucket.Call) bucket.Action {
		if c.Verb == bucket.VerbPut && c.Key == stream.Key(1) {
			return bucket.Action{Hold: hold}
		}
		return bucket.Action{}
	})
	w := open(t, options(f))
	var us []*Upload
	for i := range int64(4) {
		us = append(us, put(t, w, makeBatch(t, partition(1), 0, i, 1, 10)))
	}
	require.Eventually(t, func() bool {
		_, err := mem.Stat(ctx(t), tailOp, stream.Key(4))
		return err == nil
	}, waitFor, tick)
	require.EqualValues(t, 1, w.Stats().Acked)
	require.Equal(t, 4, w.Stats().InFlight)
	fifth := make(chan *Upload)
	go func() {
		u, err := w.Put(w.NewBuilder())
		if err == nil {
			fifth <- u
		}
		close(fifth)
	}()
	for _, u := range us {
		select {
		case <-u.Done():
			require.Fail(t, "acknowledged too early")
		case <-fifth:
			require.Fail(t, "too many in flight")
		default:
		}
	}
	close(hold)
	for _, u := range us {
		require.NoError(t, wait(t, u))
	}
	require.NoError(t, wait(t, <-fifth))
}

// TestSealedBehind: what is in flight behind the seal fails, what is before it is acknowledged.
func TestSealedBehind(t *testing.T) {
	mem := bucket.NewMemory()
	hold := make(chan struct{})
	f := bucket.NewFault(mem, func(c bucket.Call) bucket.Action {
		if c.Verb == bucket.VerbPut && c.Key == stream.Key(2) {
			return bucket.Action{Hold: hold}
		}
		return bucket.Action{}
	})
	w := open(t, options(f))
	a := put(t, w, makeBatch(t, partition(1), 0, 0, 1, 10))
	b := put(t, w, makeBatch(t, partition(1), 0, 1, 1, 10))
	c := put(t, w, makeBatch(t, partition(1), 0, 2, 1, 10))
	require.NoError(t, wait(t, a))
	require.Eventually(t, func() bool {
		_, err := mem.Stat(ctx(t), tailOp, stream.Key(3))
		return err == nil
	}, waitFor, tick)
	s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
	require.NoError(t, err)
	require.EqualValues(t, 2, s.End)
	require.Len(t, contents(t, mem, s, partition(1)), 1)
	close(hold)
	require.ErrorIs(t, wait(t, b), ErrSealed)
	require.ErrorIs(t, wait(t, c), ErrSealed)
	r, err := SweepDead(ctx(t), mem, tailOp, stream, func(context.Context, Entry) (bool, error) { return false, nil })
	require.NoError(t, err)
	require.Equal(t, 2, r.Deleted) // the opening object, and what lies behind the seal
	require.Equal(t, 1, r.Kept)
}

func TestCloseWaits(t *testing.T) {
	mem := bucket.NewMemory()
	hold := make(chan struct{})
	f := bucket.NewFault(mem, func(c bucket.Call) bucket.Action {
		if c.Verb == bucket.VerbPut && c.Key != stream.Key(0) {
			return bucket.Action{Hold: hold}
		}
		return bucket.Action{}
	})
	w := open(t, options(f))
	u := put(t, w, makeBatch(t, partition(1), 0, 0, 1, 10))
	over, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, w.Close(over), context.Canceled)
	require.ErrorIs(t, wait(t, u), context.Canceled)
	_, err := w.Put(w.NewBuilder())
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, w.Close(ctx(t)))
}
