package kafka

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func BenchmarkDecodeProduce(b *testing.B) {
	for _, tc := range []struct{ topics, partitions, size int }{{1, 1, 1 << 10}, {1, 1, 1 << 20}, {10, 10, 16 << 10}} {
		b.Run(fmt.Sprintf("%dx%dx%d", tc.topics, tc.partitions, tc.size), func(b *testing.B) {
			body := sampleProduce(9, tc.topics, tc.partitions, tc.size)
			var r ProduceRequest
			b.ReportAllocs()
			for b.Loop() {
				if err := DecodeProduce(9, body, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeFetch(b *testing.B) {
	for _, partitions := range []int{1, 100} {
		b.Run(fmt.Sprint(partitions), func(b *testing.B) {
			body := sampleFetch(13, 1, partitions)
			var r FetchRequest
			b.ReportAllocs()
			for b.Loop() {
				if err := DecodeFetch(13, body, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeFetchResponse(b *testing.B) {
	for _, partitions := range []int{1, 100} {
		b.Run(fmt.Sprint(partitions), func(b *testing.B) {
			batch := make([]byte, 16<<10)
			r := &FetchResponse{Topics: []FetchTopic{{Name: "topic"}}}
			for i := range partitions {
				r.Topics[0].Partitions = append(r.Topics[0].Partitions, FetchPartition{Index: int32(i), Records: [][]byte{batch, batch, batch, batch}})
			}
			b.ReportAllocs()
			for b.Loop() {
				EncodeFetchResponse(13, r)
			}
		})
	}
}

// benchPieces is a fetch-like response of 1 MiB: 64 slices of 16 KiB.
func benchPieces() net.Buffers {
	bufs := make(net.Buffers, 64)
	for i := range bufs {
		bufs[i] = make([]byte, 16<<10)
	}
	return bufs
}

// BenchmarkResponse is the throughput of 1 MiB responses over loopback, through the server and
// by nothing but writev of the same slices to a socket; compare the two.
func BenchmarkResponse(b *testing.B) {
	pieces := benchPieces()
	total := 0
	for _, p := range pieces {
		total += len(p)
	}
	request := frame(1, []byte("give"))
	b.Run("writev", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		defer l.Close()
		go func() {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			in := make([]byte, len(request))
			for {
				if _, err := io.ReadFull(nc, in); err != nil {
					return
				}
				v := append(net.Buffers{}, pieces...)
				if _, err := v.WriteTo(nc); err != nil {
					return
				}
			}
		}()
		benchRoundTrips(b, l.Addr(), request, total)
	})
	b.Run("server", func(b *testing.B) {
		s, err := NewServer(Options{
			Listeners: []Listener{{Addr: "127.0.0.1:0"}},
			Handler: handlerFunc(func(context.Context, *Request) Pending {
				return Done{Bufs: append(net.Buffers{}, pieces...)}
			}),
		})
		require.NoError(b, err)
		s.Start()
		benchRoundTrips(b, s.Addrs()[0], request, total+8)
		require.NoError(b, s.Shutdown(context.Background()))
	})
}

// BenchmarkRequest is the throughput of 1 MiB requests with small responses.
func BenchmarkRequest(b *testing.B) {
	request := frame(1, make([]byte, 1<<20))
	b.Run("read", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		defer l.Close()
		go func() {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			in := make([]byte, len(request))
			for {
				if _, err := io.ReadFull(nc, in); err != nil {
					return
				}
				if _, err := nc.Write(in[:8]); err != nil {
					return
				}
			}
		}()
		benchRoundTrips(b, l.Addr(), request, 8)
	})
	b.Run("server", func(b *testing.B) {
		s, err := NewServer(Options{
			Listeners: []Listener{{Addr: "127.0.0.1:0"}},
			Handler:   handlerFunc(func(context.Context, *Request) Pending { return Done{} }),
		})
		require.NoError(b, err)
		s.Start()
		benchRoundTrips(b, s.Addrs()[0], request, 8)
		require.NoError(b, s.Shutdown(context.Background()))
	})
}

// benchRoundTrips sends the request, with two under way, and reads answers of the given size.
func benchRoundTrips(b *testing.B, to net.Addr, request []byte, answer int) {
	nc, err := net.Dial("tcp", to.String())
	require.NoError(b, err)
	defer nc.Close()
	in := make([]byte, answer)
	b.SetBytes(int64(max(answer, len(request))))
	b.ReportAllocs()
	_, err = nc.Write(request)
	require.NoError(b, err)
	cpu, n := cpuTime(b), 0
	for b.Loop() {
		n++
		if _, err := nc.Write(request); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, in); err != nil {
			b.Fatal(err)
		}
	}
	// Both sides; unlike the throughput it says the same on a busy machine.
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(n), "cpu-ns/op")
}

func cpuTime(b *testing.B) int64 {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkIdleConnections reports the memory of a connection that asked once and waits.
func BenchmarkIdleConnections(b *testing.B) {
	const conns = 2000
	s, err := NewServer(Options{Listeners: []Listener{{Addr: "127.0.0.1:0"}}, Handler: echo})
	require.NoError(b, err)
	s.Start()
	open := make([]net.Conn, 0, conns)
	before := memoryInUse()
	for range conns {
		nc, err := net.Dial("tcp", s.Addrs()[0].String())
		require.NoError(b, err)
		open = append(open, nc)
		_, err = nc.Write(frame(1, nil))
		require.NoError(b, err)
		_, err = io.ReadFull(nc, make([]byte, 8))
		require.NoError(b, err)
	}
	after := memoryInUse()
	for b.Loop() {
	}
	b.ReportMetric(float64(after-before)/conns, "B/conn")
	for _, nc := range open {
		nc.Close()
	}
	require.NoError(b, s.Shutdown(context.Background()))
}

// memoryInUse is the heap and the stacks after a collection.
func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
