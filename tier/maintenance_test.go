package tier

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

func TestFutureTimestampsCountAsAppendTime(t *testing.T) {
	const day = 24 * 3600 * 1000
	require.EqualValues(t, 500, RetentionTime(500, 900))
	require.EqualValues(t, 900, RetentionTime(5000, 900))
	require.EqualValues(t, 900, RetentionTime(-1, 900))
	require.EqualValues(t, 5000, RetentionTime(5000, 0))

	w := newWorld(t, 1)
	w.claim()
	now := w.now
	w.write(3)
	w.now = now + 100*365*day // a producer's clock is a hundred years ahead
	w.write(1)
	w.now = now
	for i := range w.batches {
		w.batches[i].info.AppendTime = now
	}
	w.roll()
	require.Greater(t, w.h.MaxTimestamp, now+day)
	w.now = now + 10*day
	w.retain(Retention{Ms: 11 * day, Bytes: -1, Now: w.now})
	require.Zero(t, w.h.Start)
	w.retain(Retention{Ms: 9 * day, Bytes: -1, Now: w.now})
	require.Equal(t, w.h.End, w.h.Start)
	w.checkHead(w.h)
	// All of the head is there also when every extent has expired.
	require.NotEmpty(t, w.h.Epochs)
	require.NotEmpty(t, w.h.Producers)
	_, _, _, ok, err := w.a.FindTime(ctx(t), w.h, 0, 0)
	require.NoError(t, err)
	require.False(t, ok)
	w.now += day
	w.write(2)
	w.roll()
	w.checkAll(w.h)
	w.checkTimes(w.h, 1)
}

func TestRetentionBySizeCountsBothTiers(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	for range 40 {
		w.write(10)
		w.roll()
	}
	require.NotEmpty(t, w.h.Pages)
	all := w.h.Bytes
	w.retain(Retention{Ms: -1, Bytes: all, Now: w.now})
	require.Zero(t, w.h.Start)
	w.retain(Retention{Ms: -1, Bytes: all, LocalBytes: all / 2, Now: w.now})
	require.Positive(t, w.h.Start)
	require.LessOrEqual(t, w.h.Bytes, all/2+all/40*2)
	w.retain(Retention{Ms: -1, Bytes: 0, Now: w.now})
	require.Equal(t, w.h.End, w.h.Start)
	require.Empty(t, w.h.Pages)
	require.Empty(t, w.h.Extents)
	w.checkSwept()
	require.Empty(t, w.keysOf("data/"))
	require.Empty(t, w.keysOf("page/"))
}

func TestDroppedPagesStandForWhatIsBelow(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	for range 80 {
		w.write(2)
		w.roll()
	}
	require.Greater(t, w.h.Pages[0].Level, 1)
	objects := len(w.keysOf("data/"))
	// Into the middle of the oldest page's first child, and on in small steps.
	es := w.liveExtents(w.h)
	for i := 5; i < 70; i += 3 {
		w.deleteTo(es[i].Start + 1)
		w.checkHead(w.h)
		w.checkAll(w.h)
	}
	require.Less(t, len(w.h.Dropped), 60, "pages stand for their extents")
	require.Len(t, w.keysOf("data/"), objects)
	h, r, err := w.a.SweepDropped(ctx(t), w.id, w.h, w.now, time.Hour)
	require.NoError(t, err)
	require.Same(t, w.h, h)
	require.Equal(t, len(w.h.Dropped), r.Waiting)
	w.checkSwept()
	require.Len(t, w.keysOf("data/"), len(w.liveExtents(w.h)))
	w.checkVerify()
}

