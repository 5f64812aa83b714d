package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

const (
	maxConnections = 256
	maxHeader      = 64 << 10
	maxBody        = 64 << 10
	readTimeout    = 10 * time.Second
	writeTimeout   = time.Minute
	idleTimeout    = 2 * time.Minute
)

// Server answers HTTP on one listener.
type Server struct {
	http     *http.Server
	listener net.Listener
	done     chan struct{}
	err      error
}

// Listen opens the address (HOST:PORT; port 0 takes a free one), so that a taken
// port is known before anything else starts.
func Listen(addr string) (net.Listener, error) {
	return net.Listen("tcp", addr)
}

// Serve starts answering on l, which the Server owns from then on. The error is
// about options; failures while running end in OnFault.
func Serve(l net.Listener, o Options) (*Server, error) {
	handler, err := New(o)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &Server{
		listener: l,
		done:     make(chan struct{}),
		http: &http.Server{
			ReadTimeout:       readTimeout,
			ReadHeaderTimeout: readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeader,
			ErrorLog:          nil,
		},
	}
	s.http.ErrorLog = faultLog(o.OnFault)
	lim := newLimited(l, maxConnections)
	s.http.Handler, s.http.ConnContext = lim.track(handler), lim.context
	go func() {
		defer close(s.done)
		if err := s.http.Serve(lim); !errors.Is(err, http.ErrServerClosed) {
			s.err = err
			o.OnFault(err)
		}
	}()
	return s, nil
}

// Addr returns the listener's address.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Shutdown waits for running requests until ctx ends, then closes what is left.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.done
	return errors.Join(err, s.err)
}
