package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOneRequest(t *testing.T) {
	requests := make(chan Request, 1)
	s := start(t, handlerFunc(func(ctx context.Context, r *Request) Pending {
		kept := *r
		kept.Body = append([]byte{}, r.Body...)
		requests <- kept
		return echo.Handle(ctx, r)
	}), nil)
	c := s.dial()
	c.send(frame(42, []byte("hello")))
	got, body := c.receive()
	require.Equal(t, int32(42), got)
	require.Equal(t, "hello", string(body))
	seen := <-requests
	require.Equal(t, int16(3), seen.Key)
	require.Equal(t, int16(1), seen.Version)
	require.Equal(t, "test", seen.ClientID)
	require.Equal(t, "hello", string(seen.Body))
	require.Equal(t, "TEST", seen.Conn.Listener())
	require.Equal(t, c.LocalAddr().String(), seen.Conn.RemoteAddr().String())
	require.WithinDuration(t, time.Now(), seen.Received, patience)
}

func TestResponseHeaders(t *testing.T) {
	for _, tc := range []struct {
		name         string
		key, version int16
		tagged       bool
	}{
		{"old", 3, 8, false},
		{"flexible", 3, 9, true},
		{"flexible Fetch", 1, 12, true},
		{"ApiVersions, old", 18, 0, false},
		{"ApiVersions, flexible request", 18, 3, false},
		{"ApiVersions of the future", 18, 99, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t, echo, nil)
			c := s.dial()
			c.send(rawFrame(tc.key, tc.version, 7, "x", []byte("body")))
			_, body := c.receive()
			want := "body"
			if tc.tagged {
				want = "\x00body"
			}
			require.Equal(t, want, string(body))
		})
	}
}

// Requests are handled in order and answered in order, whichever is ready first, and they
// overlap up to the limit.
func TestPipeliningKeepsOrder(t *testing.T) {
	const limit, total = 4, 20
	var handled, running, most atomic.Int32
	gates := make([]chan struct{}, total)
	for i := range gates {
		gates[i] = make(chan struct{})
	}
	s := start(t, handlerFunc(func(_ context.Context, r *Request) Pending {
		n := handled.Add(1) - 1
		require.Equal(t, n, r.Correlation)
		if now := running.Add(1); now > most.Load() {
			most.Store(now)
		}
		body := append([]byte{}, r.Body...)
		return PendingFunc(func(context.Context) Response {
			<-gates[n]
			return Response{Bufs: net.Buffers{body}, Release: func() { running.Add(-1) }}
		})
	}), func(o *Options) { o.MaxInflightPerConn = limit })
	c := s.dial()
	var all []byte
	for i := range total {
		all = append(all, frame(int32(i), fmt.Appendf(nil, "body %d", i))...)
	}
	c.send(all)
	eventually(t, func() bool { return handled.Load() == limit })
	for i := total - 1; i >= 0; i-- { // the last is ready first
		close(gates[i])
	}
	for i := range total {
		got, body := c.receive()
		require.Equal(t, int32(i), got)
		require.Equal(t, fmt.Sprintf("body %d", i), string(body))
	}
	require.Equal(t, int32(limit), most.Load())
}

func TestNoResponse(t *testing.T) {
	var released atomic.Int32
	s := start(t, handlerFunc(func(ctx context.Context, r *Request) Pending {
		switch r.Correlation {
		case 1:
			return nil
		case 2:
			return Done{None: true, Release: func() { released.Add(1) }, Bufs: net.Buffers{[]byte("not to be sent")}}
		}
		return echo.Handle(ctx, r)
	}), nil)
	c := s.dial()
	c.send(append(frame(1, nil), frame(2, nil)...))
	c.roundTrip(3)
	require.Equal(t, int32(1), released.Load())
}

func TestHandlerCloses(t *testing.T) {
	s := start(t, handlerFunc(func(_ context.Context, r *Request) Pending {
		return Done{Bufs: net.Buffers{[]byte("last words")}, Close: errors.New("wrong password")}
	}), nil)
	c := s.dial()
	c.send(frame(1, nil))
	_, body := c.receive()
	require.Equal(t, "last words", string(body))
	c.requireClosed()
	e := s.event()
	require.Equal(t, EventHandler, e.Kind)
	require.Equal(t, "wrong password", e.Message)
	require.Equal(t, "test", e.ClientID)
}

