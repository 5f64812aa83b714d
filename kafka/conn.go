package kafka

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// aheadBytes is how much is read at once before a frame's size is known. Small: it is what an
// idle connection costs.
const aheadBytes = 512

// Conn is a client's connection.
type Conn struct {
	id       uint64
	listener string
	remote   net.Addr
	local    net.Addr

	srv    *Server
	nc     net.Conn
	tls    *tls.Conn // nc when it is one
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Read side, owned by the read goroutine.
	ahead     [aheadBytes]byte
	ahR, ahW  int
	first     bool      // no frame was read yet
	trusted   int       // the largest frame that was sent whole, see mostTrusted
	writing   bool      // the write goroutine was started
	readUntil time.Time // deadline of reads
	clientID  string

	// Write side, owned by the write goroutine.
	head       [9]byte     // size, correlation id, no tags
	vec, left  net.Buffers // vector in use, and its memory
	writeUntil time.Time   // deadline of writes

	slots chan struct{} // one per request that is handled but not answered
	queue chan entry    // responses in request order; closed by the read goroutine

	stopping  chan struct{} // closed by stop: read no further
	stopOnce  sync.Once
	faultOnce sync.Once
	lastID    atomic.Pointer[string]
	written   chan struct{} // closed when the write goroutine is done

	mu       sync.Mutex
	values   map[any]any
	software [2]string
}

// NewDetachedConn returns a Conn that belongs to no server, for calling a Handler directly.
func NewDetachedConn(listener string, remote net.Addr) *Conn {
	c := &Conn{listener: listener, remote: remote, local: remote}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// ID is unique among the connections of a server; it starts with 1.
func (c *Conn) ID() uint64 { return c.id }

// Listener is the name of the listener the connection came in on.
func (c *Conn) Listener() string { return c.listener }

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// LocalAddr is our address of the connection.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// AwaitTurn, called within Handle, returns when every earlier request of the connection has been
// answered, or with the context's cause. For requests that take much memory: one that is decoded
// while another before it waits would hold its memory all that time, and as many as may be in
// flight would do so together. Answers come in request order anyway.
func (c *Conn) AwaitTurn(ctx context.Context) error {
	// The request at hand has one slot; the others are free when all before it is answered.
	taken := 0
	defer func() {
		for ; taken > 0; taken-- {
			<-c.slots
		}
	}()
	for taken < cap(c.slots)-1 {
		select {
		case c.slots <- struct{}{}:
			taken++
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Done is closed when the connection is closed or the server shuts down.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// TLSState returns the state of the TLS handshake; false on a plaintext listener.
func (c *Conn) TLSState() (tls.ConnectionState, bool) {
	if c.tls == nil {
		return tls.ConnectionState{}, false
	}
	return c.tls.ConnectionState(), true
}

// Software returns the client software's name and version as told to SetSoftware.
func (c *Conn) Software() (name, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.software[0], c.software[1]
}

// SetSoftware keeps what the client said of itself (ApiVersions 3 and up).
func (c *Conn) SetSoftware(name, version string) {
	c.mu.Lock()
	c.software = [2]string{name, version}
	c.mu.Unlock()
}

// Value returns what SetValue kept under the key, nil when nothing.
func (c *Conn) Value(key any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values[key]
}

// SetValue keeps a value for the life of the connection. Keys are compared as map keys; use
// a type of your own.
func (c *Conn) SetValue(key, value any) {
	c.mu.Lock()
	if c.values == nil {
		c.values = make(map[any]any)
	}
	c.values[key] = value
	c.mu.Unlock()
}

// entry is a request on its way to its response.
type entry struct {
	pending      Pending
	received     time.Time
	bytesIn      int32
	correlation  int32
	key, version int16
}

// stop makes the read goroutine end, waking it up if it sleeps; what is pending is still
// answered.
func (c *Conn) stop() {
	c.stopOnce.Do(func() {
		close(c.stopping)
		c.cancel(ErrShutdown)
		// The reader sets its deadlines before it looks at stopping, so this one holds.
		c.nc.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // fails on a closed connection only, which is as good
	})
}

// kill ends the connection at once.
func (c *Conn) kill() {
	c.cancel(ErrClosed)
	c.nc.Close() //nolint:errcheck // nothing can be done about it, and nothing depends on it
}

// fault reports why the connection is closed, once.
func (c *Conn) fault(kind EventKind, msg string, err error) {
	c.faultOnce.Do(func() {
		e := Event{Kind: kind, Listener: c.listener, Remote: c.remote.String(), Conn: c.id, Message: msg, Err: err}
		if id := c.lastID.Load(); id != nil {
			e.ClientID = *id
		}
		c.srv.events.tell(e)
	})
}

// run is the read goroutine: it owns the connection from accept to close.
func (c *Conn) run() {
	defer c.srv.forget(c)
	if c.handshake() {
		c.readLoop()
	}
	close(c.queue)
	if c.writing {
		<-c.written
	}
	c.kill()
}

func (c *Conn) handshake() bool {
	if c.tls == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.srv.o.HandshakeTimeout)
	defer cancel()
	err := c.tls.HandshakeContext(ctx)
	if err == nil {
		return true
	}
	if c.isStopping() {
		return false
	}
	msg := "the TLS handshake failed: " + err.Error()
	if _, ok := err.(tls.RecordHeaderError); ok { //nolint:errorlint // never wrapped by crypto/tls
		msg = "a client that speaks no TLS on a TLS listener; use the plaintext port or enable TLS in the client"
	} else if ctx.Err() != nil {
		msg = "the TLS handshake was not finished in time"
	}
	c.fault(EventTLSHandshake, msg, err)
	return false
}

func (c *Conn) isStopping() bool {
	select {
	case <-c.stopping:
		return true
	default:
		return false
	}
}
