package bench

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/partition"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

const (
	coldBytes = 32 << 20
	coldRange = 4 << 20
)

// BenchmarkColdFetch reads partitions that are only in the bucket, one reader each: through partition.Read, 1 MiB or 16 KiB at a time
// (then in batches of as much), every block verified, with nothing of it in the cache, and the same objects by minio-go in ranges of 4 MiB. The server (versitygw, or
// MinIO with TIERBROKER_TEST_S3=minio) shares the machine, so x-cpu is of this process alone.
func BenchmarkColdFetch(b *testing.B) {
	for _, readers := range []int{1, 4, 8} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) { benchCold(b, readers, 64<<10, 1<<20) })
	}
	b.Run("readers=1/fetch=16KiB", func(b *testing.B) { benchCold(b, 1, 16<<10, 16<<10) })
}

func benchCold(b *testing.B, readers, batch, fetch int) {
	server := s3test.Start(b)
	store := server.Open(b, "bench")
	s := newSet(b, setOptions{bucket: store, batch: batch, partitions: readers, cacheBytes: 256 << 20,
		topic: map[string]string{"tierbroker.durability": "async", "segment.bytes": fmt.Sprint(coldBytes)}})
	for i := range readers {
		s.fill(s.part(i), coldBytes)
		require.NoError(b, s.part(i).Roll(b.Context()))
		require.NoError(b, s.part(i).Evict(b.Context()))
	}
	objects := coldObjects(b, store, s, readers)
	client, err := minio.NewCore(server.Addr, &minio.Options{Creds: credentials.NewStaticV4(server.AccessKey, server.SecretKey, ""), Region: s3test.Region})
	require.NoError(b, err)
	bufs := make([][]byte, readers)
	for i := range bufs {
		bufs[i] = make([]byte, coldRange)
	}
	bare := func() {
		each(readers, func(i int) {
			for _, o := range objects[i] {
				readBare(b, client, server.Bucket, "bench/"+o.Key, o.Size, bufs[i])
			}
		})
	}
	ours := func() { each(readers, func(i int) { readCold(b, s.part(i), fetch) }) }
	forget := func() {
		for _, os := range objects {
			for _, o := range os {
				s.chunks.Drop(o.Key)
			}
		}
	}
	// Connections are open, block tables known and memory mapped before the clock starts.
	bare()
	ours()
	v := versus{bytes: int64(readers) * coldBytes}
	for b.Loop() {
		forget()
		v.turn(b, bare, ours)
	}
	v.report(b)
}

func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// coldObjects lists the data objects of each partition.
func coldObjects(b *testing.B, store bucket.Bucket, s *set, parts int) [][]bucket.Info {
	page, err := store.List(b.Context(), bucket.Op{Class: bucket.ClassTool}, "data/", "", 1000)
	require.NoError(b, err)
	out := make([][]bucket.Info, parts)
	for _, o := range page.Items {
		for i := range parts {
			if id := s.part(i).ID(); strings.Contains(o.Key, fmt.Sprintf("/%x/%d/", id.Topic[:], i)) {
				out[i] = append(out[i], o)
			}
		}
	}
	for i := range out {
		require.NotEmpty(b, out[i])
	}
	return out
}

func readCold(b *testing.B, p *partition.Partition, fetch int) {
	o := p.Offsets()
	for at := o.Start; at < o.Tiered; {
		got, err := p.Read(b.Context(), partition.ReadRequest{Offset: at, MaxBytes: fetch, AtLeastOne: true})
		if err != nil || got.Next <= at {
			b.Errorf("read at %d: next %d, %v", at, got.Next, err)
			return
		}
		at = got.Next
		got.Release()
	}
}

func readBare(b *testing.B, client *minio.Core, name, object string, size int64, buf []byte) {
	for off := int64(0); off < size; off += coldRange {
		opts := minio.GetObjectOptions{}
		end := min(off+coldRange, size)
		if err := opts.SetRange(off, end-1); err != nil {
			b.Error(err)
		}
		body, _, _, err := client.GetObject(b.Context(), name, object, opts)
		if err != nil {
			b.Error(err)
			return
		}
		if _, err := io.ReadFull(body, buf[:end-off]); err != nil {
			b.Error(err)
		}
		if err := body.Close(); err != nil {
			b.Error(err)
		}
	}
}
