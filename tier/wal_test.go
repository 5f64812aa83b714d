package tier

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// walObject puts what is pending into a WAL object, between parts of others, and returns the extents for it. Each part has up to per
// batches.
func (w *world) walObject(h *Head, per int) ([]Extent, string) {
	w.wals++
	key := fmt.Sprintf("%s0000/1/run/%020d", WALFolder, w.wals)
	body := make([]byte, 80+w.rng.IntN(300))
	var exts []Extent
	src := w.pending(h)
	for len(src) > 0 {
		part := src[:min(1+w.rng.IntN(per), len(src))]
		src = src[len(part):]
		e := Extent{Start: part[0].base, End: part[len(part)-1].last + 1, Kind: KindWAL, Key: key, Off: int64(len(body)), Epoch: w.owner.Epoch,
			MaxTimestamp: -1, MaxAppendTime: -1, RetentionTime: -1}
		for _, b := range part {
			body = append(body, b.bytes...)
			e.Len += int64(len(b.bytes))
			e.Records += int64(b.info.Records)
			e.MaxTimestamp = max(e.MaxTimestamp, b.info.MaxTimestamp)
			e.MaxAppendTime = max(e.MaxAppendTime, b.info.AppendTime)
			e.RetentionTime = max(e.RetentionTime, RetentionTime(b.info.MaxTimestamp, b.info.AppendTime))
		}
		e.Start = max(e.Start, h.End) // records were deleted inside a batch
		e.Bytes, e.CRC = e.Len, checksum(body[e.Off:])
		exts = append(exts, e)
		body = append(body, make([]byte, w.rng.IntN(100))...)
	}
	body = append(body, make([]byte, 96)...)
	for i := range exts {
		exts[i].Size = int64(len(body))
	}
	_, err := w.mem.Put(ctx(w.t), coldOp, key, bucket.BytesBody(body), bucket.Condition{IfNoneMatch: true})
	require.NoError(w.t, err)
	return exts, key
}

func (w *world) adopt(per int) string {
	exts, key := w.walObject(w.h, per)
	h, err := w.a.Adopt(ctx(w.t), w.id, w.h, w.owner, exts, []byte("adopted"), []PendingStream{{Broker: 1, Incarnation: "run"}})
	require.NoError(w.t, err)
	w.h = h
	return key
}

func TestReadWALExtents(t *testing.T) {
	for _, cached := range []bool{false, true} {
		w := newWorld(t, 5)
		if cached {
			w.open(withCache(t, func() bucket.Bucket { return w.b }))
		}
		w.claim()
		for range 6 {
			w.write(40)
			w.adopt(20)
			w.write(5)
			w.roll()
		}
		w.checkHead(w.h)
		w.checkAll(w.h)
		w.checkTimes(w.h, 10)
		w.checkVerify()
		loaded, err := DecodeHead(w.h.Encode())
		require.NoError(t, err)
		require.Equal(t, w.h.Extents, loaded.Extents)
		w.deleteTo(w.h.Extents[1].Start + 1)
		w.checkAll(w.h)
	}
}

// TestMergeWALExtents: they are merged first and even alone, however large, and their object is never dropped by the partition.
func TestMergeWALExtents(t *testing.T) {
	w := newWorld(t, 6)
	w.claim()
	w.write(30)
	w.roll()
	w.write(60)
	key := w.adopt(20)
	w.write(3)
	w.roll()
	require.True(t, w.a.MergeDue(w.h, MergeOptions{}))
	held, err := w.a.HoldsWAL(ctx(t), w.h, PendingStream{Broker: 1, Incarnation: "run"}, key, 0, w.next)
	require.NoError(t, err)
	require.True(t, held)
	merges := 0
	for slices.ContainsFunc(w.h.Extents, inWAL) {
		h, changed, err := w.a.Merge(ctx(t), w.id, w.h, w.owner, MergeOptions{TargetBytes: 6000, Now: w.now})
		require.NoError(t, err)
		require.True(t, changed)
		w.h = h
		merges++
		w.checkHead(h)
		w.checkAll(h)
	}
	require.Greater(t, merges, 1)
	require.Empty(t, w.h.Dropped)
	held, err = w.a.HoldsWAL(ctx(t), w.h, PendingStream{Broker: 1, Incarnation: "run"}, key, 0, w.next)
	require.NoError(t, err)
	require.False(t, held)
	w.checkTimes(w.h, 5)
	w.checkVerify()
	w.checkSwept()
	require.Len(t, w.keysOf(WALFolder), 1)
	// A head that is rebuilt finds all of it, with the producers where somebody knew them.
	r, _, err := w.a.RebuildHead(ctx(t), w.id)
	require.NoError(t, err)
	require.Equal(t, w.h.End, r.End)
}

