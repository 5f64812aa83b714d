package admin

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serveLimited serves h on n connections at most and returns the address.
func serveLimited(t *testing.T, n int, h http.HandlerFunc) (*limited, string) {
	t.Helper()
	l, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	lim := newLimited(l, n)
	s := &http.Server{Handler: lim.track(h), ConnContext: lim.context}
	done := make(chan error, 1)
	go func() { done <- s.Serve(lim) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return lim, l.Addr().String()
}

func dialAdmin(t *testing.T, addr, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	return c
}

func answer(t *testing.T, c net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	return resp.StatusCode
}

const whole = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// Clients that never finish a request give way, whatever their number.
func TestSlowClientsGiveWay(t *testing.T) {
	lim, addr := serveLimited(t, 4, func(http.ResponseWriter, *http.Request) {})
	kept := dialAdmin(t, addr, whole)
	require.Equal(t, 200, answer(t, kept))
	for range 50 {
		dialAdmin(t, addr, "GET / HTTP/1.1\r\nX: ")
	}
	require.Equal(t, 200, answer(t, dialAdmin(t, addr, whole)))
	lim.mu.Lock()
	defer lim.mu.Unlock()
	require.LessOrEqual(t, lim.open, 5, "the limit and the newcomer")
}

// A connection that is being answered is not given up; who comes then waits.
func TestAnsweredConnectionsStay(t *testing.T) {
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	lim, addr := serveLimited(t, 2, func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/wait") {
			entered <- struct{}{}
			<-leave
		}
	})
	wait := strings.Replace(whole, "GET /", "GET /wait", 1)
	a, b := dialAdmin(t, addr, wait), dialAdmin(t, addr, wait)
	<-entered
	<-entered
	late := dialAdmin(t, addr, whole)
	lim.mu.Lock()
	require.LessOrEqual(t, lim.open, 3)
	lim.mu.Unlock()
	close(leave)
	for _, c := range []net.Conn{a, b, late} {
		require.Equal(t, 200, answer(t, c))
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	s := &http.Server{Handler: guard(http.NotFoundHandler(), true)}
	go s.Serve(l) //nolint:errcheck // it ends with the test
	defer s.Close()
	for _, m := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO"} {
		c := dialAdmin(t, l.Addr().String(), m+" /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.Equal(t, http.StatusMethodNotAllowed, answer(t, c), m)
	}
}