func TestDeleteRecordsPastTheArchive(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	w.write(10)
	w.roll()
	w.write(5)
	b := w.batches[len(w.batches)-2]
	for b.last == b.base {
		w.write(1)
		b = w.batches[len(w.batches)-2]
	}
	w.deleteTo(b.last) // inside a batch that isn't rolled yet
	require.Equal(t, []int64{b.last, b.last}, []int64{w.h.Start, w.h.End})
	w.roll()
	require.Equal(t, b.last, w.h.Extents[0].Start)
	w.checkHead(w.h)
	w.checkAll(w.h)
	w.checkTimes(w.h, 1)
	_, err := w.a.DeleteRecords(ctx(t), w.id, w.h, w.owner, w.h.Ceiling+1, w.now)
	require.ErrorIs(t, err, ErrCeiling)
}

func TestMergePicksWhatIsWorthIt(t *testing.T) {
	o := MergeOptions{SmallBytes: 100, TargetBytes: 400, MinObjects: 3}
	o.setDefaults()
	run := func(start int64, sizes ...int64) []int {
		var es []Extent
		for i, s := range sizes {
			e := Extent{Start: int64(i), End: int64(i) + 1, Kind: KindData, Size: s}
			if s == 0 {
				e.Kind = KindVoid
			}
			es = append(es, e)
		}
		from, to := o.pick(es, start)
		return []int{from, to}
	}
	require.Equal(t, []int{0, 0}, run(0))
	require.Equal(t, []int{0, 0}, run(0, 10, 10))
	require.Equal(t, []int{0, 3}, run(0, 10, 10, 10))
	require.Equal(t, []int{1, 4}, run(1, 10, 10, 10, 10))
	require.Equal(t, []int{2, 5}, run(0, 10, 500, 10, 10, 10))
	require.Equal(t, []int{3, 6}, run(0, 10, 10, 0, 10, 10, 10))
	require.Equal(t, []int{1, 4}, run(0, 90, 10, 10, 10), "the large one is left out")
	require.Equal(t, []int{0, 4}, run(0, 99, 99, 99, 99, 99, 99))
}

func TestMergeKeepsEverything(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	for range 6 {
		w.write(4)
		w.roll()
	}
	w.owner = Owner{1, "run-2", 2}
	w.claim()
	for range 4 {
		w.write(4)
		w.roll()
	}
	before := w.h
	h, changed, err := w.a.Merge(ctx(t), w.id, w.h, w.owner, MergeOptions{Now: w.now})
	require.NoError(t, err)
	require.True(t, changed)
	w.h = h
	require.Len(t, h.Extents, 1)
	require.Len(t, h.Dropped, len(before.Extents))
	e := h.Extents[0]
	require.Equal(t, []int64{before.Bytes, before.Records, before.End}, []int64{h.Bytes, h.Records, h.End})
	o, err := OpenObject(ctx(t), w.mem, coldOp, e.Key)
	require.NoError(t, err)
	require.Len(t, o.Identity.Epochs, 2)
	var retention, appended int64
	for _, x := range before.Extents {
		retention, appended = max(retention, x.RetentionTime), max(appended, x.MaxAppendTime)
	}
	require.Equal(t, []int64{retention, appended}, []int64{e.RetentionTime, e.MaxAppendTime})
	p, err := o.Producers(ctx(t))
	require.NoError(t, err)
	require.Equal(t, "producers", string(p))
	w.checkHead(h)
	w.checkAll(h)
	w.checkAll(before) // its objects are there until the sweep
	w.checkTimes(h, 3)
	w.checkSwept()
	require.Len(t, w.keysOf("data/"), 1)
	w.checkVerify()
}

func TestMergeLosesAgainstRetention(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	for range 6 {
		w.write(4)
		w.roll()
	}
	old := w.h
	w.deleteTo(w.h.Extents[2].Start)
	h, changed, err := w.a.Merge(ctx(t), w.id, old, w.owner, MergeOptions{Now: w.now})
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, w.h.Attempt, h.Attempt)
	w.checkSwept() // the output was handed over
	w.checkAll(w.h)
}

