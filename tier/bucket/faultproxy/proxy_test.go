package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers with what it got, so that a test sees what arrived.
type echo struct {
	server *httptest.Server
	proxy  *Proxy
	client *http.Client
	puts   atomic.Int64
}

func newEcho(t *testing.T) *echo {
	e := &echo{}
	e.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			e.puts.Add(1)
		}
		if r.Header.Get("X-Refuse") != "" {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if r.Header.Get("X-Length") == "" {
			w.Header().Set("Content-Length", fmt.Sprint(len(r.Host)+1+len(body)))
		}
		fmt.Fprintf(w, "%s\n", r.Host)
		w.(http.Flusher).Flush()
		w.Write(body)
	}))
	var err error
	e.proxy, err = Start(e.server.Listener.Addr().String())
	require.NoError(t, err)
	e.client = &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	t.Cleanup(func() {
		e.client.CloseIdleConnections()
		require.NoError(t, e.proxy.Close())
		e.server.Close()
	})
	return e
}

func (e *echo) do(method, path string, body []byte, header ...string) (int, string, error) {
	req, err := http.NewRequest(method, "http://"+e.proxy.Addr()+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Host = "signed.example.com:9000"
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	if req.Header.Get("Transfer-Encoding") != "" {
		req.Header.Del("Transfer-Encoding")
		req.ContentLength = -1
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	res, err := e.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return res.StatusCode, string(got), err
}

const host = "signed.example.com:9000\n"

// TestPass: every shape of request and answer comes through unchanged, the Host header too.
func TestPass(t *testing.T) {
	e := newEcho(t)
	large := bytes.Repeat([]byte("0123456789"), 100_000)
	for _, header := range [][]string{{}, {"X-Length: none"}, {"Expect: 100-continue"}, {"Transfer-Encoding: chunked"}, {"X-Length: none", "Transfer-Encoding: chunked"}} {
		for _, body := range [][]byte{nil, []byte("x"), large} {
			status, got, err := e.do(http.MethodPut, "/x", body, header...)
			require.NoError(t, err, "%v", header)
			require.Equal(t, 200, status)
			require.True(t, got == host+string(body), "%v: %d bytes", header, len(got))
		}
	}
	status, got, err := e.do(http.MethodHead, "/x", nil)
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.Empty(t, got)
	status, _, err = e.do(http.MethodPut, "/x", large, "X-Refuse: 1", "Expect: 100-continue")
	require.NoError(t, err)
	require.Equal(t, 412, status, "refused before the body was sent")
	status, _, err = e.do(http.MethodGet, "/x", nil)
	require.NoError(t, err)
	require.Equal(t, 200, status)
}

func TestModes(t *testing.T) {
	e := newEcho(t)
	e.proxy.SetMode(Mode{Kind: SlowDown})
	status, body, err := e.do(http.MethodPut, "/x", make([]byte, 1000))
	require.NoError(t, err)
	require.Equal(t, 503, status)
	require.Contains(t, body, "<Code>SlowDown</Code>")
	require.Zero(t, e.puts.Load())

	e.proxy.SetMode(Mode{Kind: Cut})
	_, body, err = e.do(http.MethodGet, "/x", nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, host[:len(host)/2], body)

	e.proxy.SetMode(Mode{Kind: Flip})
	_, body, err = e.do(http.MethodGet, "/x", nil)
	require.NoError(t, err)
	require.Len(t, body, len(host))
	require.NotEqual(t, host, body)
	_, body, err = e.do(http.MethodGet, "/x", nil, "X-Length: none")
	require.NoError(t, err)
	require.Len(t, body, len(host))
	require.NotEqual(t, host, body)

	e.proxy.SetMode(Mode{Kind: FlipPut})
	_, body, err = e.do(http.MethodPut, "/x", []byte("content"))
	require.NoError(t, err)
	require.Equal(t, host+"con\x64ent", body)

	e.proxy.SetMode(Mode{Kind: Lose})
	before := e.puts.Load()
	_, _, err = e.do(http.MethodPut, "/x", []byte("content"))
	require.Error(t, err)
	require.Equal(t, before+1, e.puts.Load())

	e.proxy.SetMode(Mode{Kind: Refuse})
	_, _, err = e.do(http.MethodPut, "/x", []byte("content"))
	require.Error(t, err)
	require.Equal(t, before+1, e.puts.Load())

	e.proxy.SetMode(Mode{Kind: SlowDown, Every: 3, Latency: time.Millisecond, Match: func(method, path string) bool { return method == http.MethodPut && path == "/y" }})
	var got []int
	for range 6 {
		status, _, err := e.do(http.MethodPut, "/y", nil)
		require.NoError(t, err)
		got = append(got, status)
	}
	require.Equal(t, []int{200, 200, 503, 200, 200, 503}, got)
	status, _, err = e.do(http.MethodPut, "/z", nil)
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.EqualValues(t, 2, e.proxy.Spoiled())
}

func TestHang(t *testing.T) {
	e := newEcho(t)
	e.proxy.SetMode(Mode{Kind: Hang})
	done := make(chan error)
	go func() {
		_, body, err := e.do(http.MethodGet, "/x", nil)
		if err == nil && body != host {
			err = errors.New(body)
		}
		done <- err
	}()
	require.Eventually(t, func() bool { return e.proxy.Spoiled() == 1 }, time.Minute, time.Millisecond)
	select {
	case err := <-done:
		t.Fatal("it was answered", err)
	default:
	}
	e.proxy.SetMode(Mode{})
	require.NoError(t, <-done)
	e.proxy.SetMode(Mode{Kind: Hang})
	go func() {
		_, _, err := e.do(http.MethodGet, "/x", nil)
		done <- err
	}()
	require.Eventually(t, func() bool { return e.proxy.Spoiled() == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, e.proxy.Close(), "a hanging request does not hold up Close")
	require.Error(t, <-done)
	e.proxy.listener = nopListener{}
}

// nopListener lets the cleanup close a second time.
type nopListener struct{ net.Listener }

func (nopListener) Close() error { return nil }

func FuzzReadMessage(f *testing.F) {
	for _, s := range []string{"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nA: b\r\n\r\n",
		"\r\n\r\n", "PUT", "HTTP/1.1 x\n\n", "A\r\nContent-Length: -1\r\n\r\n", "A\nTransfer-Encoding: chunked\n\nffffffffffffffff\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(b), maxHeader)
		m, err := readMessage(r)
		if err != nil {
			return
		}
		require.True(t, bytes.HasPrefix(b, m.raw))
		m.method()
		m.status()
		var out bytes.Buffer
		if _, err := copyBody(&out, r, m, m.requestBody(), editor{}); err == nil {
			require.True(t, bytes.HasPrefix(b[len(m.raw):], out.Bytes()))
		}
	})
}
