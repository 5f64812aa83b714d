package kafka

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests of time run in a bubble of synctest, over pipes in place of sockets.

// inBubble runs a test with a server that serves one end of a pipe; the other end is given.
func inBubble(t *testing.T, h Handler, test func(t *testing.T, s *testServer, dial func() net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan Event, 100)
		s, err := NewServer(Options{
			Listeners: []Listener{{Name: "PIPE", Addr: "127.0.0.1:0"}}, Handler: h, OnEvent: func(e Event) { events <- e },
		})
		require.NoError(t, err)
		test(t, &testServer{Server: s, t: t, events: events}, func() net.Conn {
			ours, theirs := net.Pipe()
			t.Cleanup(func() { ours.Close() })
			s.serve(theirs, s.o.Listeners[0])
			return ours
		})
		require.NoError(t, s.Shutdown(context.Background()))
		st := s.Stats()
		require.Zero(t, st.InflightBytes)
		require.Zero(t, st.Conns)
	})
}

func write(t *testing.T, nc net.Conn, b []byte) {
	t.Helper()
	_, err := nc.Write(b)
	require.NoError(t, err)
}

// A frame that is begun and never ended: from nothing but half a size to a stalled large one.
func TestSlowloris(t *testing.T) {
	for _, tc := range []struct {
		sent []byte
		in   time.Duration
	}{
		{[]byte{0, 0}, DefaultFrameTimeout},
		{frame(1, make([]byte, 100))[:50], DefaultFrameTimeout},
		{frame(1, make([]byte, 200<<10))[:100<<10], DefaultFrameTimeout},
		{frame(1, make([]byte, 3<<20))[:1100<<10], DefaultFrameTimeout + 8*time.Second}, // a large step has more time
	} {
		inBubble(t, echo, func(t *testing.T, s *testServer, dial func() net.Conn) {
			nc, begun := dial(), time.Now()
			write(t, nc, tc.sent)
			_, err := nc.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, tc.in, time.Since(begun).Truncate(time.Second))
			e := s.event()
			require.Equal(t, EventSlowSender, e.Kind)
			require.Contains(t, e.Message, "not sent in time")
		})
	}
}

// A byte now and then does not keep a frame alive.
func TestDripIsNotProgress(t *testing.T) {
	inBubble(t, echo, func(t *testing.T, s *testServer, dial func() net.Conn) {
		nc := dial()
		f := frame(1, make([]byte, 1000))
		for i := range f {
			if _, err := nc.Write(f[i : i+1]); err != nil {
				require.Less(t, i, 100)
				require.Equal(t, EventSlowSender, s.event().Kind)
				return
			}
			<-time.After(time.Second)
		}
		require.Fail(t, "a frame was taken that took a thousand seconds")
	})
}

func TestIdle(t *testing.T) {
	inBubble(t, echo, func(t *testing.T, s *testServer, dial func() net.Conn) {
		begun := time.Now()
		silent, once := dial(), dial()
		<-time.After(time.Minute)
		write(t, once, frame(1, []byte("ping")))
		_, err := io.ReadFull(once, make([]byte, 12))
		require.NoError(t, err)
		for _, nc := range []net.Conn{silent, once} {
			_, err = nc.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, EventIdle, s.event().Kind)
		}
		require.Equal(t, DefaultIdleTimeout+time.Minute, time.Since(begun))
	})
}

// A long poll is not idleness.
func TestPendingIsNotIdle(t *testing.T) {
	h := handlerFunc(func(context.Context, *Request) Pending {
		return PendingFunc(func(ctx context.Context) Response {
			timer := time.NewTimer(time.Hour)
			defer timer.Stop()
			select {
			case <-timer.C:
				return Response{Bufs: net.Buffers{[]byte("at last")}}
			case <-ctx.Done():
				return Response{}
			}
		})
	})
	inBubble(t, h, func(t *testing.T, s *testServer, dial func() net.Conn) {
		nc := dial()
		write(t, nc, frame(1, nil))
		b := make([]byte, 15)
		_, err := io.ReadFull(nc, b)
		require.NoError(t, err)
		require.Equal(t, "at last", string(b[8:]))
	})
}

// A client that takes nothing is closed, and what else was pending for it is released.
func TestSlowReader(t *testing.T) {
	var released atomic.Int32
	h := handlerFunc(func(context.Context, *Request) Pending {
		return Done{Bufs: net.Buffers{make([]byte, 1<<20)}, Release: func() { released.Add(1) }}
	})
	inBubble(t, h, func(t *testing.T, s *testServer, dial func() net.Conn) {
		nc, begun := dial(), time.Now()
		write(t, nc, append(frame(1, nil), frame(2, nil)...))
		_, err := io.ReadFull(nc, make([]byte, leastProgress-1)) // not enough to count
		require.NoError(t, err)
		require.Equal(t, EventSlowReader, s.event().Kind)
		require.Equal(t, DefaultWriteTimeout, time.Since(begun))
		synctest.Wait()
		require.Equal(t, int32(2), released.Load())
	})
}

// A client that needs many write timeouts for a response but goes on taking it gets it.
func TestSteadyReaderMayBeSlow(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	h := handlerFunc(func(context.Context, *Request) Pending {
		return Done{Bufs: net.Buffers{want[:1000], want[1000:500000], want[500000:]}}
	})
	inBubble(t, h, func(t *testing.T, s *testServer, dial func() net.Conn) {
		nc, begun := dial(), time.Now()
		write(t, nc, frame(1, nil))
		got := make([]byte, 8+len(want))
		for rest := got; len(rest) > 0; {
			n, err := io.ReadFull(nc, rest[:min(len(rest), 2*leastProgress)])
			require.NoError(t, err)
			rest = rest[n:]
			<-time.After(DefaultWriteTimeout - time.Second)
		}
		require.True(t, bytes.Equal(want, got[8:]))
		require.Greater(t, time.Since(begun), 5*DefaultWriteTimeout)
		s.noEvent()
	})
}

// failingListener fails a few times, as when file descriptors run out, then gives connections.
type failingListener struct {
	net.Listener
	failures int
	conns    chan net.Conn
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, syscall.EMFILE
	}
	nc, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return nc, nil
}

func TestAcceptGoesOnAfterErrors(t *testing.T) {
	inBubble(t, echo, func(t *testing.T, s *testServer, _ func() net.Conn) {
		l := &failingListener{failures: 12, conns: make(chan net.Conn, 1)}
		ours, theirs := net.Pipe()
		defer ours.Close()
		l.conns <- theirs
		begun := time.Now()
		s.wg.Add(1)
		go s.accept(l, s.o.Listeners[0])
		write(t, ours, frame(1, []byte("ping")))
		_, err := io.ReadFull(ours, make([]byte, 12))
		require.NoError(t, err)
		require.InDelta(t, 5, time.Since(begun).Seconds(), 1, "it waited longer and longer, up to a second")
		require.Equal(t, EventAccept, s.event().Kind)
		require.Equal(t, int64(12), s.Stats().Events["accept"])
		close(l.conns)
	})
}
