package admin

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
)

// newSpread is a cluster whose brokers 1 and 2 have admin servers: broker 1 has logs/0, broker 2 logs/1, broker 3 logs/2 and other/0.
func newSpread(t *testing.T) (s *several, second *world) {
	s = newSeveral(t, nil)
	second = &world{stats: map[frame.PartitionID]partition.Stats{}, fail: map[int32]error{}}
	for id, st := range s.w.stats {
		if id != s.id("logs", 0) {
			delete(s.w.stats, id)
		}
		if id == s.id("logs", 1) {
			second.stats[id] = st
		}
	}
	h, err := New(Options{Cluster: s.client, Operator: s.client, Partitions: second, Local: second, Health: second, Metrics: NewMetrics("v1", testNow),
		Version: "v1", BrokerID: 2, Now: func() int64 { return testNow }, OnFault: func(err error) { t.Errorf("fault: %v", err) }})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	s.kill(2)
	s.register(2, server.URL)
	s.await(func(img *cluster.Image) bool { b, _ := img.Broker(2); return b.AdminURL != "" })
	return s, second
}

// TestTopicsOfAllBrokers: any broker tells of all brokers' partitions, and names those that did not answer.
func TestTopicsOfAllBrokers(t *testing.T) {
	s, _ := newSpread(t)
	list := decode[TopicList](t, get(t, s.h, "/api/v1/topics", 200))
	require.Equal(t, []any{2, int64(200), int64(42), map[string]int{"writing": 2, "unknown": 1}},
		[]any{list.Topics[0].Known, list.Topics[0].LocalBytes, list.Topics[0].Offsets, list.Topics[0].States})
	require.Len(t, list.Unanswered, 1)
	require.Equal(t, int32(3), list.Unanswered[0].Broker)
	here := decode[TopicList](t, get(t, s.h, "/api/v1/topics?here=true", 200))
	require.Equal(t, []any{1, map[string]int{"writing": 1}, []Silent{}}, []any{here.Topics[0].Known, here.Topics[0].States, here.Unanswered})

	s.kill(3)
	d := decode[TopicDetail](t, get(t, s.h, "/api/v1/topics/logs", 200))
	require.Equal(t, []Silent{{3, "it is dead"}}, d.Unanswered)
	require.Len(t, d.PartitionList, 3)
	for n, want := range []string{"writing", "writing", "unknown"} {
		p := d.PartitionList[n]
		require.Equal(t, []any{int32(n), int32(n + 1), want}, []any{p.Partition, p.Broker, p.State})
	}
	require.Equal(t, "broker 3 does not answer: it is dead", d.PartitionList[2].Reason)
	require.Equal(t, int64(-1), d.PartitionList[2].End)
	require.Len(t, decode[TopicDetail](t, get(t, s.h, "/api/v1/topics/logs?here=true", 200)).PartitionList, 1)
}

// TestActionsEverywhere: roll is carried out by the broker of each partition; where none answers, the partition failed.
func TestActionsEverywhere(t *testing.T) {
	s, second := newSpread(t)
	r := decode[ActionResult](t, s.post("/api/v1/topics/logs/roll", "{}", 200))
	require.Equal(t, []int{2, 1}, []int{r.Done, r.Failed})
	require.Equal(t, []frame.PartitionID{s.id("logs", 0)}, s.w.rolls)
	require.Equal(t, []frame.PartitionID{s.id("logs", 1)}, second.rolls)
	for n := range int32(3) {
		require.Equal(t, []int32{n, n + 1}, []int32{r.Partitions[n].Partition.Partition, r.Partitions[n].Broker})
	}
	require.Contains(t, r.Partitions[2].Error, "broker 3 does not answer")

	second.fail[1] = errors.New("bucket is away")
	r = decode[ActionResult](t, s.post("/api/v1/topics/logs/roll", `{"partition":1}`, 200))
	require.Equal(t, []any{0, 1, "bucket is away"}, []any{r.Done, r.Failed, r.Partitions[0].Error})
	require.Len(t, s.w.rolls, 1, "its partitions are not concerned")
	s.post("/api/v1/topics/logs/roll", `{"partition":3}`, 404)

	// A controller alone has nothing to roll itself, and passes it on.
	second.fail = map[int32]error{}
	h, err := New(Options{Cluster: s.client, Operator: s.client, Health: s.w, Metrics: NewMetrics("v1", testNow), BrokerID: 101,
		Now: func() int64 { return testNow }, OnFault: func(err error) { t.Errorf("fault: %v", err) }})
	require.NoError(t, err)
	rec := post(h, "/api/v1/topics/logs/evict", `{"partition":1}`, nil)
	require.Equal(t, 200, rec.Code, rec.Body)
	require.Equal(t, 1, decode[ActionResult](t, rec.Body.String()).Done, fmt.Sprint(rec.Body))
}
