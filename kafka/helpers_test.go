package kafka

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = time.Minute

// handlerFunc is a function as Handler.
type handlerFunc func(ctx context.Context, r *Request) Pending

func (f handlerFunc) Handle(ctx context.Context, r *Request) Pending { return f(ctx, r) }

// echo answers each request with its own body.
var echo = handlerFunc(func(_ context.Context, r *Request) Pending {
	return Done{Bufs: net.Buffers{append([]byte{}, r.Body...)}}
})

type testServer struct {
	*Server
	t      *testing.T
	events chan Event
}

// start runs a server on a free port and shuts it down at the end of the test.
func start(t *testing.T, h Handler, change func(*Options)) *testServer {
	t.Helper()
	events := make(chan Event, 100)
	o := Options{Listeners: []Listener{{Name: "TEST", Addr: "127.0.0.1:0"}}, Handler: h, OnEvent: func(e Event) { events <- e }}
	if change != nil {
		change(&o)
	}
	s, err := NewServer(o)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx))
		st := s.Stats()
		require.Zero(t, st.InflightBytes, "request buffers were not given back")
		require.Zero(t, st.Conns)
	})
	return &testServer{Server: s, t: t, events: events}
}

func (s *testServer) event() Event {
	s.t.Helper()
	select {
	case e := <-s.events:
		return e
	case <-time.After(patience):
		require.FailNow(s.t, "no event")
		return Event{}
	}
}

// noEvent is for after the connections in question have been seen closed.
func (s *testServer) noEvent() {
	s.t.Helper()
	select {
	case e := <-s.events:
		require.Fail(s.t, "unexpected event", "%+v", e)
	default:
	}
}

// client is a raw TCP client.
type client struct {
	net.Conn
	t *testing.T
}

func (s *testServer) dial() *client {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.Addrs()[0].String())
	require.NoError(s.t, err)
	return newClient(s.t, nc)
}

func newClient(t *testing.T, nc net.Conn) *client {
	t.Cleanup(func() { nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
	return &client{Conn: nc, t: t}
}

// frame encodes a Metadata request of version 1 (request header 1, response header 0).
func frame(correlation int32, body []byte) []byte {
	return rawFrame(3, 1, correlation, "test", body)
}

func rawFrame(key, version int16, correlation int32, clientID string, body []byte) []byte {
	b := make([]byte, 4, 64+len(body))
	b = appendInt16(b, key)
	b = appendInt16(b, version)
	b = appendInt32(b, correlation)
	b = appendStr(b, clientID, false)
	if Flexible(key, version) {
		b = append(b, 0)
	}
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (c *client) send(b []byte) {
	c.t.Helper()
	_, err := c.Write(b)
	require.NoError(c.t, err)
}

// receive reads one response: correlation id and what follows.
func (c *client) receive() (correlation int32, body []byte) {
	c.t.Helper()
	var size [4]byte
	_, err := io.ReadFull(c, size[:])
	require.NoError(c.t, err)
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(c, b)
	require.NoError(c.t, err)
	return int32(binary.BigEndian.Uint32(b)), b[4:]
}

// requireClosed waits for the server to close the connection.
func (c *client) requireClosed() {
	c.t.Helper()
	for {
		n, err := c.Read(make([]byte, 1<<16))
		if n > 0 {
			continue
		}
		var ne net.Error
		require.Error(c.t, err)
		require.False(c.t, asNetError(err, &ne) && ne.Timeout(), "the server did not close the connection")
		return
	}
}

func asNetError(err error, to *net.Error) bool {
	e, ok := err.(net.Error) //nolint:errorlint // straight from the connection
	*to = e
	return ok
}

// roundTrip checks that the connection works.
func (c *client) roundTrip(correlation int32) {
	c.t.Helper()
	c.send(frame(correlation, []byte("ping")))
	got, body := c.receive()
	require.Equal(c.t, correlation, got)
	require.Equal(c.t, "ping", string(body))
}

// signal is a channel to be closed once.
type signal struct {
	ch   chan struct{}
	once sync.Once
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }
func (s *signal) set()   { s.once.Do(func() { close(s.ch) }) }
func (s *signal) wait(t *testing.T) {
	t.Helper()
	select {
	case <-s.ch:
	case <-time.After(patience):
		require.FailNow(t, "it did not happen")
	}
}

func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, time.Millisecond)
}
