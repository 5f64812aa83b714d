package kafka

import (
	"crypto/tls"
	"errors"
	"time"
)

// Defaults of Options.
const (
	DefaultMaxRequestBytes    = 100 << 20
	DefaultMaxConns           = 20000
	DefaultMaxInflightBytes   = 256 << 20
	DefaultMaxInflightPerConn = 32
	DefaultIdleTimeout        = 10 * time.Minute
	DefaultWriteTimeout       = 30 * time.Second
	DefaultFrameTimeout       = 30 * time.Second
	DefaultHandshakeTimeout   = 10 * time.Second
)

// Causes with which the context of Handle and Wait ends.
var (
	// ErrShutdown: the server is being shut down; what is pending is still answered.
	ErrShutdown = errors.New("kafka: server is shutting down")
	// ErrClosed: the connection is gone; no answer will be written.
	ErrClosed = errors.New("kafka: connection closed")
)

// Listener is one address to listen on.
type Listener struct {
	// Name is the listener's name, as in Kafka's listener names ("PLAINTEXT").
	Name string
	// Addr is HOST:PORT; port 0 takes a free one (see Server.Addrs).
	Addr string
	// TLS makes it a TLS listener when not nil.
	TLS *tls.Config
}

// Options of a Server. Zero values mean the defaults above.
type Options struct {
	// Listeners to open, at least one.
	Listeners []Listener
	// Handler answers the requests. Required.
	Handler Handler
	// MaxRequestBytes caps the size that a request frame may announce.
	MaxRequestBytes int32
	// MaxConns caps the open connections; one more is closed right after accept.
	MaxConns int
	// MaxInflightBytes caps the bytes of request buffers in use over all connections, by not
	// reading further. One request at a time may pass it, so that there is always progress.
	MaxInflightBytes int64
	// MaxInflightPerConn caps the requests of one connection that are handled but not answered.
	MaxInflightPerConn int
	// IdleTimeout closes a connection on which nothing was asked and nothing is pending.
	IdleTimeout time.Duration
	// WriteTimeout closes a connection whose client takes next to nothing of a response.
	WriteTimeout time.Duration
	// FrameTimeout is the time a client has to send a whole frame once it began, plus one
	// second for each 256 KiB of it.
	FrameTimeout time.Duration
	// HandshakeTimeout is the time for the TLS handshake.
	HandshakeTimeout time.Duration
	// OnEvent is told of every connection that was closed for a fault (equal events beyond
	// a rate are counted instead, see Event.Suppressed). It must not block.
	OnEvent func(Event)
	// OnRequest is told of every request after its response was written. It must not block.
	OnRequest func(RequestStats)
}

// RequestStats describes one finished request.
type RequestStats struct {
	Key, Version int16
	// BytesIn and BytesOut are frame sizes with their size fields; BytesOut is 0 when nothing
	// was written.
	BytesIn, BytesOut int64
	// Total is the time from the request being read to the response being written; Write is
	// the part of it that was spent writing.
	Total, Write time.Duration
}

// EventKind is why a connection was closed.
type EventKind uint8

// Kinds of events.
const (
	// EventGarbage: the bytes are no Kafka request (size, header, unknown API key).
	EventGarbage EventKind = iota
	// EventTLSHello: a TLS client hello on a plaintext listener.
	EventTLSHello
	// EventHTTP: an HTTP request on the Kafka port.
	EventHTTP
	// EventTooLarge: a request over MaxRequestBytes.
	EventTooLarge
	// EventTruncated: the client went away in the middle of a request.
	EventTruncated
	// EventSlowSender: a request was not sent whole in time.
	EventSlowSender
	// EventSlowReader: the client did not take a response in time.
	EventSlowReader
	// EventIdle: nothing happened for the idle timeout.
	EventIdle
	// EventHalfOpen: the peer does not answer at all any longer (keepalive).
	EventHalfOpen
	// EventTLSHandshake: the TLS handshake failed.
	EventTLSHandshake
	// EventTooManyConns: the connection limit is reached.
	EventTooManyConns
	// EventFault: the memory of a response could not be read (a file mapping whose file was
	// cut or whose disk failed).
	EventFault
	// EventHandler: the handler asked for it (Response.Close).
	EventHandler
	// EventAccept: accepting connections failed (usually out of file descriptors); no
	// connection was closed for it.
	EventAccept

	eventKinds = iota
)

// Event is one connection closed for a fault.
type Event struct {
	Kind EventKind
	// Listener is the listener's name, Remote the client's address (HOST:PORT).
	Listener, Remote string
	// Conn is the connection's id, 0 when it never became one.
	Conn uint64
	// ClientID is the one of the last request, "" when there was none.
	ClientID string
	// Message is one sentence for a person.
	Message string
	// Err is the error behind it, or nil.
	Err error
	// Suppressed is how many events of this kind were not told since the last one.
	Suppressed int64
}

// complete fills in the defaults and refuses what cannot work.
func (o *Options) complete() error {
	if o.Handler == nil || len(o.Listeners) == 0 {
		return errors.New("kafka: a handler and at least one listener are needed")
	}
	fill(&o.MaxRequestBytes, DefaultMaxRequestBytes)
	fill(&o.MaxConns, DefaultMaxConns)
	fill(&o.MaxInflightBytes, DefaultMaxInflightBytes)
	fill(&o.MaxInflightPerConn, DefaultMaxInflightPerConn)
	fill(&o.IdleTimeout, DefaultIdleTimeout)
	fill(&o.WriteTimeout, DefaultWriteTimeout)
	fill(&o.FrameTimeout, DefaultFrameTimeout)
	fill(&o.HandshakeTimeout, DefaultHandshakeTimeout)
	return nil
}

// fill replaces a value that is not set (or senseless) by its default.
func fill[T int | int32 | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
