package bench

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/segment"
)

// syncCounter counts the fdatasyncs of a commit log.
type syncCounter struct {
	segment.FS
	syncs atomic.Int64
}

func (c *syncCounter) Open(path string, create bool) (segment.File, error) {
	f, err := c.FS.Open(path, create)
	return syncCounted{f, c}, err
}

type syncCounted struct {
	segment.File
	c *syncCounter
}

func (f syncCounted) Sync() error {
	f.c.syncs.Add(1)
	return f.File.Sync()
}

// BenchmarkGroupCommit has producers append a batch of 4 KiB to a partition of their own and wait until it is durable. syncs/batch
// is 1 for one producer; for n of them it should approach 1/n: one fdatasync for all who wait.
func BenchmarkGroupCommit(b *testing.B) {
	for _, producers := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("producers=%d", producers), func(b *testing.B) {
			fs := &syncCounter{FS: segment.OSFS{}}
			s := newSet(b, setOptions{fs: fs, batch: 4 << 10, partitions: producers})
			var next atomic.Int64
			before := fs.syncs.Load()
			cpu := cpuTime(b)
			b.ReportAllocs()
			b.ResetTimer()
			each(producers, func(i int) {
				p, buf := s.part(i), make([]byte, len(s.batch))
				for next.Add(1) <= int64(b.N) {
					copy(buf, s.batch)
					ack, err := s.append(p, buf)
					if err == nil {
						err = ack.Durable(b.Context())
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(fs.syncs.Load()-before)/float64(b.N), "syncs/batch")
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-µs/batch")
			require.False(b, b.Failed())
		})
	}
}