func TestMergedProducers(t *testing.T) {
	w := newWorld(t, 6)
	w.claim()
	w.write(3)
	w.adopt(3)
	require.True(t, w.merge())
	o, err := OpenObject(ctx(t), w.mem, coldOp, w.h.Extents[0].Key)
	require.NoError(t, err)
	p, err := o.Producers(ctx(t))
	require.NoError(t, err)
	require.Equal(t, "adopted", string(p))
	require.Equal(t, w.batches[2].info.AppendTime, o.Identity.MaxAppendTime)
}

// TestWALExtentsStayInline: a page would hide them from merges.
func TestWALExtentsStayInline(t *testing.T) {
	w := newWorld(t, 7)
	w.claim()
	for range 30 {
		w.write(1)
		w.adopt(1)
	}
	for range 30 {
		w.write(1)
		w.roll()
	}
	require.Empty(t, w.h.Pages)
	for w.merge() {
		w.checkHead(w.h)
	}
	w.write(1)
	w.roll()
	require.False(t, slices.ContainsFunc(w.h.Extents, inWAL))
	w.checkAll(w.h)
	require.NotEmpty(t, w.keysOf(WALFolder))
}

func TestDamagedPart(t *testing.T) {
	w := newWorld(t, 8)
	w.claim()
	w.write(10)
	key := w.adopt(5)
	e := w.h.Extents[0]
	body, _, err := bucket.GetAll(ctx(t), w.mem, coldOp, key, 1<<20)
	require.NoError(t, err)
	write := func(b []byte) {
		w.a.meta.drop(e.viewKey())
		_, err := w.mem.Put(ctx(t), coldOp, key, bucket.BytesBody(b), bucket.Condition{})
		require.NoError(t, err)
	}
	bad := slices.Clone(body)
	bad[e.Off+30] ^= 4
	write(bad)
	_, err = w.a.Read(ctx(t), w.h, 0, 100, coldOp)
	require.ErrorIs(t, err, ErrCorrupt)
	var problems []Problem
	require.NoError(t, w.a.Verify(ctx(t), w.id, VerifyOptions{}, func(p Problem) { problems = append(problems, p) }))
	require.NotEmpty(t, problems)
	_, _, err = w.a.Merge(ctx(t), w.id, w.h, w.owner, MergeOptions{Now: w.now})
	require.ErrorIs(t, err, ErrCorrupt)
	write(body[:len(body)-1])
	problems = nil
	require.NoError(t, w.a.Verify(ctx(t), w.id, VerifyOptions{MetaOnly: true}, func(p Problem) { problems = append(problems, p) }))
	require.NotEmpty(t, problems)
	require.NoError(t, w.mem.Delete(ctx(t), coldOp, []string{key}))
	w.a.meta.drop(e.viewKey())
	_, err = w.a.Read(ctx(t), w.h, 0, 100, coldOp)
	require.ErrorIs(t, err, ErrGone)
	// Bits that flip on the way once are read again.
	write(body)
	f := bucket.NewFault(w.mem, bucket.Only(func(c bucket.Call) bool { return c.Key == key }, func(c bucket.Call) bucket.Action {
		return bucket.Action{Flip: c.N == 1 || c.N == 4, FlipAt: 17}
	}))
	w.b = f
	w.open()
	w.checkRead(w.h, 0, 100)
	_, changed, err := w.a.Merge(ctx(t), w.id, w.h, w.owner, MergeOptions{Now: w.now})
	require.NoError(t, err)
	require.True(t, changed)
}

