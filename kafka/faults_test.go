package kafka

import (
	"context"
	"encoding/hex"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Whatever comes in on the port: that connection is closed with one event, others go on.
func TestGarbage(t *testing.T) {
	hello, err := hex.DecodeString("1603010200010001fc0303")
	require.NoError(t, err)
	flexible := rawFrame(3, 9, 1, "x", nil)
	flexible[len(flexible)-1] = 9 // nine tagged fields that are not there
	for _, tc := range []struct {
		name  string
		bytes []byte
		cut   bool // the client closes its side after sending
		kind  EventKind
		says  string
	}{
		{"TLS hello", hello, false, EventTLSHello, "TLS client hello on a plaintext listener"},
		{"HTTP GET", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), false, EventHTTP, "HTTP request on the Kafka port"},
		{"HTTP POST", []byte("POST /topics HTTP/1.1\r\n\r\n"), false, EventHTTP, "admin port"},
		{"HTTP response", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), false, EventHTTP, "HTTP"},
		{"zero size", []byte{0, 0, 0, 0}, false, EventGarbage, "frame size 0"},
		{"negative size", []byte{0xff, 0xff, 0xff, 0xff}, false, EventGarbage, "frame size -1"},
		{"tiny size", []byte{0, 0, 0, 3, 1, 2, 3}, false, EventGarbage, "too short"},
		{"too large", []byte{0x7f, 0, 0, 0}, false, EventTooLarge, "over the limit of 104857600"},
		{"text", []byte("hello there"), false, EventTooLarge, `"hell"`},
		{"unknown API", rawFrame(1234, 0, 1, "x", nil), false, EventGarbage, "unknown API key 1234"},
		{"negative API", rawFrame(-1, 0, 1, "x", nil), false, EventGarbage, "unknown API key -1"},
		{"negative version", rawFrame(3, -2, 1, "x", nil), false, EventGarbage, "negative version"},
		{"client id past the end", []byte{0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff}, false, EventGarbage, "no Kafka request"},
		{"tags past the end", flexible, false, EventGarbage, "no Kafka request"},
		{"cut size", []byte{0, 0}, true, EventTruncated, "after 2 of 4 bytes"},
		{"cut frame", frame(1, make([]byte, 1000))[:600], true, EventTruncated, "after 596 of"},
		{"cut large frame", frame(1, make([]byte, 1<<20))[:500<<10], true, EventTruncated, "went away within a request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t, echo, nil)
			other := s.dial()
			other.roundTrip(1)
			c := s.dial()
			c.send(tc.bytes)
			if tc.cut {
				require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
			}
			c.requireClosed()
			e := s.event()
			require.Equal(t, tc.kind, e.Kind, e.Message)
			require.Contains(t, e.Message, tc.says)
			require.Equal(t, c.LocalAddr().String(), e.Remote)
			require.Equal(t, "TEST", e.Listener)
			require.NotZero(t, e.Conn)
			eventually(t, func() bool { return s.Stats().Conns == 1 })
			other.roundTrip(2)
			s.noEvent()
			require.Equal(t, int64(1), s.Stats().Events[tc.kind.String()])
		})
	}
}

func TestGarbageAfterGoodRequests(t *testing.T) {
	s := start(t, echo, nil)
	c := s.dial()
	c.roundTrip(1)
	c.send([]byte("GET / HTTP/1.1\r\n\r\n"))
	c.requireClosed()
	require.Equal(t, EventTooLarge, s.event().Kind)
}

func TestCleanCloseMakesNoEvent(t *testing.T) {
	s := start(t, echo, nil)
	for range 3 {
		c := s.dial()
		c.roundTrip(1)
		c.Close()
	}
	reset := s.dial()
	reset.roundTrip(1)
	require.NoError(t, reset.Conn.(*net.TCPConn).SetLinger(0))
	reset.Close()
	eventually(t, func() bool { return s.Stats().Accepted == 4 && s.Stats().Conns == 0 })
	s.noEvent()
}

func TestEventsAreRateLimited(t *testing.T) {
	s := start(t, echo, nil)
	for range 3 * eventBurst {
		c := s.dial()
		c.send([]byte{0, 0, 0, 0})
		c.requireClosed()
	}
	require.Equal(t, int64(3*eventBurst), s.Stats().Events["garbage"])
	require.Len(t, s.events, eventBurst)
}

// lostMapping returns a mapping of a file that was cut under it: touching it faults.
func lostMapping(t *testing.T) []byte {
	f, err := os.CreateTemp(t.TempDir(), "mapping")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(1<<20))
	m, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(m)) })
	require.NoError(t, f.Truncate(0))
	return m
}

func TestMemoryFaults(t *testing.T) {
	m := lostMapping(t)
	var released atomic.Int32
	sum := func() (n int) {
		for _, b := range m {
			n += int(b)
		}
		return n
	}
	for name, h := range map[string]handlerFunc{
		"in writev": func(context.Context, *Request) Pending {
			return Done{Bufs: net.Buffers{[]byte("good"), m}, Release: func() { released.Add(1) }}
		},
		"in Handle": func(context.Context, *Request) Pending { return Done{Bufs: net.Buffers{make([]byte, sum())}} },
		"in Wait": func(context.Context, *Request) Pending {
			return PendingFunc(func(context.Context) Response { return Response{Bufs: net.Buffers{make([]byte, sum())}} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, handlerFunc(func(ctx context.Context, r *Request) Pending {
				if string(r.Body) == "ping" {
					return echo.Handle(ctx, r)
				}
				return h(ctx, r)
			}), nil)
			other, c := s.dial(), s.dial()
			c.send(frame(1, nil))
			c.requireClosed()
			require.Equal(t, EventFault, s.event().Kind)
			other.roundTrip(1)
			s.noEvent()
		})
	}
	require.Equal(t, int32(1), released.Load())
}
