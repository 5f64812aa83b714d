package cache

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// BenchmarkReadHit is a read of 1 MiB that finds its chunk resident, by several readers at once.
func BenchmarkReadHit(b *testing.B) {
	c, size := benchCache(b, 64<<20)
	b.ReportAllocs()
	b.SetBytes(1 << 20)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := int64(0); pb.Next(); i++ {
			s, err := c.Read(context.Background(), op, "data/0", size, (i*(1<<20))%size, 1<<20)
			if err != nil {
				b.Error(err)
				return
			}
			s.Release()
		}
	})
}

// BenchmarkReadMiss is a scan of objects that are many times the budget, out of memory: what a miss costs beside its GET.
func BenchmarkReadMiss(b *testing.B) {
	c, size := benchCache(b, 16<<20)
	b.ReportAllocs()
	b.SetBytes(1 << 20)
	for i := int64(0); b.Loop(); i++ {
		key := fmt.Sprintf("data/%d", i*(1<<20)/size%8)
		s, err := c.Read(context.Background(), op, key, size, (i*(1<<20))%size, 1<<20)
		if err != nil {
			b.Fatal(err)
		}
		s.Release()
	}
}

func benchCache(b *testing.B, budget int64) (*Cache, int64) {
	const size = 32 << 20
	mem := bucket.NewMemory()
	for i := range 8 {
		_, err := mem.Put(b.Context(), op, fmt.Sprintf("data/%d", i), bucket.BytesBody(make([]byte, size)), bucket.Condition{})
		require.NoError(b, err)
	}
	c := New(Options{Bucket: mem, Bytes: budget})
	b.Cleanup(func() { require.NoError(b, c.Close()) })
	return c, size
}
