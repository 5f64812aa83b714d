package integration

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
)

// The new cluster's state may go into an etcd that exists, and be taken up by other brokers than those that are gone.
func TestRestoreIntoExistingEtcd(t *testing.T) {
	t.Parallel()
	x := newLostCluster(t)
	x.n.tierctl("topic", "create", "audit", "--partitions", "4", "--config", "retention.ms=-1")
	x.produce("audit", 50, true)
	positions := map[string][]int64{"audit": {1, 2, 3, 4}}
	x.commit("billing", positions)
	x.n.tierctl("topic", "roll", "audit", "__consumer_offsets")
	x.n.kill()
	require.NoError(t, os.RemoveAll(x.n.dir))

	listen := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	etcd, err := cluster.StartEmbedded(t.Context(), cluster.EmbeddedOptions{Dir: t.TempDir(), ClientListen: listen})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, etcd.Close()) })
	at := []string{"--etcd-endpoints", "http://" + listen}
	to := []string{"--etcd-endpoints", "http://" + listen, "--etcd-prefix", "/restored/"}
	r, said := x.restore(append(to, "--old-cluster-is-gone", "--yes", "--cluster-id", "second")...)
	require.NotNil(t, r, said)
	require.Equal(t, "second", r.Result.ClusterID)
	_, said = x.restore(append(to, "--old-cluster-is-gone", "--yes")...)
	require.Contains(t, said, "etcd is not empty: it holds cluster second")

	var other *node
	x.n, other = x.node(append(at, "--broker-id", "7")...), x.node(append(at, "--broker-id", "8")...)
	for _, n := range []*node{x.n, other} {
		n.env = append(n.env, "TIERBROKER_ETCD_PREFIX=/restored/")
		n.start()
	}
	x.compare("audit")
	x.requireCommitted("billing", positions)
	other.stop()
	x.n.stop()
}
