package s3_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/buckettest"
	"github.com/tierbroker/tierbroker/tier/bucket/faultproxy"
	"github.com/tierbroker/tierbroker/tier/bucket/s3"
	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

var (
	headOp = bucket.Op{Class: bucket.ClassHead, Kind: bucket.KindHead}
	coldOp = bucket.Op{Class: bucket.ClassCold, Kind: bucket.KindData}
	rollOp = bucket.Op{Class: bucket.ClassRoll, Kind: bucket.KindData}
)

// proxied starts a proxy in front of server.
func proxied(t *testing.T, server *s3test.Server) *faultproxy.Proxy {
	p, err := faultproxy.Start(server.Addr)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func through(t *testing.T, server *s3test.Server, p *faultproxy.Proxy, lanes map[string]s3.Lane) bucket.Bucket {
	o := server.Options(fresh())
	o.URL = server.URLAt(p.Addr(), o.URL.Prefix)
	o.Lanes = lanes
	return s3test.OpenOptions(t, o)
}

func TestConformanceThroughProxy(t *testing.T) {
	server := s3test.Start(t)
	p := proxied(t, server)
	buckettest.Conformance(t, func() bucket.Bucket { return through(t, server, p, nil) })
	require.Positive(t, p.Requests())
	require.Zero(t, p.Spoiled())
}

func put(t *testing.T, b bucket.Bucket, key, content string) bucket.Info {
	t.Helper()
	info, err := b.Put(t.Context(), rollOp, key, bucket.BytesBody([]byte(content)), bucket.Condition{})
	require.NoError(t, err)
	return info
}

// TestSlowDown: the store refuses until it doesn't; calls wait for that, conditional puts report it.
func TestSlowDown(t *testing.T) {
	server := s3test.Start(t)
	p := proxied(t, server)
	b := through(t, server, p, nil)
	info := put(t, b, "a", "one")
	p.SetMode(faultproxy.Mode{Kind: faultproxy.SlowDown})
	_, err := b.Put(t.Context(), headOp, "a", bucket.BytesBody([]byte("two")), bucket.Condition{IfMatch: info.ETag})
	require.ErrorIs(t, err, bucket.ErrUnavailable)
	require.ErrorContains(t, err, "SlowDown")
	seen := p.Requests()
	type result struct {
		n   int
		err error
	}
	done := make(chan result)
	go func() {
		n, _, err := b.Get(context.Background(), coldOp, "a", 0, 3, make([]byte, 3))
		done <- result{n, err}
	}()
	require.Eventually(t, func() bool { return p.Requests() > seen+4 }, time.Minute, time.Millisecond, "it goes on past the number of attempts")
	p.SetMode(faultproxy.Mode{})
	require.Equal(t, result{3, nil}, <-done)

	p.SetMode(faultproxy.Mode{Kind: faultproxy.SlowDown})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = b.Put(ctx, rollOp, "b", bucket.BytesBody(make([]byte, 3<<20)), bucket.Condition{})
	require.ErrorIs(t, err, bucket.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	p.SetMode(faultproxy.Mode{})
	_, err = b.Stat(t.Context(), coldOp, "b")
	require.ErrorIs(t, err, bucket.ErrNotFound)
}

// TestHoldOffIsPerClass: a replay that is told to slow down does not hold up heads.
func TestHoldOffIsPerClass(t *testing.T) {
	server := s3test.Start(t)
	p := proxied(t, server)
	b := through(t, server, p, nil)
	put(t, b, "cold", "x")
	put(t, b, "head", "x")
	p.SetMode(faultproxy.Mode{Kind: faultproxy.SlowDown, Match: func(_, path string) bool { return strings.Contains(path, "cold") }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := b.Get(ctx, coldOp, "cold", 0, 1, make([]byte, 1))
		done <- err
	}()
	require.Eventually(t, func() bool { return p.Spoiled() >= 3 }, time.Minute, time.Millisecond)
	_, _, err := b.Get(t.Context(), headOp, "head", 0, 1, make([]byte, 1))
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// TestCutBodies: half an answer is never taken for a whole one; one cut is repaired, three are reported.
func TestCutBodies(t *testing.T) {
	server := s3test.Start(t)
	p := proxied(t, server)
	b := through(t, server, p, nil)
	content := strings.Repeat("0123456789", 50_000)
	put(t, b, "a", content)
	p.SetMode(faultproxy.Mode{Kind: faultproxy.Cut, Every: 2})
	for range 4 {
		dst := make([]byte, len(content))
		_, _, err := b.Get(t.Context(), coldOp, "a", 0, int64(len(dst)), dst)
		require.NoError(t, err)
		require.Equal(t, content, string(dst))
	}
	require.Positive(t, p.Spoiled())
	p.SetMode(faultproxy.Mode{Kind: faultproxy.Cut})
	_, _, err := b.Get(t.Context(), coldOp, "a", 0, 100_000, make([]byte, 100_000))
	require.ErrorIs(t, err, bucket.ErrUnavailable)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "broke off after 50000 of 100000 bytes")
	require.EqualValues(t, 3, p.Spoiled())
	_, _, err = bucket.GetAll(t.Context(), b, headOp, "a", 1<<20)
	require.ErrorIs(t, err, bucket.ErrUnavailable)
}

// TestFlippedBits: a put with a wrong bit is refused by the server, a whole read by us; ranges have no checksum in S3.
func TestFlippedBits(t *testing.T) {
	server := s3test.Start(t)
	p := proxied(t, server)
	b := through(t, server, p, nil)
	p.SetMode(faultproxy.Mode{Kind: faultproxy.FlipPut})
	for _, cond := range []bucket.Condition{{}, {IfNoneMatch: true}} {
		_, err := b.Put(t.Context(), rollOp, "a", bucket.BytesBody([]byte("content")), cond)
		require.ErrorIs(t, err, bucket.ErrCorrupt)
	}
	_, err := b.Stat(t.Context(), rollOp, "a")
	require.ErrorIs(t, err, bucket.ErrNotFound)
	p.SetMode(faultproxy.Mode{Kind: faultproxy.FlipPut, Every: 2})
	put(t, b, "a", "content")
	put(t, b, "a", "content")
	require.EqualValues(t, 1, p.Spoiled())
	p.SetMode(faultproxy.Mode{Kind: faultproxy.Flip})
	_, _, err = bucket.GetAll(t.Context(), b, headOp, "a", 100)
	require.ErrorIs(t, err, bucket.ErrCorrupt)
	p.SetMode(faultproxy.Mode{})
	got, _, err := bucket.GetAll(t.Context(), b, headOp, "a", 100)
	require.NoError(t, err)
	require.Equal(t, "content", string(got))
}

// TestLostAnswers: a conditional put whose answer is lost has an unknown outcome, and is not sent again.
func TestLostAnswers(t *testing.T) {
	server := s3test.Start(t)
	p := proxied(t, server)
	b := through(t, server, p, nil)
	put(t, b, "warm", "up")
	p.SetMode(faultproxy.Mode{Kind: faultproxy.Lose})
	_, err := b.Put(t.Context(), headOp, "a", bucket.BytesBody([]byte("one")), bucket.Condition{IfNoneMatch: true})
	require.ErrorIs(t, err, bucket.ErrUnavailable)
	require.EqualValues(t, 1, p.Spoiled(), "sent once")
	p.SetMode(faultproxy.Mode{})
	got, _, err := bucket.GetAll(t.Context(), b, headOp, "a", 100)
	require.NoError(t, err)
	require.Equal(t, "one", string(got), "it had won")
}

// TestHangingStore: an attempt ends at its deadline, not when the server feels like it.
func TestHangingStore(t *testing.T) {
	server := s3test.Start(t)
	p := proxied(t, server)
	b := through(t, server, p, map[string]s3.Lane{bucket.ClassCold: {Concurrency: 2, Deadline: 200 * time.Millisecond}})
	put(t, b, "a", "one")
	p.SetMode(faultproxy.Mode{Kind: faultproxy.Hang})
	_, _, err := b.Get(t.Context(), coldOp, "a", 0, 3, make([]byte, 3))
	require.ErrorIs(t, err, bucket.ErrUnavailable)
	require.ErrorContains(t, err, "no answer within 200ms")
	p.SetMode(faultproxy.Mode{Latency: 20 * time.Millisecond})
	_, _, err = b.Get(t.Context(), coldOp, "a", 0, 3, make([]byte, 3))
	require.NoError(t, err)
}

// TestServerGone: nothing listens; then it is back.
func TestServerGone(t *testing.T) {
	server := s3test.Start(t)
	p := proxied(t, server)
	b := through(t, server, p, nil)
	put(t, b, "a", "one")
	p.SetMode(faultproxy.Mode{Kind: faultproxy.Refuse})
	_, err := b.Stat(t.Context(), coldOp, "a")
	require.ErrorIs(t, err, bucket.ErrUnavailable)
	p.SetMode(faultproxy.Mode{})
	server.Stop()
	_, err = b.Stat(t.Context(), coldOp, "a")
	require.ErrorIs(t, err, bucket.ErrUnavailable)
	require.NoError(t, server.Restart())
	_, err = b.Stat(t.Context(), coldOp, "a")
	require.NoError(t, err)
}

// TestOpenErrors: each is one sentence that says what to change.
func TestOpenErrors(t *testing.T) {
	server := s3test.Start(t)
	good := server.Options("")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	html := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go html.Serve(l)
	t.Cleanup(func() { html.Close() })
	for _, tt := range []struct {
		name string
		edit func(*s3.Options)
		kind error
		text string
	}{
		{"no such bucket", func(o *s3.Options) { o.URL.Bucket = "no-such-bucket" }, bucket.ErrConfig, `there is no bucket "no-such-bucket" at http://`},
		{"access key", func(o *s3.Options) { o.AccessKey = "nobody" }, bucket.ErrDenied, "does not know the access key"},
		{"secret key", func(o *s3.Options) { o.SecretKey = "wrong" }, bucket.ErrDenied, "secret key"},
		{"region", func(o *s3.Options) { o.URL.Region = "mars-north-1" }, bucket.ErrConfig, "region"},
		{"port", func(o *s3.Options) { o.URL.Endpoint = closed.Addr().String() }, bucket.ErrUnavailable, "cannot be reached"},
		{"host", func(o *s3.Options) { o.URL.Endpoint = "no-such-host.invalid:9000" }, bucket.ErrUnavailable, "no-such-host.invalid"},
		{"https", func(o *s3.Options) { o.URL.Plain = false }, bucket.ErrConfig, "speaks http, not https"},
		{"half of the keys", func(o *s3.Options) { o.SecretKey = "" }, bucket.ErrConfig, "only one of"},
		{"a web server", func(o *s3.Options) { o.URL.Endpoint = l.Addr().String() }, bucket.ErrConfig, "there is no bucket"},
		{"scheme", func(o *s3.Options) { o.URL.Scheme = bucket.SchemeFile }, bucket.ErrConfig, "no s3:// URL"},
		{"lane", func(o *s3.Options) { o.Lanes = map[string]s3.Lane{"x": {}} }, bucket.ErrConfig, "class x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := good
			tt.edit(&o)
			_, err := s3.Open(t.Context(), o)
			require.ErrorIs(t, err, tt.kind)
			require.ErrorContains(t, err, tt.text)
			require.NotContains(t, err.Error(), "\n")
			t.Log(err)
		})
	}
}
