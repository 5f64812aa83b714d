package bench

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
)

// sink is a TCP connection whose other end throws everything away, at next to no cost: the kernel doesn't copy it out.
type sink struct {
	net.Conn
	sent int64
	got  atomic.Int64
}

func newSink(b *testing.B) *sink {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	s := &sink{}
	var reader sync.WaitGroup
	reader.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		f, err := c.(*net.TCPConn).File() // blocking from here on
		if err == nil {
			err = c.Close()
		}
		if err != nil {
			b.Error(err)
			return
		}
		defer f.Close()
		buf := make([]byte, 1<<20)
		for fd := int(f.Fd()); ; {
			n, _, err := unix.Recvfrom(fd, buf, unix.MSG_TRUNC)
			if n <= 0 || err != nil {
				return
			}
			s.got.Add(int64(n))
		}
	})
	s.Conn, err = net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, s.Close())
		require.NoError(b, l.Close())
		reader.Wait()
	})
	return s
}

// drain waits until the other end has what was sent.
func (s *sink) drain(b *testing.B) {
	for start := time.Now(); s.got.Load() < s.sent; time.Sleep(20 * time.Microsecond) {
		if time.Since(start) > time.Minute {
			b.Fatalf("%d of %d bytes arrived", s.got.Load(), s.sent)
		}
	}
}

// BenchmarkHotFetch sends the newest 32 MiB of a partition to a socket: as Fetch responses of 1 MiB, and as bare writev of as
// many pieces of a mapped file.
func BenchmarkHotFetch(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("batch=%dKiB", size>>10), func(b *testing.B) { benchHot(b, size) })
	}
}

const (
	hotBytes = 32 << 20
	perFetch = 1 << 20
)

func benchHot(b *testing.B, size int) {
	s := newSet(b, setOptions{batch: size, topic: map[string]string{"tierbroker.durability": "async", "segment.bytes": "2000000000"}})
	p := s.part(0)
	s.fill(p, hotBytes)
	end := p.Offsets().Durable
	conn := newSink(b)
	bare := mapped(b, hotBytes)
	step := len(s.batch)
	v := versus{bytes: hotBytes}
	for b.Loop() {
		v.turn(b, func() {
			for off := 0; off < hotBytes; {
				var vec net.Buffers
				n := 0
				for ; off < hotBytes && n+step <= max(perFetch, step); n, off = n+step, off+step {
					vec = append(vec, bare[off:min(off+step, hotBytes)])
				}
				sent, err := vec.WriteTo(conn.Conn) // a bare TCP connection: else it isn't one writev
				require.NoError(b, err)
				conn.sent += sent
			}
			conn.drain(b)
		}, func() {
			for at := int64(0); at < end; {
				next, sent := fetchTo(b, p, at, conn.Conn)
				conn.sent += sent
				at = next
			}
			conn.drain(b)
		})
	}
	v.report(b)
}

// fetchTo answers a fetch of up to perFetch bytes as the broker does.
func fetchTo(b *testing.B, p *partition.Partition, at int64, w net.Conn) (next, sent int64) {
	got, err := p.Read(b.Context(), partition.ReadRequest{Offset: at, MaxBytes: perFetch, AtLeastOne: true})
	require.NoError(b, err)
	defer got.Release()
	bufs := kafka.EncodeFetchResponse(12, &kafka.FetchResponse{Topics: []kafka.FetchTopic{{Name: "t", Partitions: []kafka.FetchPartition{
		{HighWatermark: got.Next, LastStableOffset: got.Next, PreferredReadReplica: -1, Records: got.Slices},
	}}}})
	n, err := bufs.WriteTo(w)
	require.NoError(b, err)
	return got.Next, n
}

// mapped is a file of n bytes, in the page cache and mapped.
func mapped(b *testing.B, n int) []byte {
	f, err := os.Create(filepath.Join(b.TempDir(), "bare"))
	require.NoError(b, err)
	defer f.Close()
	buf := make([]byte, 1<<20)
	for i := range buf {
		buf[i] = byte(i * 7)
	}
	for off := 0; off < n; off += len(buf) {
		_, err := f.Write(buf)
		require.NoError(b, err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, unix.Munmap(m)) })
	return m
}
