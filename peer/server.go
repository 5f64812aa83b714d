package peer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	pathPrefix  = "/peer/v1/"
	headCluster = "X-Tierbroker-Cluster"
	headTime    = "X-Tierbroker-Time"
	headAuth    = "X-Tierbroker-Auth"

	// maxAnswer bounds the JSON of a result, maxText the text of an error.
	maxAnswer = 16 << 20
	maxText   = 4 << 10
)

// Limits of a call that doesn't say otherwise.
const (
	DefaultMaxBody = 1 << 20
	DefaultTimeout = 10 * time.Second
)

var (
	// ErrUnavailable: the node did not answer, or has too much to do; the call may have been carried out.
	ErrUnavailable = errors.New("peer does not answer")
	// ErrRefused: the node can't do it now (it is not the leader).
	ErrRefused = errors.New("peer refuses")
	// ErrDenied: the caller lacks the cluster's secret, or a certificate.
	ErrDenied = errors.New("peer denies access")
	// ErrOtherCluster: the node belongs to another cluster.
	ErrOtherCluster = errors.New("peer belongs to another cluster")
	// ErrUnknownCall: the node doesn't know the call; it may be of an older version.
	ErrUnknownCall = errors.New("peer does not know the call")
)

// Call is something that other nodes may ask for; make one with Handle.
type Call struct {
	MaxBody int64         // bytes of the argument's JSON; 0: DefaultMaxBody
	Timeout time.Duration // 0: DefaultTimeout
	do      func(ctx context.Context, body []byte) (any, error)
}

// Handle makes a Call of a function. Errors that wrap ErrRefused tell the caller to ask another node or later.
func Handle[In, Out any](do func(ctx context.Context, in In) (Out, error)) Call {
	return Call{do: func(ctx context.Context, body []byte) (any, error) {
		var in In
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, &badBody{err}
		}
		return do(ctx, in)
	}}
}

type badBody struct{ error }

// Options of a Server.
type Options struct {
	ClusterID string
	Secret    []byte // empty: callers need none
	Calls     map[string]Call
	MaxCalls  int              // served at one time; default 64
	Now       func() time.Time // nil: the system's clock
	OnFault   func(error)      // faults of the listener; nil: nobody listens
}

// Server answers calls until Shutdown.
type Server struct {
	o     Options
	http  *http.Server
	slots chan struct{}
	ended chan struct{}
}

// Serve answers calls on l, which it closes in the end. TLS, when not nil, must demand client certificates to be of use.
func Serve(l net.Listener, tlsConfig *tls.Config, o Options) *Server {
	if o.MaxCalls <= 0 {
		o.MaxCalls = 64
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnFault == nil {
		o.OnFault = func(error) {}
	}
	s := &Server{o: o, slots: make(chan struct{}, o.MaxCalls), ended: make(chan struct{})}
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.serve), MaxHeaderBytes: 16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // strangers who fail to shake hands
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
	}
	if tlsConfig != nil {
		l = tls.NewListener(l, tlsConfig)
	}
	go func() {
		defer close(s.ended)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			o.OnFault(fmt.Errorf("peer server: %w", err))
		}
	}()
	return s
}

// Shutdown lets calls under way end, until ctx does, and closes the listener.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.ended
	return err
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, pathPrefix)
	call, known := s.o.Calls[name]
	switch {
	case !ok || !known || r.Method != http.MethodPost:
		fail(w, http.StatusNotFound, "no such call")
		return
	case r.Header.Get(headCluster) != s.o.ClusterID:
		fail(w, http.StatusMisdirectedRequest, "this node belongs to another cluster")
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		fail(w, http.StatusServiceUnavailable, "too many calls at one time")
		return
	}
	limit := call.MaxBody
	if limit <= 0 {
		limit = DefaultMaxBody
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		status := http.StatusBadRequest
		if errors.As(err, new(*http.MaxBytesError)) {
			status = http.StatusRequestEntityTooLarge
		}
		fail(w, status, err.Error())
		return
	}
	if err := s.authentic(r, name, body); err != nil {
		fail(w, http.StatusUnauthorized, err.Error())
		return
	}
	s.carryOut(w, r, call, body)
}

func (s *Server) carryOut(w http.ResponseWriter, r *http.Request, call Call, body []byte) {
	timeout := call.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	out, err := call.do(ctx, body)
	if err != nil {
		status := http.StatusInternalServerError
		switch {
		case errors.As(err, new(*badBody)):
			status = http.StatusBadRequest
		case errors.Is(err, ErrRefused):
			status = http.StatusConflict
		case errors.Is(err, context.DeadlineExceeded):
			status = http.StatusServiceUnavailable
		}
		fail(w, status, err.Error())
		return
	}
	answer, err := json.Marshal(out)
	if err == nil && len(answer) > maxAnswer {
		err = fmt.Errorf("an answer of %d bytes, at most %d are allowed", len(answer), maxAnswer)
	}
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // a caller that has gone sees nothing of it
}

func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text[:min(len(text), maxText)]) // a caller that has gone sees nothing of it
}