func TestRetainKeepsTheBody(t *testing.T) {
	var wg sync.WaitGroup
	s := start(t, handlerFunc(func(_ context.Context, r *Request) Pending {
		r.Retain()
		return PendingFunc(func(context.Context) Response {
			return Response{Bufs: net.Buffers{r.Body}, Release: r.Release}
		})
	}), nil)
	for i := range 8 {
		wg.Add(1)
		c := s.dial()
		go func() {
			defer wg.Done()
			for j := range 50 {
				want := bytes.Repeat([]byte{byte(i), byte(j)}, 100*j)
				if _, err := c.Write(frame(int32(j), want)); err != nil {
					t.Error(err)
					return
				}
				_, body := c.receive()
				if !bytes.Equal(want, body) {
					t.Errorf("client %d, request %d: another body came back", i, j)
				}
			}
		}()
	}
	wg.Wait()
}

// Frames of sizes around the steps in which buffers grow, sent in dribs and drabs.
func TestFrameSizes(t *testing.T) {
	s := start(t, echo, nil)
	c := s.dial()
	for i, n := range []int{0, 1, 480, 481, 500, 512, 513, firstStep - 20, firstStep, firstStep + 1, 4 * firstStep, 4*firstStep + 1, 3 << 20} {
		want := bytes.Repeat([]byte{byte(i + 1)}, n)
		f := frame(int32(i), want)
		for len(f) > 0 { // pieces of growing size, so that frames begin anywhere
			k := min(len(f), 1+len(f)/3)
			c.send(f[:k])
			f = f[k:]
		}
		got, body := c.receive()
		require.Equal(t, int32(i), got)
		require.True(t, bytes.Equal(want, body))
	}
}

func TestMaxConns(t *testing.T) {
	s := start(t, echo, func(o *Options) { o.MaxConns = 2 })
	a, b := s.dial(), s.dial()
	a.roundTrip(1)
	b.roundTrip(1)
	c := s.dial()
	c.requireClosed()
	require.Equal(t, EventTooManyConns, s.event().Kind)
	a.roundTrip(2)
	b.Close()
	eventually(t, func() bool { return s.Stats().Conns == 1 })
	s.dial().roundTrip(1)
	s.noEvent()
}

// With a budget smaller than any of the requests, all connections get through, one by one.
func TestInflightBytes(t *testing.T) {
	const clients, size = 8, 300 << 10
	var holding, most atomic.Int64
	s := start(t, handlerFunc(func(_ context.Context, r *Request) Pending {
		r.Retain()
		if n := holding.Add(int64(len(r.Body))); n > most.Load() {
			most.Store(n)
		}
		n := len(r.Body)
		return PendingFunc(func(context.Context) Response {
			return Response{Release: func() { holding.Add(int64(-n)); r.Release() }}
		})
	}), func(o *Options) { o.MaxInflightBytes = 1000 })
	var wg sync.WaitGroup
	for range clients {
		c := s.dial()
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 10 {
				if _, err := c.Write(frame(int32(i), make([]byte, size))); err != nil {
					t.Error(err)
					return
				}
				c.receive()
			}
		}()
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(size), "only one at a time may pass the limit")
}

func TestClientGone(t *testing.T) {
	waiting, done, released := newSignal(), newSignal(), newSignal()
	var cause atomic.Value
	s := start(t, handlerFunc(func(context.Context, *Request) Pending {
		return PendingFunc(func(ctx context.Context) Response {
			waiting.set()
			<-ctx.Done()
			cause.Store(context.Cause(ctx))
			done.set()
			return Response{Bufs: net.Buffers{[]byte("too late")}, Release: released.set}
		})
	}), nil)
	c := s.dial()
	c.send(frame(1, nil))
	waiting.wait(t)
	c.Close()
	done.wait(t)
	released.wait(t)
	require.ErrorIs(t, cause.Load().(error), ErrClosed)
	eventually(t, func() bool { return s.Stats().Conns == 0 })
	s.noEvent()
}

