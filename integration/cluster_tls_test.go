package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// certificates are the files of a CA, and of a certificate for 127.0.0.1 that it has signed.
type certificates struct{ ca, cert, key string }

// authority writes a CA and a certificate for 127.0.0.1 that it has signed, for both sides of a connection.
func authority(t testing.TB) certificates {
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return p
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	require.NoError(t, err)
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return certificates{ca: write("ca.pem", "CERTIFICATE", caDER), cert: write("cert.pem", "CERTIFICATE", der), key: write("key.pem", "PRIVATE KEY", pkcs)}
}

// Everything between nodes is encrypted and proven: a quorum of controllers, brokers that reach it, calls between nodes.
func TestClusterBehindTLS(t *testing.T) {
	t.Parallel()
	files := authority(t)
	var security string
	for _, part := range []string{"etcd", "peer"} {
		security += fmt.Sprintf("%[1]s-ca=%[2]s;%[1]s-cert=%[3]s;%[1]s-key=%[4]s;", part, files.ca, files.cert, files.key)
	}
	m := newMesh(t, meshOptions{brokers: 2, controllers: 3, scheme: "https", env: []string{"TIERBROKER_CLUSTER_SECURITY=" + security}})
	m.start()
	m.createTopic("t", 4, nil)
	producer := m.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	m.produceEach(producer, "t", 4, "a", 10)
	m.controllers[0].kill()
	m.createTopic("u", 4, nil)
	m.produceEach(producer, "u", 4, "b", 10)

	// Neither port takes anybody without a certificate, nor anybody who speaks plainly.
	pem, err := os.ReadFile(files.ca)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	for _, addr := range []string{m.etcd[1], m.controllers[1].peerAddr, m.brokers[0].peerAddr} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		d := tls.Dialer{Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil { // with TLS 1.3 the refusal comes with the first answer
			require.NoError(t, c.SetDeadline(time.Now().Add(5*time.Second)))
			_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			c.Close() // the other side may have gone first
		}
		require.ErrorContains(t, err, "certificate", addr)
		cancel()
	}
}