func TestMergeRefusesDamagedInputs(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	for range 6 {
		w.write(4)
		w.roll()
	}
	key := w.h.Extents[3].Key
	raw, _, err := bucket.GetAll(ctx(t), w.mem, coldOp, key, 1<<20)
	require.NoError(t, err)
	raw[100] ^= 1
	_, err = w.mem.Put(ctx(t), coldOp, key, bucket.BytesBody(raw), bucket.Condition{})
	require.NoError(t, err)
	_, changed, err := w.a.Merge(ctx(t), w.id, w.h, w.owner, MergeOptions{Now: w.now})
	require.ErrorIs(t, err, ErrCorrupt)
	require.False(t, changed)
}

func TestSweepDeletesOnlyWhatIsDead(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	w.write(5)
	w.roll()
	orphan := func() string {
		src := w.pending(w.h)
		e, err := w.a.Upload(ctx(t), w.spec(w.h, src), src)
		require.NoError(t, err)
		return e.Key
	}
	put := func(key string) string {
		_, err := w.mem.Put(ctx(t), coldOp, key, bucket.BytesBody([]byte("x")), bucket.Condition{})
		require.NoError(t, err)
		return key
	}
	w.write(2)
	old := orphan()
	oldPage := put(pageKey(w.id, 1))
	w.owner = Owner{1, "run-2", 2}
	w.claim()
	inFlight, handed, doubt := orphan(), orphan(), orphan()
	foreign := put(DataPrefix(w.id) + "readme.txt")
	w.a.Discard(w.id, handed, 0)
	w.a.Discard(w.id, doubt, w.h.Version+1)
	other := put(dataKey(frame.PartitionID{Topic: w.id.Topic, Partition: 8}, 0, 0))

	// Nobody but a later head decides about an attempt that may still be under way.
	h, r, err := w.a.SweepPartition(ctx(t), w.id, w.h, w.now, 0)
	require.NoError(t, err)
	require.Equal(t, 3, r.Deleted)
	require.ElementsMatch(t, []string{inFlight, doubt}, r.InFlight)
	require.Equal(t, []string{foreign}, r.Unknown)
	require.ElementsMatch(t, []string{w.h.Extents[0].Key, inFlight, doubt, foreign, other}, w.keysOf("data/"))
	require.NotContains(t, append(w.keysOf("data/"), w.keysOf("page/")...), old, oldPage)
	w.h = h
	w.roll()
	w.h, r, err = w.a.SweepPartition(ctx(t), w.id, w.h, w.now, 0)
	require.NoError(t, err)
	require.Equal(t, 1, r.Deleted)
	require.Equal(t, []string{inFlight}, r.InFlight)
	require.Empty(t, w.a.discards)
	w.checkAll(w.h)
}

func TestHistoryProtectsWhatItNames(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	for range 30 {
		w.write(2)
		w.roll()
	}
	kept := w.h
	_, err := w.mem.Put(ctx(t), coldOp, HistoryKey(w.id, kept.Version), bucket.BytesBody(kept.Encode()), bucket.Condition{})
	require.NoError(t, err)
	w.deleteTo(w.next)
	w.owner = Owner{1, "run-2", 2}
	w.claim()
	h, r, err := w.a.SweepPartition(ctx(t), w.id, w.h, w.now, 0)
	require.NoError(t, err)
	require.Zero(t, r.Deleted)
	w.h = h
	w.checkAll(kept)
}

