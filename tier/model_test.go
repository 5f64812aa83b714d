package tier

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// rec is a record of the model.
type rec struct {
	offset, ts int64
	value      string
	epoch      int32
}

// modelBatch is a batch as it was written.
type modelBatch struct {
	base, last int64
	bytes      []byte
	info       BatchInfo
}

// world is an archive over a bucket, and what it should hold as plain slices.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	mem   *bucket.Memory
	b     bucket.Bucket // mem, maybe decorated
	a     *Archive
	id    frame.PartitionID
	owner Owner
	h     *Head
	now   int64
	wals  int  // WAL objects put
	plain bool // batches are not compressed

	next    int64
	batches []modelBatch
	recs    []rec
}

var testID = frame.PartitionID{Topic: frame.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Partition: 7}

func newWorld(t testing.TB, seed uint64, tweak ...func(*Options)) *world {
	mem := bucket.NewMemory()
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), mem: mem, b: mem, id: testID, owner: Owner{Broker: 1, Incarnation: "run-1", Epoch: 1}, now: 1_700_000_000_000}
	w.open(tweak...)
	return w
}

func (w *world) open(tweak ...func(*Options)) {
	o := Options{Heads: w.b, ClusterID: "cluster", ClusterIncarnation: "life-1", BlockBytes: 2000, InlineExtents: 8, PageExtents: 4, PageFanout: 2,
		RetryMin: time.Microsecond, RetryMax: time.Millisecond}
	for _, f := range tweak {
		f(&o)
	}
	w.a = New(o)
	w.t.Cleanup(func() { _ = w.a.Close() })
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func (w *world) claim() {
	h, err := w.a.Claim(ctx(w.t), w.id, "logs", w.h, w.owner)
	require.NoError(w.t, err)
	w.h = h
}

// write makes n batches at the end of the model, with timestamps around w.now that now and then go back.
func (w *world) write(n int) {
	codecs := []batch.Codec{batch.None, batch.None, batch.Zstd, batch.LZ4, batch.Gzip, batch.Snappy}
	if w.plain {
		codecs = codecs[:1]
	}
	for range n {
		b := batch.NewBuilder(codecs[w.rng.IntN(len(codecs))], batch.BuilderOptions{BaseOffset: w.next, LeaderEpoch: w.owner.Epoch})
		base := w.next
		for range 1 + w.rng.IntN(5) {
			w.now += w.rng.Int64N(20)
			r := rec{offset: w.next, ts: w.now - w.rng.Int64N(50), value: fmt.Sprintf("value-%d-%x", w.next, w.rng.Uint64()), epoch: w.owner.Epoch}
			b.Add(r.ts, nil, []byte(r.value), nil)
			w.recs = append(w.recs, r)
			w.next++
		}
		w.addBatch(base, slices.Clone(b.Bytes()))
	}
}

func (w *world) addBatch(base int64, raw []byte) {
	h, err := batch.ParseHeader(raw)
	require.NoError(w.t, err)
	w.batches = append(w.batches, modelBatch{base: base, last: w.next - 1, bytes: raw, info: BatchInfo{
		Base: base, Last: w.next - 1, MaxTimestamp: h.MaxTimestamp, AppendTime: w.now, Epoch: w.owner.Epoch, Records: h.RecordCount, Size: len(raw)}})
}

type sliceSource []modelBatch

func (s sliceSource) Batches(yield func([]byte, BatchInfo) error) error {
	for _, b := range s {
		if err := yield(b.bytes, b.info); err != nil {
			return err
		}
	}
	return nil
}

// pending returns the batches that the head doesn't cover.
func (w *world) pending(h *Head) sliceSource {
	i := slices.IndexFunc(w.batches, func(b modelBatch) bool { return b.last >= h.End })
	if i < 0 {
		return nil
	}
	return w.batches[i:]
}

func (w *world) spec(h *Head, src sliceSource) ObjectSpec {
	return ObjectSpec{ID: w.id, Topic: "logs", Epoch: w.owner.Epoch, Start: h.End, End: src[len(src)-1].last + 1, LogStart: h.Start, Now: w.now,
		Producers: []byte("producers"), Epochs: h.Epochs, AllowBefore: true}
}

// roll brings everything that is pending into the archive, as one object.
func (w *world) roll() {
	h, err := w.tryRoll(ctx(w.t), w.h)
	require.NoError(w.t, err)
	w.h = h
}

func (w *world) tryRoll(c context.Context, h *Head) (*Head, error) {
	src := w.pending(h)
	if len(src) == 0 {
		return h, nil
	}
	e, err := w.a.Upload(c, w.spec(h, src), src)
	if err != nil {
		return h, err
	}
	return w.a.CommitRoll(c, w.id, h, w.owner, []Extent{e}, func(h *Head) { h.Producers = []byte("producers") })
}

var coldOp = bucket.Op{Class: bucket.ClassCold, Kind: bucket.KindData}

func flat(b Batches) []byte { return slices.Concat(b.Slices...) }

// wantFrom is what a read at offset must begin with: the batches of the model from the one that holds it.
func (w *world) wantFrom(offset, end int64) []modelBatch {
	i := slices.IndexFunc(w.batches, func(b modelBatch) bool { return b.last >= offset })
	if i < 0 {
		return nil
	}
	out := w.batches[i:]
	for k := range out {
		if out[k].base >= end {
			return out[:k]
		}
	}
	return out
}

// checkRead compares one read with the model and returns where to go on.
func (w *world) checkRead(h *Head, offset int64, maxBytes int) int64 {
	b, err := w.a.Read(ctx(w.t), h, offset, maxBytes, coldOp)
	require.NoError(w.t, err, "read at %d", offset)
	want := w.wantFrom(offset, h.End)
	got := flat(b)
	require.Equal(w.t, len(got), b.Bytes)
	if len(want) == 0 {
		require.Empty(w.t, got)
		require.Equal(w.t, h.End, b.Next)
		return b.Next
	}
	require.NotEmpty(w.t, got, "read at %d", offset)
	defer b.Release()
	require.Equal(w.t, want[0].base, b.First)
	for i := 0; len(got) > 0; i++ {
		require.Less(w.t, i, len(want))
		require.True(w.t, len(got) >= len(want[i].bytes) && string(got[:len(want[i].bytes)]) == string(want[i].bytes), "batch at %d differs", want[i].base)
		got = got[len(want[i].bytes):]
		require.True(w.t, i == 0 || b.Bytes <= maxBytes, "%d bytes for at most %d", b.Bytes, maxBytes)
		if len(got) == 0 {
			require.Equal(w.t, want[i].last+1, b.Next)
		}
	}
	return b.Next
}

// checkAll reads the whole archive in sequence, and some offsets at random.
func (w *world) checkAll(h *Head) {
	for _, size := range []int{1, 3000, 1 << 20} {
		for at := h.Start; at < h.End; {
			next := w.checkRead(h, at, size)
			require.Greater(w.t, next, at)
			at = next
		}
	}
	for range 20 {
		if h.Start < h.End {
			w.checkRead(h, h.Start+w.rng.Int64N(h.End-h.Start), w.rng.IntN(5000))
		}
	}
	for _, at := range []int64{h.Start - 1, h.End, h.End + 1} {
		_, err := w.a.Read(ctx(w.t), h, at, 100, coldOp)
		require.ErrorIs(w.t, err, ErrOffsetOutOfRange)
	}
}

func (w *world) wantTime(h *Head, ts, from int64) *rec {
	for i := range w.recs {
		if r := &w.recs[i]; r.offset >= max(from, h.Start) && r.offset < h.End && r.ts >= ts {
			return r
		}
	}
	return nil
}

func (w *world) wantMax(h *Head) *rec {
	var best *rec
	for i := range w.recs {
		if r := &w.recs[i]; r.offset >= h.Start && r.offset < h.End && (best == nil || r.ts > best.ts) {
			best = r
		}
	}
	return best
}

// checkTimes compares lookups by time with the model, at every timestamp (and the millisecond before and after) or some of them.
func (w *world) checkTimes(h *Head, every int) {
	check := func(ts, from int64) {
		offset, got, epoch, ok, err := w.a.FindTime(ctx(w.t), h, ts, from)
		require.NoError(w.t, err)
		want := w.wantTime(h, ts, from)
		require.Equal(w.t, want != nil, ok, "timestamp %d from %d", ts, from)
		if want != nil {
			require.Equal(w.t, *want, rec{offset, got, want.value, epoch}, "timestamp %d from %d", ts, from)
		}
	}
	for i := 0; i < len(w.recs); i += 1 + w.rng.IntN(every) {
		for d := int64(-1); d <= 1; d++ {
			check(w.recs[i].ts+d, 0)
			check(w.recs[i].ts+d, w.rng.Int64N(w.next+1))
		}
	}
	check(0, 0)
	check(w.now+1000, 0)
	offset, ts, epoch, ok, err := w.a.MaxTimestamp(ctx(w.t), h)
	require.NoError(w.t, err)
	want := w.wantMax(h)
	require.Equal(w.t, want != nil, ok)
	if want != nil {
		require.Equal(w.t, *want, rec{offset, ts, want.value, epoch})
	}
}

// checkHead compares counters of the head with its extents, and the extents with each other.
func (w *world) checkHead(h *Head) {
	require.NoError(w.t, h.check())
	var bytes, records, objects int64
	at := int64(-1)
	running := int64(-1)
	for e, err := range w.a.Extents(ctx(w.t), h) {
		require.NoError(w.t, err)
		require.Greater(w.t, e.End, h.Start)
		require.True(w.t, at < 0 && e.Start <= h.Start || e.Start == at, "extent at %d, expected %d", e.Start, at)
		require.GreaterOrEqual(w.t, e.RunningMax, max(running, e.MaxTimestamp))
		at, running = e.End, e.RunningMax
		bytes, records, objects = bytes+e.Bytes, records+e.Records, objects+1
	}
	require.True(w.t, at == h.End || at < 0 && h.Start == h.End)
	require.Equal(w.t, []int64{bytes, records, objects}, []int64{h.Bytes, h.Records, h.Objects})
	require.GreaterOrEqual(w.t, h.Ceiling, h.End+minHeadroom)
	loaded, err := DecodeHead(h.Encode())
	require.NoError(w.t, err)
	loaded.SetETag(h.ETag())
	a, err := h.JSON()
	require.NoError(w.t, err)
	b, err := loaded.JSON()
	require.NoError(w.t, err)
	require.JSONEq(w.t, string(a), string(b))
}
