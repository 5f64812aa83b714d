package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/peer"
)

// freeAddr returns an address that nothing listens on now.
func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

// TestLoadsReachTheController: a controller and a broker that share a bucket and a secret.
func TestLoadsReachTheController(t *testing.T) {
	dir, etcd := t.TempDir(), freeAddr(t)
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("sixteen bytes or more\n"), 0o600))
	both := []string{"TIERBROKER_BUCKET=file://" + filepath.Join(dir, "bucket"), "TIERBROKER_PEER_LISTEN=127.0.0.1:0",
		"TIERBROKER_CLUSTER_SECURITY=peer-secret-file=" + secret, "TIERBROKER_LEASE_TTL=3s"}
	ctl := start(t, filepath.Join(dir, "ctl"), append(both, "TIERBROKER_ROLES=controller", "TIERBROKER_ETCD_LISTEN="+etcd, "TIERBROKER_BROKER_ID=101")...)
	b := start(t, filepath.Join(dir, "broker"), append(both, "TIERBROKER_ROLES=broker", "TIERBROKER_ETCD_ENDPOINTS=http://"+etcd)...)
	deadline := time.After(60 * time.Second)
	for found := false; !found; {
		b.produce(t, "a value of some length, again and again")
		for id, l := range ctl.d.peers.loads.All(time.Now()) {
			require.NotEmpty(t, b.d.cluster.Image().TopicByID(id.Topic).Name)
			found = found || l[0] > 0
		}
		select {
		case <-deadline:
			t.Fatal("no load was reported")
		default:
		}
	}
	// A stranger can't report, and a broker only about itself.
	leader, ok := b.d.cluster.Image().LeadingController()
	require.True(t, ok)
	id := b.d.cluster.Image().ClusterID()
	report := peer.LoadReport{Broker: 1, Incarnation: "another run"}
	require.ErrorIs(t, peer.NewClient(peer.ClientOptions{ClusterID: id}).Do(t.Context(), leader.PeerURL, peer.CallLoads, report, nil), peer.ErrDenied)
	require.ErrorIs(t, b.d.peers.client.Do(t.Context(), leader.PeerURL, peer.CallLoads, report, nil), peer.ErrRefused)
	self, ok := b.d.cluster.Image().Broker(1)
	require.True(t, ok)
	require.ErrorIs(t, b.d.peers.client.Do(t.Context(), self.PeerURL, peer.CallLoads, report, nil), peer.ErrRefused, "it does not lead")
	b.end(t)
	ctl.end(t)
}

func TestPeerSecretIsChecked(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	require.NoError(t, os.WriteFile(short, []byte("short\n"), 0o600))
	err := failing(t, "TIERBROKER_DATA_DIR="+filepath.Join(dir, "a"), "TIERBROKER_CLUSTER_SECURITY=peer-secret-file="+short)
	require.ErrorContains(t, err, "a secret has 16 to")
	err = failing(t, "TIERBROKER_DATA_DIR="+filepath.Join(dir, "b"), "TIERBROKER_CLUSTER_SECURITY=peer-ca="+short)
	require.ErrorContains(t, err, "holds no certificate")
}
