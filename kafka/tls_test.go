package kafka

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testTLS returns configurations for a server and for a client that trusts it.
func testTLS(t *testing.T) (server, client *tls.Config) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		&tls.Config{RootCAs: pool, ServerName: "localhost"}
}

func (s *testServer) dialTLS(cfg *tls.Config) *client {
	nc, err := tls.Dial("tcp", s.Addrs()[0].String(), cfg)
	require.NoError(s.t, err)
	return newClient(s.t, nc)
}

func TestTLS(t *testing.T) {
	server, clientTLS := testTLS(t)
	s := start(t, handlerFunc(func(_ context.Context, r *Request) Pending {
		state, ok := r.Conn.TLSState()
		if !ok || !state.HandshakeComplete {
			t.Error("no TLS state")
		}
		var bufs net.Buffers // in pieces of all sizes
		body := append([]byte{}, r.Body...)
		for n := 1; len(body) > 0; n *= 3 {
			k := min(n, len(body))
			bufs = append(bufs, body[:k])
			body = body[k:]
		}
		return Done{Bufs: bufs}
	}), func(o *Options) { o.Listeners[0].TLS = server })
	c := s.dialTLS(clientTLS)
	for i, n := range []int{4, 0, tlsPiece - 8, tlsPiece, tlsPiece + 1, 1 << 20, 5<<20 + 7} {
		want := bytes.Repeat([]byte{byte(i + 1)}, n)
		c.send(frame(int32(i), want))
		got, body := c.receive()
		require.Equal(t, int32(i), got)
		require.True(t, bytes.Equal(want, body))
	}
}

func TestTLSFaults(t *testing.T) {
	server, clientTLS := testTLS(t)
	m := lostMapping(t)
	var released atomic.Int32
	s := start(t, handlerFunc(func(ctx context.Context, r *Request) Pending {
		if string(r.Body) == "ping" {
			return echo.Handle(ctx, r)
		}
		return Done{Bufs: net.Buffers{[]byte("good"), m}, Release: func() { released.Add(1) }}
	}), func(o *Options) {
		o.Listeners[0].TLS = server
		o.HandshakeTimeout = 100 * time.Millisecond
	})
	other := s.dialTLS(clientTLS)

	plain := s.dial()
	plain.send(frame(1, []byte("ping")))
	plain.requireClosed()
	e := s.event()
	require.Equal(t, EventTLSHandshake, e.Kind)
	require.Contains(t, e.Message, "speaks no TLS")

	silent := s.dial()
	silent.requireClosed()
	e = s.event()
	require.Equal(t, EventTLSHandshake, e.Kind)
	require.Contains(t, e.Message, "in time")

	c := s.dialTLS(clientTLS)
	c.send(frame(1, nil))
	c.requireClosed()
	require.Equal(t, EventFault, s.event().Kind)
	eventually(t, func() bool { return released.Load() == 1 })

	other.roundTrip(1)
	s.noEvent()
}
