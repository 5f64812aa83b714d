package wal

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// BenchmarkPut fills and uploads objects of 4 MiB to a bucket in memory: what the stream costs besides the store.
func BenchmarkPut(b *testing.B) {
	for _, partitions := range []int32{1, 100, 1000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			mem := bucket.NewMemory()
			o := options(mem)
			o.CombineEvery = 64
			w := open(b, o)
			x := makeBatch(b, partition(0), 0, 0, 1, (4<<20)/int(partitions)-100)
			b.SetBytes(int64(partitions) * int64(len(x.b)))
			b.ReportAllocs()
			b.ResetTimer()
			var last *Upload
			for i := range b.N {
				o := w.NewBuilder()
				x.h.BaseOffset = int64(i)
				for p := range partitions {
					o.Begin(Part{ID: partition(p), Topic: "topic"})
					require.NoError(b, o.Add(x.b, &x.h, 1))
				}
				u, err := w.Put(o)
				require.NoError(b, err)
				last = u
				if i%64 == 63 {
					w.SetFloor(w.Stats().Acked)
					_, err := w.Sweep(ctx(b), 1)
					require.NoError(b, err)
				}
			}
			require.NoError(b, wait(b, last))
		})
	}
}
