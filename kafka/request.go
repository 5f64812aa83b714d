package kafka

import (
	"context"
	"net"
	"time"
)

// Request is one request frame, its header decoded.
//
// The value itself may be kept; Body may not, see there.
type Request struct {
	// Key is the API key; it is one that exists (an unknown one closes the connection), but
	// not necessarily one that the handler serves.
	Key int16
	// Version is the API version as the client sent it, unchecked.
	Version int16
	// Correlation is echoed in the response header by this package.
	Correlation int32
	// ClientID is "" when the client sent none.
	ClientID string
	// Body is what follows the request header: a slice of a pooled network buffer, valid
	// until Handle returns or, after Retain, until Release. The handler owns its bytes for
	// that time and may change them in place (stamping of offsets).
	Body []byte
	// Conn is the connection the request came on.
	Conn *Conn
	// Received is when the whole frame had been read.
	Received time.Time

	buf *buffer
}

// Retain, called within Handle, keeps Body valid after it has returned. Each Retain needs exactly one Release.
// A retained body counts against Options.MaxInflightBytes, so it must be released by something
// that does not depend on another request being read.
func (r *Request) Retain() {
	if r.buf != nil {
		r.buf.retain()
	}
}

// Release ends what Retain began. Body must not be touched afterwards.
func (r *Request) Release() {
	if r.buf != nil {
		r.buf.release()
	}
}

// Handler answers requests.
type Handler interface {
	// Handle runs in the connection's read goroutine, in request order: what depends on that
	// order (an append) happens here, quickly. What is left to do is the Pending it returns;
	// nil means that there is no response. While Handle runs, nothing further is read from
	// this connection.
	Handle(ctx context.Context, r *Request) Pending
}

// Pending is a response in the making.
type Pending interface {
	// Wait runs in the connection's write goroutine, in request order, exactly once, also when
	// the connection is gone by then. It may block (long poll, durability).
	//
	// ctx ends when nobody is served by blocking any longer. context.Cause(ctx) is then
	// ErrShutdown (the server stops: answer now with what there is, it will be written) or
	// ErrClosed (the client is gone: whatever is returned is released unwritten). Work whose
	// outcome must be told right (an append's durability) should have a deadline of its own
	// and not stop on ErrShutdown.
	Wait(ctx context.Context) Response
}

// Response is what is written to the client.
type Response struct {
	// Bufs is the response body; size, correlation id and the header's tag byte are written
	// before it by this package. The slices may point into a file mapping.
	Bufs net.Buffers
	// Release, unless nil, is called exactly once after Bufs were written or given up.
	Release func()
	// None: there is no response (acks=0). Bufs is ignored, Release and Close are honoured.
	None bool
	// Close, unless nil, closes the connection after writing, with one Event of kind
	// EventHandler that has this error's text.
	Close error
}

// Done is a Pending that is a finished response.
type Done Response

// Wait returns the response.
func (d Done) Wait(context.Context) Response { return Response(d) }

// PendingFunc is a function as Pending.
type PendingFunc func(ctx context.Context) Response

// Wait calls f.
func (f PendingFunc) Wait(ctx context.Context) Response { return f(ctx) }
