package faultproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// lingerTimeout is how long the rest of a request may take after its answer has come.
	lingerTimeout = 2 * time.Second
)

// Proxy is a running proxy.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc

	mu       sync.Mutex
	mode     Mode
	changed  chan struct{} // closed when the mode changes
	matched  int           // requests that matched the mode
	requests int64
	spoiled  int64
	conns    map[net.Conn]struct{}
}

// Start listens on a free port of 127.0.0.1 and passes everything to target (HOST:PORT) until the mode says otherwise.
func Start(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens, HOST:PORT.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetMode switches the mode. Refuse also breaks the connections that are open.
func (p *Proxy) SetMode(m Mode) {
	p.mu.Lock()
	p.mode, p.matched, p.spoiled = m, 0, 0
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if m.Kind == Refuse {
		p.Break()
	}
}

// Break closes all connections that are open, whatever they carry.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close() // its owner sees the error
	}
}

// Requests is the number of requests seen so far.
func (p *Proxy) Requests() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// Spoiled is the number of requests to which the mode has done something since it was set, latency apart.
func (p *Proxy) Spoiled() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spoiled
}

// Close ends all connections and waits for them.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.Break()
	p.wg.Wait()
	return err
}

// keep registers c for Break; false means that the proxy is closed.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close() // nothing is left to say on it
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		if !p.keep(c) {
			c.Close()
			return
		}
		p.wg.Go(func() {
			defer p.drop(c)
			s := &session{p: p, client: c, fromClient: bufio.NewReaderSize(c, maxHeader)}
			defer s.hangUp()
			for s.exchange() == nil {
			}
		})
	}
}

// next decides what happens to a request. changed is closed when that has to be decided again.
func (p *Proxy) next(req *message, again bool) (kind Kind, latency time.Duration, changed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !again {
		p.requests++
	}
	if !p.mode.matches(req) {
		return Pass, 0, p.changed
	}
	p.matched++
	if p.mode.Every > 1 && p.matched%p.mode.Every != 0 {
		return Pass, p.mode.Latency, p.changed
	}
	if p.mode.Kind != Pass {
		p.spoiled++
	}
	return p.mode.Kind, p.mode.Latency, p.changed
}

// session is one connection of a client and the one to the server that belongs to it.
type session struct {
	p          *Proxy
	client     net.Conn
	fromClient *bufio.Reader
	server     net.Conn
	fromServer *bufio.Reader
}

func (s *session) hangUp() {
	if s.server != nil {
		s.p.drop(s.server)
	}
}

var errEnd = errors.New("the connection ends here")

// exchange carries one request and its answer; an error ends the connection.
func (s *session) exchange() error {
	req, err := readMessage(s.fromClient)
	if err != nil {
		return err
	}
	kind, latency, changed := s.p.next(req, false)
	for kind == Hang {
		select {
		case <-changed:
		case <-s.p.ctx.Done():
			return errEnd
		}
		kind, latency, changed = s.p.next(req, true)
	}
	if latency > 0 {
		select {
		case <-time.After(latency):
		case <-s.p.ctx.Done():
			return errEnd
		}
	}
	switch kind {
	case Refuse:
		return errEnd
	case SlowDown:
		return s.slowDown(req)
	}
	return s.forward(req, kind)
}

// slowDown answers for the server.
func (s *session) slowDown(req *message) error {
	if !req.expect {
		if _, err := copyBody(io.Discard, s.fromClient, req, req.requestBody(), editor{}); err != nil {
			return err
		}
	}
	body := slowDownBody
	if req.method() == http.MethodHead {
		body = ""
	}
	_, err := fmt.Fprintf(s.client, "HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		len(body), body)
	return errors.Join(errEnd, err)
}

// forward sends the request on while it waits for the answer, which may come before the request has ended.
func (s *session) forward(req *message, kind Kind) error {
	if err := s.dial(); err != nil {
		return err
	}
	if _, err := s.server.Write(req.raw); err != nil {
		return err
	}
	up := editor{}
	if kind == FlipPut && req.method() == http.MethodPut {
		up.kind = FlipPut
	}
	sent := make(chan error, 1)
	go func() {
		_, err := copyBody(s.server, s.fromClient, req, req.requestBody(), up)
		sent <- err
	}()
	more, err := s.answer(req, kind)
	// What the client still sends after the answer is of no use.
	if derr := s.client.SetReadDeadline(time.Now().Add(lingerTimeout)); derr != nil {
		err = errors.Join(err, derr)
	}
	if err != nil || !more {
		s.client.Close() // ends the copy too
		s.server.Close()
	}
	err = errors.Join(err, <-sent)
	if err == nil && !more {
		err = errEnd
	}
	if err != nil {
		return err
	}
	return s.client.SetReadDeadline(time.Time{})
}

// answer passes what the server says about req. It returns whether the connection can carry more.
func (s *session) answer(req *message, kind Kind) (bool, error) {
	continued := !req.expect
	for {
		res, err := readMessage(s.fromServer)
		if err != nil {
			return false, err
		}
		if kind == Lose && res.status() >= 200 {
			return false, errEnd
		}
		if _, err := s.client.Write(res.raw); err != nil {
			return false, err
		}
		if res.status() >= 100 && res.status() < 200 {
			continued = continued || res.status() == 100
			continue
		}
		if res.hasNoBody(req.method()) {
			return continued, nil
		}
		down := editor{}
		if req.method() == http.MethodGet && res.status() < 300 && (kind == Cut || kind == Flip) {
			down.kind = kind
		}
		more, err := copyBody(s.client, s.fromServer, res, res.length, down)
		return more && continued, err
	}
}

func (s *session) dial() error {
	if s.server != nil {
		return nil
	}
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(s.p.ctx, "tcp", s.p.target)
	if err != nil {
		return err
	}
	if !s.p.keep(c) {
		return errors.Join(errEnd, c.Close())
	}
	s.server, s.fromServer = c, bufio.NewReaderSize(c, maxHeader)
	return nil
}
