package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Server accepts connections and serves them. See the package comment.
type Server struct {
	o         Options
	listeners []net.Listener
	budget    budget
	events    events
	ctx       context.Context
	cancel    context.CancelCauseFunc

	mu      sync.Mutex
	started bool
	closing bool
	conns   map[*Conn]struct{}
	wg      sync.WaitGroup // accept loops and connections

	nextID   atomic.Uint64
	accepted atomic.Int64
}

// Stats are a server's figures at one moment.
type Stats struct {
	// Conns are open now; Accepted were ever.
	Conns, Accepted int64
	// InflightBytes are the request buffers in use.
	InflightBytes int64
	// Events counts closed connections by EventKind.String, also those not told of.
	Events map[string]int64
}

// NewServer opens the listeners; connections wait in their queues until Start. Errors name
// the address and wrap the system's (a taken port is syscall.EADDRINUSE).
func NewServer(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{o: o, conns: make(map[*Conn]struct{})}
	s.budget.max = o.MaxInflightBytes
	s.events.on = o.OnEvent
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4,
	}}
	for _, l := range o.Listeners {
		ln, err := lc.Listen(s.ctx, "tcp", l.Addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("kafka: listen on %s: %w", l.Addr, err), s.closeListeners())
		}
		s.listeners = append(s.listeners, ln)
	}
	return s, nil
}

// Addrs returns the listeners' addresses in the order of Options.Listeners.
func (s *Server) Addrs() []net.Addr {
	a := make([]net.Addr, len(s.listeners))
	for i, l := range s.listeners {
		a[i] = l.Addr()
	}
	return a
}

// Start begins to accept connections. A second call does nothing.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.closing {
		return
	}
	s.started = true
	for i, l := range s.listeners {
		s.wg.Add(1)
		go s.accept(l, s.o.Listeners[i])
	}
}

// Shutdown stops accepting and reading, tells what is pending through its context
// (ErrShutdown), waits until it is answered, and closes the connections. When ctx ends first,
// the connections are closed at once and an error that wraps ctx's is returned; goroutines
// whose Handle or Wait does not end then are left behind.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	err := s.closeListeners()
	for _, c := range conns {
		c.stop()
	}
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		s.cancel(ErrShutdown)
		return err
	case <-ctx.Done():
	}
	for _, c := range conns {
		c.kill()
	}
	s.cancel(ErrShutdown)
	return errors.Join(err, fmt.Errorf("kafka: shutdown: %w", ctx.Err()))
}

func (s *Server) closeListeners() error {
	var errs []error
	for _, l := range s.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("kafka: close listener: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Stats returns the figures of this moment.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	n := len(s.conns)
	s.mu.Unlock()
	st := Stats{
		Conns: int64(n), Accepted: s.accepted.Load(), InflightBytes: s.budget.inUse(),
		Events: make(map[string]int64, eventKinds),
	}
	for k := range s.events.counts {
		st.Events[EventKind(k).String()] = s.events.counts[k].Load()
	}
	return st
}

// accept is the goroutine of one listener.
func (s *Server) accept(l net.Listener, o Listener) {
	defer s.wg.Done()
	const longest = time.Second
	pause := 5 * time.Millisecond
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = 5 * time.Millisecond
			s.serve(nc, o)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		s.events.tell(Event{
			Kind: EventAccept, Listener: o.Name, Message: "connections can't be accepted: " + err.Error(), Err: err,
		})
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-s.ctx.Done():
			t.Stop()
			return
		}
		pause = min(2*pause, longest)
	}
}

// serve starts the goroutine of an accepted connection.
func (s *Server) serve(nc net.Conn, o Listener) {
	s.accepted.Add(1)
	c := &Conn{
		id: s.nextID.Add(1), listener: o.Name, remote: nc.RemoteAddr(), local: nc.LocalAddr(),
		srv: s, nc: nc, first: true,
		slots: make(chan struct{}, s.o.MaxInflightPerConn), queue: make(chan entry, s.o.MaxInflightPerConn),
		stopping: make(chan struct{}), written: make(chan struct{}),
	}
	if o.TLS != nil {
		c.tls = tls.Server(nc, o.TLS)
		c.nc = c.tls
	}
	c.ctx, c.cancel = context.WithCancelCause(s.ctx)
	s.mu.Lock()
	refuse := s.closing || len(s.conns) >= s.o.MaxConns
	full := refuse && !s.closing
	if !refuse {
		s.conns[c] = struct{}{}
		s.wg.Add(1)
	}
	s.mu.Unlock()
	if refuse {
		if full {
			c.fault(EventTooManyConns, fmt.Sprintf("the limit of %d connections is reached", s.o.MaxConns), nil)
		}
		c.cancel(ErrClosed)
		nc.Close() //nolint:errcheck // nothing was sent on it, nothing depends on it
		return
	}
	go c.run()
}

func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.wg.Done()
}
