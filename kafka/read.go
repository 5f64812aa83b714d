package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"
)

// firstStep is how much of a frame's memory is allocated on its announcement alone, if the
// connection has not sent a larger one whole before; what counts of that is up to mostTrusted.
// More follows in steps of four times what has really arrived.
const (
	firstStep   = 64 << 10
	mostTrusted = 1 << maxClassBits
)

// smallFrame is the size up to which a frame is read without asking the budget. Each connection
// reads one frame at a time, so small ones are bounded by the number of connections; and clients
// that hold the budget with large frames they send slowly don't stop the others' small requests.
const smallFrame = 16 << 10

// frameRate is the least speed at which a large frame must arrive, in bytes per second.
const frameRate = 256 << 10

// errStopped: the connection ends without a fault of the client.
var errStopped = errors.New("stopped")

// readLoop reads and handles requests until the connection ends. It reports faults itself.
func (c *Conn) readLoop() {
	debug.SetPanicOnFault(true)
	defer c.recoverFault("handling a request")
	for {
		select {
		case c.slots <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		buf, err := c.readFrame()
		if err != nil {
			c.readFault(err)
			return
		}
		if !c.handle(buf) {
			return
		}
	}
}

// handle parses a frame, calls the handler and queues what it returns. It consumes buf.
func (c *Conn) handle(buf *buffer) bool {
	defer buf.release()
	h, err := parseHeader(buf.b)
	if err != nil {
		c.readFault(&frameError{EventGarbage, "bytes that are no Kafka request: " + err.Error()})
		return false
	}
	c.first = false
	if c.clientID != string(h.clientID) {
		c.clientID = string(h.clientID)
		id := c.clientID
		c.lastID.Store(&id)
	}
	r := &Request{
		Key: h.key, Version: h.version, Correlation: h.correlation, ClientID: c.clientID,
		Body: h.body, Conn: c, Received: time.Now(), buf: buf,
	}
	e := entry{
		received: r.Received, bytesIn: int32(len(buf.b)) + 4,
		correlation: h.correlation, key: h.key, version: h.version,
	}
	e.pending = c.srv.o.Handler.Handle(c.ctx, r)
	if e.pending == nil {
		e.pending = Done{None: true}
	}
	if !c.writing {
		c.writing = true
		go c.writeLoop()
	}
	c.queue <- e // never blocks: there are as many places as slots
	return true
}

// frameError is a fault of what the client sent.
type frameError struct {
	kind EventKind
	msg  string
}

func (e *frameError) Error() string { return e.msg }

// readFault reports why reading ended and, unless the server is stopping, gives up what is
// pending: nobody is there to read it.
func (c *Conn) readFault(err error) {
	var fe *frameError
	switch {
	case c.isStopping():
		return
	case errors.As(err, &fe):
		c.fault(fe.kind, fe.msg, nil)
	case errors.Is(err, syscall.ETIMEDOUT):
		c.fault(EventHalfOpen, "the client does not answer any longer (keepalive)", err)
	}
	c.cancel(ErrClosed)
}

// readFrame reads one frame. io.EOF and errStopped are clean ends.
func (c *Conn) readFrame() (*buffer, error) {
	if err := c.awaitSize(); err != nil {
		return nil, err
	}
	raw := c.ahead[c.ahR : c.ahR+4]
	size := int32(binary.BigEndian.Uint32(raw))
	if err := c.checkSize(raw, size); err != nil {
		return nil, err
	}
	c.ahR += 4
	step := min(int(size), max(firstStep, c.trusted))
	buf := newBuffer(step)
	if size > smallFrame && !c.srv.budget.grow(&buf.lease, int64(step), c.ctx.Done()) {
		buf.release()
		return nil, errStopped
	}
	have := copy(buf.store[:step], c.ahead[c.ahR:c.ahW])
	c.ahR += have
	for have < int(size) {
		if have == step {
			var err error
			step = min(int(size), 4*have)
			if buf, err = c.enlarge(buf, have, step); err != nil {
				return nil, err
			}
		}
		c.readBy(c.frameDeadline(step - have))
		if c.isStopping() {
			buf.release()
			return nil, errStopped
		}
		n, err := io.ReadFull(c.nc, buf.store[have:step])
		have += n
		if err != nil {
			buf.release()
			return nil, c.partial(err, have, int(size))
		}
	}
	c.trusted = max(c.trusted, min(int(size), mostTrusted))
	buf.b = buf.store[:size]
	return buf, nil
}

// enlarge moves the have bytes of a frame into a buffer of n. The budget is asked first, with
// the old lease kept: it moves along.
func (c *Conn) enlarge(old *buffer, have, n int) (*buffer, error) {
	if !c.srv.budget.grow(&old.lease, int64(n-have), c.ctx.Done()) {
		old.release()
		return nil, errStopped
	}
	buf := newBuffer(n)
	copy(buf.store, old.store[:have])
	old.lease.moveTo(&buf.lease)
	old.release()
	return buf, nil
}

func (c *Conn) frameDeadline(n int) time.Time {
	return time.Now().Add(c.srv.o.FrameTimeout + time.Duration(n/frameRate)*time.Second)
}

// readBy sets the deadline of reads.
func (c *Conn) readBy(t time.Time) {
	c.readUntil = t
	c.nc.SetReadDeadline(t) //nolint:errcheck // the read that follows fails as well
}

// idleBy lets the next read wait until t. A deadline up to a quarter of IdleTimeout too early is kept: moving it costs as
// much as parsing a small request, and whoever it wakes too early looks at the clock.
func (c *Conn) idleBy(t time.Time) {
	if c.readUntil.After(t) || c.readUntil.Before(t.Add(-c.srv.o.IdleTimeout/4)) {
		c.readBy(t)
	}
}

// partial turns an error in the middle of a frame into what it means.
func (c *Conn) partial(err error, have, size int) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &frameError{EventSlowSender, fmt.Sprintf("a request of %d bytes was not sent in time, %d had arrived", size, have)}
	case errors.Is(err, syscall.ETIMEDOUT):
		return err
	}
	return &frameError{EventTruncated, fmt.Sprintf("the client went away within a request, after %d of %d bytes", have, size)}
}

