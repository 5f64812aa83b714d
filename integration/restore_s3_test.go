package integration

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A cluster over S3 loses every process, every disk and its etcd. What the bucket has is all there again in a cluster of the same
// shape: every record of topics that were acknowledged by the bucket or rolled, and every group position.
func TestRestoreClusterOverS3(t *testing.T) {
	t.Parallel()
	m := newMesh(t, meshOptions{brokers: 3, controllers: 1})
	m.start()
	x := &lostCluster{t: t, n: m.brokers[0].node, bucket: m.server.URL("p").String(), env: m.server.Environ(), want: map[spot]content{}}
	m.createTopic("safe", 4, map[string]string{"tierbroker.durability": "object", "retention.ms": "-1"})
	m.createTopic("rolled", 3, map[string]string{"tierbroker.durability": "sync", "retention.ms": "-1"})
	x.produce("safe", 150, true)
	x.produce("rolled", 150, true)
	x.n.tierctl("topic", "roll", "rolled") // at every broker
	x.produce("safe", 50, true)            // in WAL objects alone
	positions := map[string]map[string][]int64{
		"billing": {"safe": {3, 0, 7, 1}, "rolled": {17, 0, 3}},
		"audit":   {"rolled": {1, 2, 3}},
		"replay":  {"safe": {5, 6, 7, 8}},
	}
	for group, at := range positions {
		x.commit(group, at)
	}
	all := append(append([]*proc{}, m.controllers...), m.brokers...)
	for _, p := range all {
		p.kill()
	}
	for _, p := range all {
		p.wipe()
	}

	r, said := x.restore("--data-dir", m.controllers[0].dir, "--old-cluster-is-gone", "--yes")
	require.NotNil(t, r, said)
	require.NotEmpty(t, r.Result.ClusterID)
	require.Empty(t, r.Groups, "no group stands beyond what the bucket has")
	m.start()
	m.eventually(time.Minute, "all partitions are served", func() bool {
		_, err := x.n.tryTierctl("cluster", "status")
		return err == nil
	})
	x.compare("safe", "rolled")
	for group, at := range positions {
		x.requireCommitted(group, at)
	}

	// It is a cluster to work with: each partition goes on above all that the old one can have given out.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl := m.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for topic, n := range map[string]int32{"safe": 4, "rolled": 3} {
		for p := range n {
			res, err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte("after")}).First()
			require.NoError(t, err)
			require.GreaterOrEqual(t, res.Offset, int64(1<<20), "%s/%d", topic, p)
			x.want[spot{topic, p, res.Offset}] = contentOf(res)
		}
	}
	x.compare("safe", "rolled")
	for _, b := range m.brokers {
		b.stop()
	}
	cmd := exec.Command(program(t, "tierctl"), "archive", "verify", "--bucket", x.bucket)
	cmd.Env = append(cmd.Environ(), x.env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
