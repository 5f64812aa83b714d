package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime/debug"
	"syscall"
	"time"
)

const (
	// leastProgress is what a client must take of a response in each WriteTimeout.
	leastProgress = 64 << 10
	// tlsPiece is the size up to which slices are gathered before they are given to TLS, and
	// the most that is written to it under one deadline: a TLS connection cannot go on after
	// a write timed out.
	tlsPiece = 64 << 10
	// keepVec is the longest vector of slices that a connection keeps for its next response.
	keepVec = 128
)

// writeLoop is the write goroutine: it waits for responses in request order and writes them.
// After a fault it goes on without writing, so that everything pending is waited for and
// released.
func (c *Conn) writeLoop() {
	debug.SetPanicOnFault(true)
	defer close(c.written)
	open := true
	for e := range c.queue {
		open = c.respond(e, open) && open
		<-c.slots
	}
}

// respond waits for one response and writes it, unless the connection is no longer open.
// It returns whether the connection still is.
func (c *Conn) respond(e entry, open bool) (ok bool) {
	var resp Response
	defer func() {
		if resp.Release != nil {
			resp.Release()
		}
		if !ok {
			c.kill()
		}
	}()
	defer c.recoverFault("answering a request")
	resp = e.pending.Wait(c.ctx)
	if cause := context.Cause(c.ctx); !open || cause != nil && !errors.Is(cause, ErrShutdown) {
		return false
	}
	start := time.Now()
	var out int64
	if !resp.None {
		var err error
		if out, err = c.write(e, resp.Bufs); err != nil {
			c.writeFault(err)
			return false
		}
	}
	if f := c.srv.o.OnRequest; f != nil {
		end := time.Now()
		f(RequestStats{
			Key: e.key, Version: e.version, BytesIn: int64(e.bytesIn), BytesOut: out,
			Total: end.Sub(e.received), Write: end.Sub(start),
		})
	}
	if resp.Close != nil {
		c.fault(EventHandler, resp.Close.Error(), resp.Close)
		return false
	}
	return true
}

// write sends one response and returns its size. bufs is consumed.
func (c *Conn) write(e entry, bufs net.Buffers) (int64, error) {
	h := c.head[:8]
	if responseTagged(e.key, e.version) {
		h = c.head[:9] // the last byte stays 0: no tagged fields
	}
	size := int64(len(h))
	for _, b := range bufs {
		size += int64(len(b))
	}
	if size-4 > math.MaxInt32 {
		return 0, fmt.Errorf("a response of %d bytes can't be sent", size)
	}
	binary.BigEndian.PutUint32(h[0:], uint32(size-4))
	binary.BigEndian.PutUint32(h[4:], uint32(e.correlation))
	if c.tls != nil {
		return size, c.writeTLS(h, bufs)
	}
	// WriteTo eats the slice header it is called on and clears the elements, so the vector's
	// memory can be used again.
	vec := append(append(c.vec[:0], h), bufs...)
	if cap(vec) <= keepVec {
		c.vec = vec
	}
	c.left = vec
	// A slow client may take all the time it needs as long as it takes something. A deadline that is a little early is
	// kept, as by idleBy.
	var taken int64
	by := time.Now().Add(c.srv.o.WriteTimeout)
	if c.writeUntil.Before(by.Add(-c.srv.o.WriteTimeout / 4)) {
		c.writeBy(by)
	}
	for {
		n, err := c.left.WriteTo(c.nc)
		if err == nil {
			return size, nil
		}
		taken += n
		switch now := time.Now(); {
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		case now.Before(by):
		case taken < leastProgress:
			return 0, err
		default:
			taken, by = 0, now.Add(c.srv.o.WriteTimeout)
		}
		c.writeBy(by)
	}
}

// writeBy sets the deadline of writes.
func (c *Conn) writeBy(t time.Time) {
	c.writeUntil = t
	c.nc.SetWriteDeadline(t) //nolint:errcheck // the write that follows fails as well
}

func (c *Conn) writeTLS(head []byte, bufs net.Buffers) error {
	scratch := newBuffer(tlsPiece)
	defer scratch.release()
	gather := append(scratch.store[:0], head...)
	for _, b := range bufs {
		for len(b) > 0 {
			n := min(len(b), tlsPiece-len(gather))
			gather = append(gather, b[:n]...)
			b = b[n:]
			if len(gather) < tlsPiece {
				continue
			}
			if err := c.writePiece(gather); err != nil {
				return err
			}
			gather = gather[:0]
		}
	}
	return c.writePiece(gather)
}

func (c *Conn) writePiece(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	c.writeBy(time.Now().Add(c.srv.o.WriteTimeout))
	_, err := c.nc.Write(b)
	return err
}

// writeFault reports why writing ended, where it is worth a word: a client that went away is not.
func (c *Conn) writeFault(err error) {
	switch {
	case errors.Is(err, syscall.EFAULT):
		c.fault(EventFault, "the memory of a response could not be read", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.fault(EventSlowReader, fmt.Sprintf("the client took no response for %v", c.srv.o.WriteTimeout), err)
	case errors.Is(err, syscall.ETIMEDOUT):
		c.fault(EventHalfOpen, "the client does not answer any longer", err)
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
	default:
		c.fault(EventHandler, "a response could not be sent: "+err.Error(), err)
	}
}

// memoryFault is what the runtime panics with on a fault outside the heap, under
// debug.SetPanicOnFault. Nil pointers and other bugs do not have Addr.
type memoryFault interface {
	error
	Addr() uintptr
}

// recoverFault turns a memory fault of the running goroutine into a closed connection; other
// panics go on. To be deferred.
func (c *Conn) recoverFault(doing string) {
	v := recover()
	if v == nil {
		return
	}
	f, ok := v.(memoryFault)
	if !ok {
		panic(v)
	}
	c.fault(EventFault, "a memory fault while "+doing+" (a file mapping whose file was cut or whose disk failed)", f)
	c.cancel(ErrClosed)
}