func TestClaimWithStream(t *testing.T) {
	w := newWorld(t, 9)
	mine := PendingStream{Broker: 1, Incarnation: "run-1", Epoch: 1, From: 4}
	h, err := w.a.ClaimWith(ctx(t), w.id, "logs", nil, w.owner, ClaimOptions{Stream: &mine, More: func(h *Head) { h.SafeClass = "object" }})
	require.NoError(t, err)
	require.Equal(t, []PendingStream{mine}, h.Pending)
	require.Equal(t, "object", h.SafeClass)
	again, err := w.a.ClaimWith(ctx(t), w.id, "logs", h, w.owner, ClaimOptions{Stream: &mine})
	require.NoError(t, err)
	require.Same(t, h, again)
	// A roll keeps it, and so does the next owner, who adds its own.
	w.h = h
	w.write(3)
	w.roll()
	w.owner = Owner{Broker: 2, Incarnation: "run-2", Epoch: 2}
	other := PendingStream{Broker: 2, Incarnation: "run-2", Epoch: 2}
	h, err = w.a.ClaimWith(ctx(t), w.id, "logs", w.h, w.owner, ClaimOptions{Stream: &other})
	require.NoError(t, err)
	require.Equal(t, []PendingStream{mine, other}, h.Pending)
	// An owner that had none adds it later.
	w.owner = Owner{Broker: 3, Incarnation: "run-3", Epoch: 3}
	h, err = w.a.Claim(ctx(t), w.id, "logs", h, w.owner)
	require.NoError(t, err)
	late := PendingStream{Broker: 3, Incarnation: "run-3", Epoch: 3}
	h, err = w.a.ClaimWith(ctx(t), w.id, "logs", h, w.owner, ClaimOptions{Stream: &late})
	require.NoError(t, err)
	require.Equal(t, []PendingStream{mine, other, late}, h.Pending)
	// Adoption removes what is done.
	w.h = h
	w.write(2)
	exts, key := w.walObject(h, 5)
	held, err := w.a.HoldsWAL(ctx(t), h, mine, key, exts[0].Start, exts[0].End)
	require.NoError(t, err)
	require.True(t, held)
	h, err = w.a.Adopt(ctx(t), w.id, h, w.owner, exts, nil, []PendingStream{mine, other})
	require.NoError(t, err)
	require.Equal(t, []PendingStream{late}, h.Pending)
	require.Equal(t, "producers", string(h.Producers))
	// The same again: the extents lie below the end now.
	_, err = w.a.Adopt(ctx(t), w.id, h, w.owner, exts, nil, []PendingStream{mine})
	require.ErrorIs(t, err, ErrNotContiguous)
	same, err := w.a.Adopt(ctx(t), w.id, h, w.owner, nil, nil, []PendingStream{mine})
	require.NoError(t, err)
	require.Same(t, h, same)
	_, err = w.a.Adopt(ctx(t), w.id, h, Owner{Broker: 2, Incarnation: "run-2", Epoch: 2}, nil, nil, []PendingStream{late})
	require.ErrorIs(t, err, ErrFenced)
	_, err = w.a.Adopt(ctx(t), w.id, h, w.owner, []Extent{{Start: h.End, End: h.End + 1, Kind: KindData}}, nil, nil)
	require.ErrorIs(t, err, ErrFeature)
	held, err = w.a.HoldsWAL(ctx(t), h, mine, key, exts[0].End, exts[0].End+5)
	require.NoError(t, err)
	require.False(t, held) // not pending, and nothing names it
}

// TestDroppedNeverHoldsWAL: whatever a head says, a sweep deletes no WAL object.
func TestDroppedNeverHoldsWAL(t *testing.T) {
	w := newWorld(t, 10)
	w.claim()
	w.write(3)
	key := w.adopt(3)
	h, err := w.a.Swap(ctx(t), w.id, w.h, func(h *Head) error {
		h.Dropped = append(h.Dropped, Dropped{Key: key, Time: 1})
		return nil
	})
	require.NoError(t, err)
	_, _, err = w.a.SweepDropped(ctx(t), w.id, h, w.now, 0)
	require.NoError(t, err)
	require.Equal(t, []string{key}, w.keysOf(WALFolder))
	// Nor does retention, or the partition's end.
	h, err = w.a.Load(ctx(t), w.id)
	require.NoError(t, err)
	w.h = h
	w.retain(Retention{Ms: -1, Bytes: 0, Now: w.now})
	require.Empty(t, w.h.Extents)
	w.checkSwept()
	_, err = w.a.Tombstone(ctx(t), w.id, w.h, w.owner, w.now)
	require.NoError(t, err)
	done, err := w.a.DestroyPartition(ctx(t), w.id, 0, w.now)
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, []string{key}, w.keysOf(WALFolder))
}

