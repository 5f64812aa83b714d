package tier

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// sink is a bucket that reads a body and forgets it, for the cost of everything but the store.
type sink struct{ bucket.Bucket }

func (s sink) Put(_ context.Context, _ bucket.Op, key string, body bucket.Body, _ bucket.Condition) (bucket.Info, error) {
	r, err := body.Open()
	if err != nil {
		return bucket.Info{}, err
	}
	defer r.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, 256<<10))
	return bucket.Info{Key: key, Size: n, ETag: "x"}, err
}

// fill makes batches of about size bytes each until there are total bytes.
func (w *world) fill(size, total int) {
	value := make([]byte, size-batch.HeaderLen-10)
	for sum := 0; sum < total; sum += size {
		b := batch.NewBuilder(batch.None, batch.BuilderOptions{BaseOffset: w.next, LeaderEpoch: 1})
		base := w.next
		w.rng.Uint64()
		b.Add(w.now, nil, value, nil)
		w.next++
		w.now++
		w.addBatch(base, bytes.Clone(b.Bytes()))
	}
}

func benchWorld(b *testing.B, tweak func(*Options)) *world {
	w := newWorld(b, 1, func(o *Options) { o.BlockBytes = 1 << 20 }, tweak)
	w.claim()
	return w
}

func BenchmarkUpload(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			w := benchWorld(b, func(o *Options) { o.Roll = sink{} })
			w.fill(size, 64<<20)
			src := w.pending(w.h)
			b.SetBytes(64 << 20)
			b.ReportAllocs()
			for b.Loop() {
				_, err := w.a.Upload(b.Context(), w.spec(w.h, src), src)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkReadWarm is a read of chunks that are in memory: checksum, block table, slices.
func BenchmarkReadWarm(b *testing.B) {
	for _, size := range []int{16 << 10, 1 << 20, 8 << 20} {
		b.Run(fmt.Sprintf("fetch=%d", size), func(b *testing.B) {
			w := benchWorld(b, func(o *Options) {
				o.Cache = cache.New(cache.Options{Bucket: o.Heads, Bytes: 256 << 20})
				b.Cleanup(func() { require.NoError(b, o.Cache.Close()) })
			})
			w.fill(16<<10, 64<<20)
			w.roll()
			at, total := int64(0), 0
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				got, err := w.a.Read(b.Context(), w.h, at, size, coldOp)
				require.NoError(b, err)
				got.Release()
				total, n = total+got.Bytes, n+1
				if at = got.Next; at >= w.h.End {
					at = 0
				}
			}
			b.SetBytes(int64(total / n))
		})
	}
}

// BenchmarkReadCold is a reader that goes through the archive with nothing in memory, over a bucket without latency.
func BenchmarkReadCold(b *testing.B) {
	w := benchWorld(b, func(*Options) {})
	for range 4 {
		w.fill(16<<10, 16<<20)
		w.roll()
	}
	for _, size := range []int{16 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("fetch=%d", size), func(b *testing.B) {
			b.SetBytes(w.h.Bytes)
			for b.Loop() {
				c := cache.New(cache.Options{Bucket: w.b, Bytes: 64 << 20})
				w.open(func(o *Options) { o.BlockBytes, o.Cache = 1<<20, c })
				for at := int64(0); at < w.h.End; {
					got, err := w.a.Read(b.Context(), w.h, at, size, coldOp)
					require.NoError(b, err)
					got.Release()
					at = got.Next
				}
				require.NoError(b, w.a.Close())
				require.NoError(b, c.Close())
			}
		})
	}
}

func BenchmarkHead(b *testing.B) {
	for _, n := range []int{0, 256, 1279} {
		h := sampleHead()
		h.Extents = h.Extents[:0]
		for i := range int64(n) {
			e := sampleExtent(110+i*20, 130+i*20, uid())
			e.MaxTimestamp += i * 1_234_567
			e.RunningMax, e.RetentionTime, e.MaxAppendTime = e.MaxTimestamp, e.MaxTimestamp, e.MaxTimestamp+17
			e.Size, e.Bytes = 64<<20-i*1001, 63<<20-i*1003
			h.Extents = append(h.Extents, e)
			h.End = e.End
		}
		if n == 0 {
			h.End = 110
		}
		h.raiseCeiling()
		raw := h.Encode()
		require.NotNil(b, raw)
		b.Run(fmt.Sprintf("encode/extents=%d", n), func(b *testing.B) {
			for b.Loop() {
				h.Encode()
			}
			b.ReportMetric(float64(len(raw)), "bytes")
		})
		b.Run(fmt.Sprintf("decode/extents=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := DecodeHead(raw)
				require.NoError(b, err)
			}
		})
	}
}
