package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// selfSigned writes a certificate for 127.0.0.1 and returns the files and what
// clients need to trust it.
func selfSigned(t testing.TB) (cert, key string, client *tls.Config) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &priv.PublicKey, priv)
	require.NoError(t, err)
	pkcs, err := x509.MarshalPKCS8PrivateKey(priv)
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return p
	}
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", pkcs), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// serveEtcd runs an etcd of its own that is reached over TCP.
func serveEtcd(t testing.TB, change func(*embed.Config)) (addr string, stop func()) {
	c := embeddedConfig(EmbeddedOptions{Dir: t.TempDir()}, newGuard())
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.BcryptCost = 4 // the default takes seconds under the race detector
	change(c)
	e, err := embed.StartEtcd(c)
	require.NoError(t, err)
	stop = sync.OnceFunc(e.Close)
	t.Cleanup(stop)
	<-e.Server.ReadyNotify()
	return e.Clients[0].Addr().String(), stop
}

func TestExistingEtcdWithTLSAndUser(t *testing.T) {
	ctx := testContext(t)
	cert, key, trust := selfSigned(t)
	addr, _ := serveEtcd(t, func(c *embed.Config) {
		c.ListenClientUrls[0].Scheme = "https"
		c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = cert, key
	})
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + addr}, TLS: trust, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, admin.Close()) }()
	_, err = admin.UserAdd(ctx, "root", "secret")
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)

	o := Options{Endpoints: []string{"https://" + addr}, TLS: trust, Username: "root", Password: "secret", Prefix: "/a"}
	one, err := Start(ctx, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, one.Close()) })
	s := register(t, one, 1, "run")
	term := lead(t, one, s)
	topic, err := one.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 600})
	require.NoError(t, err)
	placeAt(t, term, topic, 1, "run")
	require.NoError(t, one.Transition(ctx, moves(topic, 1, "run", 0, Starting, Writing)))
	require.NoError(t, one.Health(ctx).Err)

	// Another prefix is another cluster; what is loaded equals what was followed.
	again, err := Start(ctx, o)
	require.NoError(t, err)
	requireSameImage(t, one.Image(), again.Image())
	require.NoError(t, again.Close())
	o.Prefix = "/b"
	other, err := Start(ctx, o)
	require.NoError(t, err)
	require.NotEqual(t, one.Image().ClusterID(), other.Image().ClusterID())
	require.Empty(t, other.Image().Topics())
	require.NoError(t, other.Close())

	o.Password, o.Timeout = "wrong", 500*time.Millisecond
	_, err = Start(ctx, o)
	require.Error(t, err)
	_, err = Start(ctx, Options{})
	require.Error(t, err, "no etcd named")
}

func TestEtcdThatStops(t *testing.T) {
	ctx := testContext(t)
	addr, stop := serveEtcd(t, func(*embed.Config) {})
	c, err := Start(ctx, Options{Endpoints: []string{addr}, Timeout: 2 * time.Second})
	require.NoError(t, err)
	s, err := c.Register(ctx, Broker{ID: 1, Incarnation: "r"}, 2*time.Second)
	require.NoError(t, err)
	require.Positive(t, s.ValidFor(time.Now()))
	stop()
	_, err = c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 1})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, c.Health(ctx).Err, ErrUnavailable)
	require.Eventually(t, func() bool { return s.ValidFor(time.Now()) <= 0 }, 10*time.Second, 5*time.Millisecond, "the lease is in doubt")
	select {
	case <-s.Done():
		require.FailNow(t, "nobody said that the lease has ended")
	default:
	}
	require.ErrorIs(t, s.Close(), ErrUnavailable)
	<-s.Done()
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Health(ctx).Err, ErrClosed)
	require.ErrorIs(t, c.Transition(ctx, nil), nil)
}