func TestTombstoneAndDestroy(t *testing.T) {
	w := newWorld(t, 1)
	h, err := w.a.Tombstone(ctx(t), w.id, nil, w.owner, w.now)
	require.NoError(t, err)
	require.Nil(t, h)
	w.claim()
	for range 40 {
		w.write(2)
		w.roll()
	}
	_, err = w.mem.Put(ctx(t), coldOp, HistoryKey(w.id, 3), bucket.BytesBody(w.h.Encode()), bucket.Condition{})
	require.NoError(t, err)
	done, err := w.a.DestroyPartition(ctx(t), w.id, 0, w.now)
	require.Error(t, err)
	require.False(t, done)
	_, err = w.a.Tombstone(ctx(t), w.id, w.h, Owner{2, "x", 1}, w.now)
	require.ErrorIs(t, err, ErrFenced)
	stone, err := w.a.Tombstone(ctx(t), w.id, nil, w.owner, w.now)
	require.NoError(t, err)
	again, err := w.a.Tombstone(ctx(t), w.id, nil, Owner{2, "x", 9}, w.now+1)
	require.NoError(t, err)
	require.Equal(t, stone.Attempt, again.Attempt)

	// A zombie cannot bring it back.
	w.write(1)
	_, err = w.tryRoll(ctx(t), w.h)
	require.ErrorIs(t, err, ErrTombstone)
	_, err = w.a.Claim(ctx(t), w.id, "logs", w.h, Owner{2, "x", 9})
	require.ErrorIs(t, err, ErrTombstone)

	done, err = w.a.DestroyPartition(ctx(t), w.id, time.Minute, stone.TombstoneTime+59_999)
	require.NoError(t, err)
	require.False(t, done)
	// Fail at every call; in between, the head stays until all else is gone.
	for k := 1; ; k++ {
		require.Less(t, k, 30)
		w.b = bucket.NewFault(w.mem, bucket.FailAt(k, errDown))
		w.open()
		done, err = w.a.DestroyTopic(ctx(t), w.id.Topic, 8, time.Minute, stone.TombstoneTime+60_000)
		if err == nil {
			break
		}
		require.False(t, done)
		require.True(t, len(w.keysOf("head/")) == 1 || len(w.keysOf("data/"))+len(w.keysOf("page/"))+len(w.keysOf("history/")) == 0)
	}
	require.True(t, done)
	require.Empty(t, w.keysOf(""))
	w.b = w.mem
	w.open()
	done, err = w.a.DestroyPartition(ctx(t), w.id, 0, w.now)
	require.NoError(t, err)
	require.True(t, done)
}

// uploads is a bucket with unfinished multipart uploads.
type uploads struct {
	bucket.Bucket
	keys map[string]bool
}

func (u *uploads) Uploads(_ context.Context, _ bucket.Op, prefix string, abort bool) ([]bucket.Upload, error) {
	var out []bucket.Upload
	for k := range u.keys {
		if strings.HasPrefix(k, prefix) {
			out = append(out, bucket.Upload{Key: k})
			if abort {
				delete(u.keys, k)
			}
		}
	}
	return out, nil
}

func TestUnfinishedUploadsOfEarlierEpochsAreAborted(t *testing.T) {
	w := newWorld(t, 1)
	old, cur, foreign := dataKey(w.id, 0, 1), dataKey(w.id, 0, 2), "data/other"
	u := &uploads{Bucket: w.mem, keys: map[string]bool{old: true, cur: true, foreign: true}}
	w.b = u
	w.open()
	w.owner.Epoch = 2
	w.claim()
	_, r, err := w.a.SweepPartition(ctx(t), w.id, w.h, w.now, 0)
	require.NoError(t, err)
	require.Equal(t, 1, r.Aborted)
	require.Equal(t, map[string]bool{cur: true, foreign: true}, u.keys)
	n, err := w.a.AbortUploads(ctx(t), func(n DataName) bool { return n.Epoch <= 2 })
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, map[string]bool{foreign: true}, u.keys)
}