func TestPartBlocks(t *testing.T) {
	w := newWorld(t, 11)
	w.plain = true
	w.write(30)
	var raw []byte
	for _, b := range w.batches {
		raw = append(raw, b.bytes...)
	}
	e := Extent{Start: 0, End: w.next, Kind: KindWAL, Key: WALFolder + "x", Off: 80, Len: int64(len(raw)), CRC: checksum(raw)}
	for _, piece := range []int{1, 61, 100, len(raw)} {
		var bufs [][]byte
		for i := 0; i < len(raw); i += piece {
			bufs = append(bufs, raw[i:min(i+piece, len(raw))])
		}
		s := newScatter(bufs)
		blocks, err := partBlocks(&s, &e, 600)
		require.NoError(t, err)
		require.Greater(t, len(blocks), 3)
		require.Equal(t, -1, verifyBlocks(&s, blocks))
		next, records := int64(0), int64(0)
		for _, k := range blocks {
			require.Equal(t, next, k.Base)
			require.True(t, k.Stored <= 600 || k.Batches == 1)
			next, records = k.Last+1, records+k.Records
		}
		require.Equal(t, []int64{w.next, int64(len(w.recs))}, []int64{next, records})
	}
	s := newScatter([][]byte{raw})
	for name, x := range map[string]Extent{
		"ends early": {Start: 0, End: w.next + 1, Off: 80, Len: e.Len, CRC: e.CRC},
		"torn":       {Start: 0, End: 2, Off: 80, Len: e.Len - 5, CRC: checksum(raw[:len(raw)-5])},
	} {
		_, err := partBlocks(&s, &x, 600)
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
}

// FuzzPart walks parts whose checksum is right and whose batches are hostile.
func FuzzPart(f *testing.F) {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{BaseOffset: 10})
	b.Add(1, nil, []byte("x"), nil)
	one := slices.Clone(b.Bytes())
	f.Add(one, int64(10), int64(11), 30)
	f.Add(append(slices.Clone(one), one...), int64(10), int64(11), 7)
	f.Fuzz(func(t *testing.T, raw []byte, start, end int64, piece int) {
		if len(raw) == 0 {
			return
		}
		piece = max(1, min(piece, len(raw)))
		var bufs [][]byte
		for i := 0; i < len(raw); i += piece {
			bufs = append(bufs, raw[i:min(i+piece, len(raw))])
		}
		e := Extent{Start: start, End: end, Kind: KindWAL, Key: "k", Off: 80, Len: int64(len(raw)), CRC: checksum(raw)}
		s := newScatter(bufs)
		blocks, err := partBlocks(&s, &e, 100)
		if err == nil {
			require.Equal(t, -1, verifyBlocks(&s, blocks))
		}
		_ = partBatches(raw, &e, func([]byte, *batch.Header) error { return nil })
	})
}

// TestFailEveryCallWithWAL: the life of a partition whose data comes through WAL objects, with a failure or a crash at every call.
func TestFailEveryCallWithWAL(t *testing.T) {
	life := func(x *actor) {
		for i := range 6 {
			x.write(3)
			exts, _ := x.walObject(&Head{End: x.batches[len(x.batches)-3].base}, 2)
			x.must("adopt", func(h *Head) (*Head, error) {
				if h.End > exts[0].Start {
					return h, nil // the swap of the try before had happened
				}
				return x.a.Adopt(x.ctx, x.id, h, x.owner, exts, []byte("p"), nil)
			})
			if i%2 == 1 {
				x.write(2)
				x.must("roll", func(h *Head) (*Head, error) { return x.rollOnce(h) })
			}
			if i == 3 {
				x.must("merge", func(h *Head) (*Head, error) {
					h, _, err := x.a.Merge(x.ctx, x.id, h, x.owner, MergeOptions{TargetBytes: 3000, Now: x.now})
					return h, err
				})
				x.must("sweep", func(h *Head) (*Head, error) {
					h, _, err := x.a.SweepPartition(x.ctx, x.id, h, x.now, 0)
					return h, err
				})
			}
		}
		x.must("delete", func(h *Head) (*Head, error) { return x.a.DeleteRecords(x.ctx, x.id, h, x.owner, x.next-11, x.now) })
	}
	probe := newActor(t, nil)
	life(probe)
	calls := probe.f.Calls()
	probe.check()
	for name, plan := range map[string]func(k int) bucket.Plan{
		"fails before effect": func(k int) bucket.Plan { return bucket.FailAt(k, errDown) },
		"fails after effect":  func(k int) bucket.Plan { return bucket.FailAfterAt(k, errDown) },
		"crash before effect": func(k int) bucket.Plan { return bucket.CrashAt(k, false) },
		"crash after effect":  func(k int) bucket.Plan { return bucket.CrashAt(k, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for k := 1; k <= calls; k++ {
				x := newActor(t, plan(k))
				life(x)
				x.check()
				_ = x.a.Close()
				if t.Failed() {
					t.Fatalf("call %d", k)
				}
			}
		})
	}
}