// awaitSize waits until a frame's size field is in ahead. Nothing having arrived is idleness,
// a part of it the beginning of a frame.
func (c *Conn) awaitSize() error {
	if c.ahR == c.ahW {
		c.ahR, c.ahW = 0, 0
	}
	idle := time.Now().Add(c.srv.o.IdleTimeout)
	for c.ahW-c.ahR < 4 {
		have := c.ahW - c.ahR
		if c.ahR+4 > len(c.ahead) {
			copy(c.ahead[:], c.ahead[c.ahR:c.ahW])
			c.ahR, c.ahW = 0, have
		}
		if have == 0 {
			c.idleBy(idle)
		} else {
			c.readBy(c.frameDeadline(0))
		}
		if c.isStopping() {
			return errStopped
		}
		n, err := c.nc.Read(c.ahead[c.ahW:])
		c.ahW += n
		if n > 0 || err == nil {
			continue
		}
		if have > 0 {
			return c.partial(err, have, 4)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		switch now := time.Now(); {
		case now.Before(idle):
			c.readBy(idle)
		case len(c.slots) == 1 && !c.isStopping(): // that of the request being waited for: no work is in progress
			return &frameError{EventIdle, "nothing was asked for " + c.srv.o.IdleTimeout.String()}
		default:
			idle = now.Add(c.srv.o.IdleTimeout)
		}
	}
	return nil
}

// checkSize judges a size field before anything is allocated for it.
func (c *Conn) checkSize(raw []byte, size int32) error {
	if c.first {
		if err := foreign(raw); err != nil {
			return err
		}
	}
	switch {
	case size <= 0:
		return &frameError{EventGarbage, fmt.Sprintf("bytes that are no Kafka request: frame size %d (%q)", size, raw)}
	case size < minFrame:
		return &frameError{EventGarbage, fmt.Sprintf("bytes that are no Kafka request: a frame of %d bytes is too short for a header", size)}
	case size > c.srv.o.MaxRequestBytes:
		return &frameError{EventTooLarge, fmt.Sprintf("a request of %d bytes (%q) is over the limit of %d", size, raw, c.srv.o.MaxRequestBytes)}
	}
	return nil
}

// foreign recognises other protocols by the first four bytes of a connection.
func foreign(raw []byte) error {
	if raw[0] == 0x16 && raw[1] == 0x03 && raw[2] <= 0x04 {
		return &frameError{EventTLSHello, "a TLS client hello on a plaintext listener; enable TLS or use the other port"}
	}
	switch string(raw) {
	case "GET ", "HEAD", "POST", "PUT ", "DELE", "OPTI", "PATC", "CONN", "TRAC", "PRI ", "HTTP":
		return &frameError{EventHTTP, "an HTTP request on the Kafka port; the admin port is the one that speaks HTTP"}
	}
	return nil
}
