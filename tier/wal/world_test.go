package wal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	stream = StreamID{Broker: 7, Incarnation: "run-a"}
	tailOp = bucket.Op{Class: bucket.ClassCold, Kind: bucket.KindWAL}
)

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func partition(n int32) frame.PartitionID {
	return frame.PartitionID{Topic: frame.TopicID{1, 2, 3, 15: byte(n)}, Partition: n}
}

// one is a batch as the model remembers it.
type one struct {
	id    frame.PartitionID
	epoch int32
	b     []byte
	h     batch.Header
}

// makeBatch returns a batch of n records of about size bytes in all, by producer 5.
func makeBatch(t testing.TB, id frame.PartitionID, epoch int32, base int64, n, size int) one {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{BaseOffset: base, LeaderEpoch: epoch, ProducerID: 5, ProducerEpoch: 1, FirstSequence: int32(base)})
	for i := range n {
		b.Add(1_700_000_000_000+base+int64(i), []byte("k"), fmt.Appendf(nil, "%v-%d-%s", id, base+int64(i), strings.Repeat("x", size/n)), nil)
	}
	raw := slices.Clone(b.Bytes())
	h, err := batch.ParseHeader(raw)
	require.NoError(t, err)
	return one{id: id, epoch: epoch, b: raw, h: h}
}

func options(b bucket.Bucket) Options {
	return Options{Bucket: b, Stream: stream, ClusterID: "cluster", ClusterIncarnation: "life-1", CombineEvery: 8,
		Now: func() int64 { return 1_700_000_000_000 }, RetryMin: time.Microsecond, RetryMax: time.Millisecond}
}

func open(t testing.TB, o Options) *Writer {
	w, err := Open(ctx(t), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		c, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = w.Close(c)
	})
	return w
}

// fill puts batches into a builder, a part for each change of partition or epoch.
func fill(t testing.TB, b *Builder, batches ...one) {
	for i, x := range batches {
		if i == 0 || batches[i-1].id != x.id || batches[i-1].epoch != x.epoch {
			b.Begin(Part{ID: x.id, Topic: "topic", Epoch: x.epoch})
		}
		require.NoError(t, b.Add(x.b, &x.h, 1_700_000_000_500))
	}
}

func put(t testing.TB, w *Writer, batches ...one) *Upload {
	b := w.NewBuilder()
	fill(t, b, batches...)
	u, err := w.Put(b)
	require.NoError(t, err)
	return u
}

func wait(t testing.TB, u *Upload) error {
	select {
	case <-u.Done():
		return u.Err()
	case <-ctx(t).Done():
		require.Fail(t, "upload takes too long")
	}
	return nil
}

// readEntry returns the bytes of an entry from the bucket.
func readEntry(t testing.TB, b bucket.Bucket, e *Entry) []byte {
	buf := make([]byte, e.Len)
	_, _, err := b.Get(ctx(t), tailOp, e.Key, e.Off, e.Len, buf)
	require.NoError(t, err)
	require.Equal(t, e.CRC, checksum(buf))
	return buf
}

// contents returns the batches that a sealed stream has of a partition.
func contents(t testing.TB, b bucket.Bucket, s *Sealed, id frame.PartitionID) [][]byte {
	var out [][]byte
	entries, err := s.Entries(ctx(t), id)
	require.NoError(t, err)
	for i := range entries {
		e := &entries[i]
		buf := readEntry(t, b, e)
		require.Equal(t, e.Start, e.Batches[0].Base)
		require.Equal(t, e.End, e.Batches[len(e.Batches)-1].Last+1)
		for _, x := range e.Batches {
			raw := buf[x.Pos : x.Pos+x.Size]
			h, err := batch.ParseHeader(raw)
			require.NoError(t, err)
			require.Equal(t, []int64{h.BaseOffset, h.LastOffset(), h.MaxTimestamp, h.ProducerID, int64(h.FirstSequence), int64(h.RecordCount)},
				[]int64{x.Base, x.Last, x.MaxTimestamp, x.ProducerID, int64(x.FirstSequence), int64(x.Records)})
			out = append(out, raw)
		}
	}
	return out
}
