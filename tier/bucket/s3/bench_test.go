package s3_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

const (
	mib         = 1 << 20
	benchObject = 32 * mib
	benchChunk  = 4 * mib
)

// BenchmarkColdRead reads the same objects from the same server by turns: ranges of 4 MiB by bare minio-go into one buffer for
// each reader, and 1 MiB at a time through the cache, which holds nothing of them. It reports both rates and their ratio.
func BenchmarkColdRead(b *testing.B) {
	for _, readers := range []int{1, 4, 8} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) { benchColdRead(b, readers) })
	}
}

func benchColdRead(b *testing.B, readers int) {
	server := s3test.Start(b)
	store := server.Open(b, "bench")
	c := cache.New(cache.Options{Bucket: store, Bytes: 256 * mib, ChunkBytes: benchChunk})
	defer func() { require.NoError(b, c.Close()) }()
	client, err := minio.NewCore(server.Addr, &minio.Options{Creds: credentials.NewStaticV4(server.AccessKey, server.SecretKey, ""), Region: s3test.Region})
	require.NoError(b, err)
	var keys []string
	for i := range readers {
		keys = append(keys, fmt.Sprintf("data/%d", i))
		_, err := store.Put(b.Context(), rollOp, keys[i], bucket.BytesBody(make([]byte, benchObject)), bucket.Condition{})
		require.NoError(b, err)
	}
	bufs := make([][]byte, readers)
	for i := range bufs {
		bufs[i] = make([]byte, benchChunk)
	}
	// Connections are open and memory is mapped before the clock starts.
	each(readers, func(i int) { readBare(b, client, server.Bucket, "bench/"+keys[i], bufs[i]) })
	each(readers, func(i int) { readCached(b, c, keys[i]) })
	for _, key := range keys {
		c.Drop(key)
	}
	var bare, cached time.Duration
	for b.Loop() {
		start := time.Now()
		each(readers, func(i int) { readBare(b, client, server.Bucket, "bench/"+keys[i], bufs[i]) })
		bare += time.Since(start)
		for _, key := range keys {
			c.Drop(key)
		}
		start = time.Now()
		each(readers, func(i int) { readCached(b, c, keys[i]) })
		cached += time.Since(start)
	}
	bytes := float64(b.N) * float64(readers) * benchObject / mib
	b.ReportMetric(bytes/bare.Seconds(), "bare-MiB/s")
	b.ReportMetric(bytes/cached.Seconds(), "cache-MiB/s")
	b.ReportMetric(bare.Seconds()/cached.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func readBare(b *testing.B, client *minio.Core, name, object string, buf []byte) {
	for off := int64(0); off < benchObject; off += benchChunk {
		opts := minio.GetObjectOptions{}
		if err := opts.SetRange(off, off+benchChunk-1); err != nil {
			b.Error(err)
		}
		body, _, _, err := client.GetObject(context.Background(), name, object, opts)
		if err != nil {
			b.Error(err)
			return
		}
		if _, err := io.ReadFull(body, buf); err != nil {
			b.Error(err)
		}
		if err := body.Close(); err != nil {
			b.Error(err)
		}
	}
}

func readCached(b *testing.B, c *cache.Cache, key string) {
	for off := int64(0); off < benchObject; off += mib {
		s, err := c.Read(context.Background(), coldOp, key, benchObject, off, mib)
		if err != nil {
			b.Error(err)
			return
		}
		s.Release()
	}
}

// BenchmarkPut is single puts of one size, one at a time.
func BenchmarkPut(b *testing.B) {
	server := s3test.Start(b)
	store := server.Open(b, "bench")
	for _, size := range []int{4 << 10, 256 << 10, 8 * mib} {
		body := bucket.BytesBody(make([]byte, size))
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := store.Put(b.Context(), rollOp, "put/x", body, bucket.Condition{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
