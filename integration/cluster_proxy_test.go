package integration

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// link is a TCP proxy that stands between one process and one address, and can be cut: as when a cable is pulled (frozen:
// nothing passes, nobody is told), or when the other side refuses.
type link struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	state   linkState
	changed chan struct{}
	conns   map[net.Conn]struct{}
	closed  bool
}

type linkState int

const (
	linkUp      linkState = iota
	linkRefused           // connections are closed as they come, open ones too
	linkFrozen            // nothing passes; what was on its way waits
)

func newLink(t testing.TB, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &link{target: target, listener: l, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *link) addr() string { return p.listener.Addr().String() }

func (p *link) set(s linkState) {
	p.mu.Lock()
	p.state = s
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if s == linkRefused {
		p.breakAll()
	}
}

func (p *link) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *link) close() {
	p.mu.Lock()
	p.closed = true
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.listener.Close()
	p.breakAll()
	p.wg.Wait()
}

// now returns the state, and what is closed when it changes.
func (p *link) now() (s linkState, closed bool, changed chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.closed, p.changed
}

// keep notes a connection; false: there is no room for it any more.
func (p *link) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.state == linkRefused {
		c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *link) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

func (p *link) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.keep(c) {
			p.wg.Go(func() { p.carry(c) })
		}
	}
}

// carry passes bytes both ways until one side ends.
func (p *link) carry(c net.Conn) {
	defer p.drop(c)
	far, err := net.Dial("tcp", p.target)
	if err != nil || !p.keep(far) {
		return
	}
	defer p.drop(far)
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{c, far}, {far, c}} {
		both.Go(func() {
			p.copy(pair[0], pair[1])
			c.Close()
			far.Close()
		})
	}
	both.Wait()
}

func (p *link) copy(from io.Reader, to io.Writer) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		for {
			s, closed, changed := p.now()
			if closed {
				return
			}
			if s != linkFrozen {
				break
			}
			<-changed
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
