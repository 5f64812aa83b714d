package integration

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/admin"
)

func parsed[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// The tool asks one node and is told of the whole cluster; what a broker is killed with is named, and the exit code says so.
func TestTierctlSeesTheCluster(t *testing.T) {
	t.Parallel()
	m := newMesh(t, meshOptions{brokers: 3, controllers: 1, lease: 20 * time.Second})
	m.start()
	const partitions = 6
	m.createTopic("t", partitions, nil)
	m.produceEach(m.client(kgo.RecordPartitioner(kgo.ManualPartitioner())), "t", partitions, "x", 10)
	ask := m.brokers[0]

	list := parsed[[]admin.Topic](t, first(ask.at(t, 0, "", "topic", "list", "-o", "json")))
	require.Len(t, list, 1)
	require.Equal(t, []any{partitions, int64(10 * partitions), map[string]int{"writing": partitions}}, []any{list[0].Known, list[0].Offsets, list[0].States})
	require.Positive(t, list[0].PendingBytes)
	// A controller, which has no partitions, tells and does the same.
	m.controllers[0].at(t, 0, "", "topic", "roll", "t")
	ask.at(t, 0, "", "topic", "evict", "t")
	d := parsed[admin.TopicDetail](t, first(ask.at(t, 0, "", "topic", "describe", "t", "-o", "json")))
	owners := map[int32]bool{}
	for n, p := range d.PartitionList {
		require.Equal(t, []any{int32(n), int64(10), int64(10), int64(0)}, []any{p.Partition, p.Tiered, p.LocalStart, p.LocalBytes})
		owners[p.Broker] = true
	}
	require.Len(t, d.PartitionList, partitions)
	require.Len(t, owners, 3)

	// A killed broker is alive by its lease, and told of at once.
	ask.at(t, 0, "", "cluster", "status", "--wait", "30s")
	m.brokers[2].kill()
	out, _ := ask.at(t, 1, "", "cluster", "status")
	require.Contains(t, out, "2 of 3 alive, 1 not answering")
	require.Contains(t, out, "broker 3 is not answering: it takes no connections")
	require.Contains(t, out, "-> If its process has ended, start it again")
	out, errOut := ask.at(t, 1, "", "topic", "roll", "t")
	require.Contains(t, out, "broker 3 does not answer")
	require.Contains(t, errOut, "roll failed for 2 partitions")
	out, errOut = ask.at(t, 0, "", "topic", "list")
	require.Contains(t, out, "4 writing, 2 unknown")
	require.Contains(t, errOut, "note: broker 3 did not answer")
	out, _ = ask.at(t, 0, "", "topic", "describe", "t")
	require.Contains(t, out, "unknown: broker 3 does not answer")
}

func first(out, _ string) string { return out }
