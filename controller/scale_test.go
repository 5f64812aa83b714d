package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// scaleSpec is a cluster of 1,000 brokers and 200,000 partitions, all well.
func scaleSpec() cluster.ImageSpec {
	s := cluster.ImageSpec{Revision: 1, ClusterID: "scale", Assignments: map[frame.PartitionID]cluster.Assignment{}}
	for id := range int32(1000) {
		s.Brokers = append(s.Brokers, cluster.Broker{ID: id + 1, Incarnation: "run", Rack: fmt.Sprint(id % 3)})
	}
	for n := range 2000 {
		t := &cluster.Topic{Name: fmt.Sprintf("t%05d", n), Partitions: 100}
		t.ID[0], t.ID[1], t.ID[15] = byte(n>>8), byte(n), 1
		s.Topics = append(s.Topics, t)
		for p := range t.Partitions {
			s.Assignments[frame.PartitionID{Topic: t.ID, Partition: p}] = cluster.Assignment{Owner: (int32(n)*100+p)%1000 + 1,
				OwnerIncarnation: "run", State: cluster.Writing, Target: cluster.NoBroker, Safe: true}
		}
	}
	return s
}

// BenchmarkPlan measures one step on a real image: nothing to do, and the failover of
// 200 partitions of a dead broker.
func BenchmarkPlan(b *testing.B) {
	spec := scaleSpec()
	for name, dead := range map[string]int{"idle": 0, "1-dead": 1, "100-dead": 100} {
		s := spec
		s.Brokers = s.Brokers[dead:]
		img, err := s.Build()
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				require.Len(b, Plan(img, nil, 1), dead*200)
			}
		})
	}
	img, err := spec.Build()
	require.NoError(b, err)
	b.Run("auto", func(b *testing.B) {
		for b.Loop() {
			r, _ := planAutoOf(img)
			require.Empty(b, r.Moves)
		}
	})
}

func planAutoOf(img State) (Rebalance, int64) { return PlanAuto(img, 1) }

// TestPlanningStepAtScale expects one step to take less than a second of an idle
// machine; the limit here leaves room for a busy one.
func TestPlanningStepAtScale(t *testing.T) {
	spec := scaleSpec()
	spec.Brokers = spec.Brokers[10:]
	img, err := spec.Build()
	require.NoError(t, err)
	start := time.Now()
	plan := Plan(img, nil, 1)
	took := time.Since(start)
	t.Logf("10 of 1,000 brokers dead: %d changes of 200,000 partitions in %v", len(plan), took)
	require.Len(t, plan, 2000)
	owned := map[int32]int{}
	for _, c := range plan {
		owned[c.New.Owner]++
	}
	for id, n := range owned {
		require.LessOrEqual(t, n, 3, "broker %d", id)
	}
	require.GreaterOrEqual(t, len(owned), 800, "spread over the living ones")
	require.Less(t, took, 10*time.Second)
}

func TestPlanAtScale(t *testing.T) {
	w := newWorld()
	for id := range int32(1000) {
		w.broker(id+1, 1)
	}
	for n := range 2000 {
		w.topic(n, 100, false)
	}
	measure := func(what string) []Change {
		start := time.Now()
		plan := Plan(w, nil, 0)
		t.Logf("%s: %d changes in %v", what, len(plan), time.Since(start))
		return plan
	}
	plan := measure("200,000 new partitions on 1,000 brokers")
	require.Len(t, plan, 200_000)
	w.apply(t, plan)
	require.Empty(t, measure("nothing to do"))
	for id, n := range w.owned() {
		require.Equal(t, 200, n, "broker %d", id)
	}
	for id := range int32(100) {
		w.broker(id+1, 2)
	}
	require.Len(t, measure("100 brokers restarted"), 20_000, "moves nothing else")
}