func TestRebuildHead(t *testing.T) {
	w := newWorld(t, 1)
	_, _, err := w.a.RebuildHead(ctx(t), w.id)
	require.ErrorIs(t, err, ErrNoHead)
	w.claim()
	for i := range 40 {
		if i == 20 {
			w.owner = Owner{1, "run-2", 2}
			w.claim()
		}
		w.write(3)
		w.roll()
	}
	w.deleteTo(w.h.Extents[0].Start)
	for range 3 {
		w.merge() // inputs lie beside the result
	}
	w.write(3)
	w.roll()
	// An upload of a fenced owner that never became part of the archive, with other records at the same offsets.
	zombie := newWorld(t, 9)
	zombie.mem, zombie.b, zombie.next = w.mem, w.mem, w.h.End
	zombie.open()
	zombie.owner.Epoch = 2
	zombie.write(20)
	zspec := zombie.spec(w.h, zombie.batches)
	_, err = zombie.a.Upload(ctx(t), zspec, sliceSource(zombie.batches))
	require.NoError(t, err)
	w.owner = Owner{2, "run-3", 3}
	w.claim()
	for range 3 {
		w.write(4)
		w.roll()
	}

	require.NoError(t, w.mem.Delete(ctx(t), coldOp, []string{HeadKey(w.id)}))
	w.open()
	ids, err := w.a.ListData(ctx(t))
	require.NoError(t, err)
	require.Equal(t, []frame.PartitionID{w.id}, ids)
	h, problems, err := w.a.RebuildHead(ctx(t), w.id)
	require.NoError(t, err)
	for _, p := range problems {
		require.True(t, p.Note, "%v", p)
	}
	require.Equal(t, []int64{w.h.Start, w.h.End}, []int64{h.Start, h.End})
	require.Equal(t, []any{w.h.Bytes, w.h.Records, w.h.MaxTimestamp, "logs", int32(3)}, []any{h.Bytes, h.Records, h.MaxTimestamp, h.Topic, h.Epoch})
	require.Equal(t, w.h.Epochs, h.Epochs)
	require.Equal(t, "producers", string(h.Producers))
	w.checkHead(h)
	w.checkAll(h)
	w.checkTimes(h, 20)

	h, err = w.a.Install(ctx(t), h)
	require.NoError(t, err)
	require.GreaterOrEqual(t, h.Version, w.now)
	_, err = w.a.Install(ctx(t), h)
	require.ErrorIs(t, err, ErrConflict)
	w.h, w.owner = h, Owner{2, "run-4", 4}
	w.claim()
	w.write(2)
	w.roll()
	w.checkSwept()
	w.checkVerify()

	// A head that is there but damaged can be replaced.
	_, err = w.mem.Put(ctx(t), coldOp, HeadKey(w.id), bucket.BytesBody([]byte("rubbish")), bucket.Condition{})
	require.NoError(t, err)
	_, err = w.a.Load(ctx(t), w.id)
	require.ErrorIs(t, err, ErrCorrupt)
	h, _, err = w.a.RebuildHead(ctx(t), w.id)
	require.NoError(t, err)
	h, err = w.a.Install(ctx(t), h)
	require.NoError(t, err)
	w.checkAll(h)
}

func TestRebuildTellsOfHoles(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	for range 6 {
		w.write(3)
		w.roll()
	}
	lost := w.h.Extents[2]
	require.NoError(t, w.mem.Delete(ctx(t), coldOp, []string{lost.Key}))
	h, problems, err := w.a.RebuildHead(ctx(t), w.id)
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.False(t, problems[0].Note)
	require.Equal(t, lost.Start, problems[0].Offset)
	require.Equal(t, KindVoid, h.Extents[2].Kind)
	require.Equal(t, w.h.End, h.End)
}