func TestShutdownAnswersWhatIsPending(t *testing.T) {
	waiting := newSignal()
	var handled atomic.Int32
	h := handlerFunc(func(context.Context, *Request) Pending {
		handled.Add(1)
		return PendingFunc(func(ctx context.Context) Response {
			waiting.set()
			<-ctx.Done()
			return Response{Bufs: net.Buffers{[]byte(context.Cause(ctx).Error())}}
		})
	})
	s, err := NewServer(Options{Listeners: []Listener{{Addr: "127.0.0.1:0"}}, Handler: h})
	require.NoError(t, err)
	s.Start()
	nc, err := net.Dial("tcp", s.Addrs()[0].String())
	require.NoError(t, err)
	c := newClient(t, nc)
	c.send(append(frame(1, nil), frame(2, nil)...))
	waiting.wait(t)
	eventually(t, func() bool { return handled.Load() == 2 })
	idle, err := net.Dial("tcp", s.Addrs()[0].String())
	require.NoError(t, err)
	cut := newClient(t, idle)
	cut.send(frame(1, make([]byte, 100))[:50])

	require.NoError(t, s.Shutdown(context.Background()))
	for want := int32(1); want <= 2; want++ {
		got, body := c.receive()
		require.Equal(t, want, got)
		require.Equal(t, ErrShutdown.Error(), string(body))
	}
	c.requireClosed()
	cut.requireClosed()
	_, err = net.Dial("tcp", s.Addrs()[0].String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, s.Shutdown(context.Background()), "a second one does nothing")
}

func TestShutdownGivesUp(t *testing.T) {
	waiting, goOn, released := newSignal(), newSignal(), newSignal()
	s, err := NewServer(Options{
		Listeners: []Listener{{Addr: "127.0.0.1:0"}},
		Handler: handlerFunc(func(context.Context, *Request) Pending {
			return PendingFunc(func(context.Context) Response {
				waiting.set()
				<-goOn.ch
				return Response{Release: released.set}
			})
		}),
	})
	require.NoError(t, err)
	s.Start()
	nc, err := net.Dial("tcp", s.Addrs()[0].String())
	require.NoError(t, err)
	c := newClient(t, nc)
	c.send(frame(1, nil))
	waiting.wait(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
	c.requireClosed()
	goOn.set()
	released.wait(t)
	require.NoError(t, s.Shutdown(context.Background()))
}

func TestNewServerErrors(t *testing.T) {
	_, err := NewServer(Options{})
	require.Error(t, err)
	s := start(t, echo, nil)
	_, err = NewServer(Options{Handler: echo, Listeners: []Listener{{Addr: "127.0.0.1:0"}, {Addr: s.Addrs()[0].String()}}})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.Contains(t, err.Error(), s.Addrs()[0].String())

	unstarted, err := NewServer(Options{Handler: echo, Listeners: []Listener{{Addr: "127.0.0.1:0"}}})
	require.NoError(t, err)
	require.NoError(t, unstarted.Shutdown(context.Background()))
	unstarted.Start() // does nothing
}

func TestRequestStats(t *testing.T) {
	stats := make(chan RequestStats, 1)
	s := start(t, echo, func(o *Options) { o.OnRequest = func(r RequestStats) { stats <- r } })
	c := s.dial()
	f := frame(1, []byte("ping"))
	c.send(f)
	c.receive()
	got := <-stats
	require.Equal(t, int64(len(f)), got.BytesIn)
	require.Equal(t, int64(12), got.BytesOut)
	require.Equal(t, int16(3), got.Key)
	require.GreaterOrEqual(t, got.Total, got.Write)
}

func TestConnValues(t *testing.T) {
	type key struct{}
	c := NewDetachedConn("X", &net.TCPAddr{Port: 1})
	require.Nil(t, c.Value(key{}))
	c.SetValue(key{}, 7)
	require.Equal(t, 7, c.Value(key{}))
	c.SetSoftware("lib", "1.0")
	name, version := c.Software()
	require.Equal(t, [2]string{"lib", "1.0"}, [2]string{name, version})
	require.Equal(t, ":1", c.RemoteAddr().String())
	_, ok := c.TLSState()
	require.False(t, ok)
	r := &Request{Conn: c} // no server behind it
	r.Retain()
	r.Release()
}
