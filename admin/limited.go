package admin

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// limited is a listener that keeps at most max connections open. Beyond that a
// newcomer takes the place of the connection that has been without a whole
// request for longest: clients that connect and say nothing, or say it slowly,
// would otherwise keep everybody from health and metrics. While all connections
// are being answered, further ones wait.
type limited struct {
	net.Listener
	max int

	mu     sync.Mutex
	room   *sync.Cond // signalled when awaitRoom has to look again
	idle   *list.List // of *limitedConn without a request, the longest in front
	open   int
	closed bool
}

type limitedConn struct {
	net.Conn
	l     *limited
	place *list.Element // in idle, nil while a request is answered; guarded by l.mu, as ended is
	ended bool
}

func newLimited(l net.Listener, n int) *limited {
	lim := &limited{Listener: l, max: n, idle: list.New()}
	lim.room = sync.NewCond(&lim.mu)
	return lim
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	if !l.awaitRoom() {
		return nil, net.ErrClosed
	}
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: nc, l: l}
	l.mu.Lock()
	var victim *limitedConn
	if l.open >= l.max {
		if e := l.idle.Front(); e != nil {
			victim = e.Value.(*limitedConn)
			victim.end()
		}
	}
	l.open++
	c.place = l.idle.PushBack(c)
	l.mu.Unlock()
	if victim != nil {
		victim.Conn.Close() //nolint:errcheck // nobody waits for anything on it; the server closes it once more
	}
	return c, nil
}

// awaitRoom returns when a connection may come: there is room, or one that can go.
func (l *limited) awaitRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && l.open >= l.max && l.idle.Len() == 0 {
		l.room.Wait()
	}
	return !l.closed
}

// Close implements net.Listener.
func (l *limited) Close() error {
	l.mu.Lock()
	l.closed = true
	l.room.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// connKey is where context keeps the connection.
type connKey struct{}

// context is for http.Server.ConnContext.
func (l *limited) context(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// track marks the connections on which a request is being answered.
func (l *limited) track(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connKey{}).(*limitedConn)
		if !ok {
			writeError(w, http.StatusInternalServerError, errors.New("a request without its connection"))
			return
		}
		c.begin()
		defer c.finish()
		next.ServeHTTP(w, r)
	})
}

func (c *limitedConn) begin() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.place != nil {
		c.l.idle.Remove(c.place)
		c.place = nil
	}
}

func (c *limitedConn) finish() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if !c.ended && c.place == nil {
		c.place = c.l.idle.PushBack(c)
		c.l.room.Signal()
	}
}

// end gives up the connection's place; the caller holds the lock.
func (c *limitedConn) end() {
	if c.ended {
		return
	}
	c.ended = true
	if c.place != nil {
		c.l.idle.Remove(c.place)
		c.place = nil
	}
	c.l.open--
	c.l.room.Signal()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.l.mu.Lock()
	c.end()
	c.l.mu.Unlock()
	return err
}