func TestVerifyFindsDamage(t *testing.T) {
	var w *world
	fresh := func() {
		w = newWorld(t, 1)
		w.claim()
		for range 16 {
			w.write(6)
			w.roll()
		}
	}
	edit := func(key string, f func([]byte)) {
		raw, _, err := bucket.GetAll(ctx(t), w.mem, coldOp, key, 1<<20)
		require.NoError(t, err)
		f(raw)
		_, err = w.mem.Put(ctx(t), coldOp, key, bucket.BytesBody(raw), bucket.Condition{})
		require.NoError(t, err)
	}
	verify := func(o VerifyOptions) []Problem {
		var ps []Problem
		w.a.meta.close()
		w.open()
		require.NoError(t, w.a.Verify(ctx(t), w.id, o, func(p Problem) { ps = append(ps, p) }))
		return ps
	}
	fresh()
	var last Progress
	require.Empty(t, verify(VerifyOptions{Progress: func(p Progress) { last = p }}))
	require.Equal(t, w.h.Bytes, last.Bytes)
	require.Equal(t, w.h.Bytes, last.TotalBytes)
	require.Equal(t, w.h.Records, last.Records)

	cases := map[string]func(e Extent){
		"missing object":   func(e Extent) { require.NoError(t, w.mem.Delete(ctx(t), coldOp, []string{e.Key})) },
		"block":            func(e Extent) { edit(e.Key, func(b []byte) { b[50] ^= 1 }) },
		"trailer":          func(e Extent) { edit(e.Key, func(b []byte) { b[len(b)-20] ^= 1 }) },
		"optional section": func(e Extent) { edit(e.Key, func(b []byte) { b[e.FooterOff+2] ^= 1 }) },
	}
	for name, damage := range cases {
		fresh()
		e := w.h.Extents[2]
		damage(e)
		ps := verify(VerifyOptions{})
		require.NotEmpty(t, ps, name)
		for _, p := range ps {
			require.Equal(t, e.Key, p.Key, "%s: %v", name, p)
			require.False(t, p.Note)
		}
		meta := verify(VerifyOptions{MetaOnly: true})
		require.Equal(t, name == "block", len(meta) == 0, name)
	}

	// A batch that was damaged before its block's checksum was made.
	w = newWorld(t, 1)
	w.claim()
	w.write(6)
	l := newLayout(w.spec(w.h, w.batches), 2000)
	require.NoError(t, sliceSource(w.batches).Batches(l.add))
	b := w.batches[3].bytes
	b[len(b)-1] ^= 1
	obj := []byte(headMagic)
	for _, x := range w.batches {
		obj = append(obj, x.bytes...)
	}
	l.endBlock()
	for i := range l.blocks {
		k := &l.blocks[i]
		k.CRC = checksum(obj[k.Off : k.Off+k.Stored])
	}
	require.NoError(t, l.finish("cluster", "life-1"))
	e := l.extent(dataKey(w.id, 0, 1))
	_, err := w.mem.Put(ctx(t), coldOp, e.Key, bucket.BytesBody(append(obj, l.tail...)), bucket.Condition{})
	require.NoError(t, err)
	w.h, err = w.a.CommitRoll(ctx(t), w.id, w.h, w.owner, []Extent{e}, nil)
	require.NoError(t, err)
	ps := verify(VerifyOptions{})
	require.NotEmpty(t, ps)
	require.Contains(t, ps[0].What, batch.ErrCRC.Error())

	// Objects that no head names are noted, pages that are gone are told.
	fresh()
	src := sliceSource(w.batches[:2])
	_, err = w.a.Upload(ctx(t), ObjectSpec{ID: w.id, Topic: "logs", Epoch: 1, Start: 0, End: w.batches[1].last + 1}, src)
	require.NoError(t, err)
	ps = verify(VerifyOptions{})
	require.Len(t, ps, 1)
	require.True(t, ps[0].Note)
	require.NoError(t, w.mem.Delete(ctx(t), coldOp, []string{w.h.Pages[0].Key}))
	ps = verify(VerifyOptions{})
	require.NotEmpty(t, ps)
	require.False(t, ps[0].Note)

	w.a.Forget(w.id)
	require.NoError(t, w.mem.Delete(ctx(t), coldOp, []string{HeadKey(w.id)}))
	require.True(t, errors.Is(w.a.Verify(ctx(t), w.id, VerifyOptions{}, nil), ErrNoHead))
}

func TestList(t *testing.T) {
	w := newWorld(t, 1)
	want := map[frame.PartitionID]bool{}
	for i := range int32(5) {
		w.id.Partition = i
		w.h, w.batches, w.next = nil, nil, 0
		w.claim()
		w.write(2)
		w.roll()
		w.write(2)
		w.roll()
		want[w.id] = true
	}
	for _, list := range []func(context.Context) ([]frame.PartitionID, error){w.a.List, w.a.ListData} {
		ids, err := list(ctx(t))
		require.NoError(t, err)
		require.Len(t, ids, 5)
		for _, id := range ids {
			require.True(t, want[id])
		}
	}
}
