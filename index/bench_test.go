package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

// fill makes a store of many partitions with entries of ten records each, written in turn
// as a log has them.
func fill(b *testing.B, partitions, entries int) *Store {
	s, err := Open(Options{Dir: b.TempDir()})
	require.NoError(b, err)
	batch := s.NewBatch()
	pos := uint64(0)
	for i := range int64(entries) {
		for p := range partitions {
			pos += 4096
			batch.PutEntry(bid(p), Entry{Base: i * 10, Last: i*10 + 9, Position: pos, HeaderLen: 92, Length: 4000,
				MaxTimestamp: 1790000000000 + i*100, Epoch: 3, Records: 10, AppendTime: 1790000000000 + i*100}, true)
			if batch.Len() > 256<<10 {
				batch.SetCheckpoint(pos, nil)
				require.NoError(b, batch.Commit())
			}
		}
	}
	require.NoError(b, batch.Commit())
	require.NoError(b, batch.Close())
	require.NoError(b, s.Flush())
	require.NoError(b, s.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false))
	return s
}

func bid(p int) frame.PartitionID {
	return frame.PartitionID{Topic: frame.TopicID{byte(p % 251), byte(p % 7)}, Partition: int32(p)}
}

func BenchmarkLookup(b *testing.B) {
	for _, shape := range []struct{ partitions, entries int }{{10, 100_000}, {10_000, 100}} {
		s := fill(b, shape.partitions, shape.entries)
		rnd := rand.New(rand.NewPCG(1, 2))
		name := fmt.Sprintf("%dx%d", shape.partitions, shape.entries)
		b.Run("Find/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, ok, err := s.Find(bid(rnd.IntN(shape.partitions)), rnd.Int64N(int64(shape.entries)*10))
				if !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
		b.Run("FindTail/"+name, func(b *testing.B) { // what consumers do
			for b.Loop() {
				_, ok, err := s.Find(bid(rnd.IntN(shape.partitions)), int64(shape.entries)*10-rnd.Int64N(20)-1)
				if !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
		b.Run("FindTime/"+name, func(b *testing.B) {
			for b.Loop() {
				ts := 1790000000000 + rnd.Int64N(int64(shape.entries)*100-100)
				_, ok, err := s.FindTime(bid(rnd.IntN(shape.partitions)), ts, 0)
				if !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
		b.Run("Scan100/"+name, func(b *testing.B) {
			for b.Loop() {
				n := 0
				err := s.Scan(bid(rnd.IntN(shape.partitions)), 0, func(Entry) bool { n++; return n < 100 })
				if n != 100 || err != nil {
					b.Fatal(n, err)
				}
			}
		})
		require.NoError(b, s.Close())
	}
}

// BenchmarkCommit commits batches of entries, one entry per partition in turn.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{1, 16, 256, 4096} {
		for _, partitions := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%dentries/%dpartitions", size, partitions), func(b *testing.B) {
				s, err := Open(Options{Dir: b.TempDir()})
				require.NoError(b, err)
				batch := s.NewBatch()
				n := 0
				for b.Loop() {
					for range size {
						off := int64(n / partitions)
						batch.PutEntry(bid(n%partitions), Entry{Base: off, Last: off, Position: uint64(n) * 4096, Length: 4000,
							MaxTimestamp: 1790000000000 + int64(n), AppendTime: 1790000000000 + int64(n)}, true)
						n++
					}
					batch.SetCheckpoint(uint64(n)*4096, nil)
					if err := batch.Commit(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/entry")
				require.NoError(b, batch.Close())
				require.NoError(b, s.Close())
			})
		}
	}
}

// BenchmarkOpenIdle reports what an open store of many partitions takes, in Go's heap.
func BenchmarkOpenIdle(b *testing.B) {
	fs := vfs.NewMem()
	s, err := Open(Options{Dir: "index", FS: fs, ReserveBytes: -1})
	require.NoError(b, err)
	batch := s.NewBatch()
	for p := range 10_000 {
		batch.PutMeta(bid(p), make([]byte, 100))
		batch.PutHead(bid(p), make([]byte, 1000))
		batch.PutEntry(bid(p), Entry{Last: 9}, true)
	}
	require.NoError(b, batch.Commit())
	require.NoError(b, batch.Close())
	require.NoError(b, s.Close())
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, err := Open(Options{Dir: "index", FS: fs, ReserveBytes: -1})
		require.NoError(b, err)
		n := 0
		require.NoError(b, s.Partitions(func(frame.PartitionID, []byte) bool { n++; return true }))
		require.Equal(b, 10_000, n)
		for p := range 10_000 {
			_, ok, err := s.Last(bid(p))
			require.NoError(b, err)
			require.True(b, ok)
		}
		runtime.ReadMemStats(&after)
		require.NoError(b, s.Close())
	}
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/(1<<20), "MB-heap")
}
