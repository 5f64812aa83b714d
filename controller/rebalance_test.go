package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// crooked puts every partition of its topics, Writing, at a broker that pick chooses.
func crooked(brokers int32, topics int, partitions int32, pick func(frame.PartitionID) int32) *world {
	w := newWorld()
	for id := range brokers {
		w.broker(id+1, 1)
	}
	for n := range topics {
		topic := w.topic(n, partitions, false)
		for p := range partitions {
			id := frame.PartitionID{Topic: topic.ID, Partition: p}
			b := pick(id)
			w.assign[id] = cluster.Assignment{Owner: b, OwnerIncarnation: fmt.Sprintf("b%d-run1", b), State: cluster.Writing,
				Target: cluster.NoBroker, Safe: true}
		}
	}
	return w
}

// carry makes the moves of a rebalance at once.
func (w *world) carry(t require.TestingT, moves []Move) {
	seen := map[frame.PartitionID]bool{}
	for _, m := range moves {
		a := w.assign[m.ID]
		require.Equal(t, m.From, a.Owner)
		require.NotEqual(t, m.From, m.To)
		require.False(t, seen[m.ID], "every partition moves once")
		seen[m.ID] = true
		a.Owner, a.OwnerIncarnation, a.Epoch = m.To, w.alive(m.To).Incarnation, a.Epoch+1
		w.assign[m.ID] = a
	}
}

func TestRebalanceOfAnEmptyBroker(t *testing.T) {
	w := crooked(4, 4, 12, func(id frame.PartitionID) int32 { return id.Partition%3 + 1 })
	r := PlanRebalance(w, nil, AllGoals())
	require.Len(t, r.Moves, 12, "as many as the new broker's share, no more")
	require.Equal(t, BrokerLoad{Broker: 4, Weight: 1}, r.Before[3])
	topics := map[string]int{}
	for _, m := range r.Moves {
		require.Equal(t, int32(4), m.To)
		require.Equal(t, GoalCount, m.Goal)
		topics[m.Topic]++
	}
	for _, n := range topics {
		require.Equal(t, 3, n, "each topic gives as much: %v", topics)
	}
	for _, b := range r.After {
		require.Equal(t, 12, b.Partitions)
	}
	require.Equal(t, r, PlanRebalance(w, nil, AllGoals()), "the same arguments, the same plan")
	require.Equal(t, "rebalance: partitions", r.Wishes()[0].Goal)
	w.carry(t, r.Moves)
	require.Empty(t, PlanRebalance(w, nil, AllGoals()).Moves)
}

func TestRebalanceKeepsToLabelsWeightsAndDrains(t *testing.T) {
	w := crooked(5, 2, 30, func(frame.PartitionID) int32 { return 1 })
	w.brokers[1].Weight = 3
	w.brokers[2].Labels = []string{cluster.LabelCoordinator}
	w.drains[4] = cluster.BrokerWish{Draining: true}
	w.topics[1].Internal = true
	r := PlanRebalance(w, nil, AllGoals())
	w.carry(t, r.Moves)
	for id, a := range w.assign {
		require.Equal(t, id.Topic == w.topics[1].ID, a.Owner == 3, "internal topics at the coordinator, and only they")
	}
	require.Equal(t, map[int32]int{1: 6, 2: 18, 3: 30, 5: 6}, w.owned())
	require.Empty(t, PlanRebalance(w, nil, AllGoals()).Moves)
}

func TestRebalanceLeavesAloneWhatMoves(t *testing.T) {
	w := crooked(2, 1, 10, func(frame.PartitionID) int32 { return 1 })
	topic := w.topics[0]
	for p := range int32(3) {
		w.set(topic, p, to(2, 1))
	}
	w.wish(topic, 3, 2, 1, false)
	w.set(topic, 4, state(cluster.Recovering))
	r := PlanRebalance(w, nil, AllGoals())
	require.Equal(t, 4, r.Before[1].Partitions, "what moves counts where it goes")
	require.Len(t, r.Moves, 1)
	require.Greater(t, r.Moves[0].ID.Partition, int32(4))
}

func TestRebalanceOfBytes(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(uint64(seed), 1))
	w := crooked(10, 20, 50, func(id frame.PartitionID) int32 { return id.Partition%10 + 1 })
	loads := Loads{}
	for id, a := range w.assign {
		loads[id] = Load{In: rnd.ExpFloat64() * 1e6, Out: rnd.ExpFloat64() * 3e6}
		if a.Owner == 3 {
			loads[id] = Load{In: 4e6, Out: 1e6} // one broker is hot
		}
	}
	r := PlanRebalance(w, loads, AllGoals())
	spread := func(list []BrokerLoad, of func(BrokerLoad) float64) float64 {
		sum, most := 0.0, 0.0
		for _, b := range list {
			sum += of(b)
			most = max(most, of(b))
		}
		return most / (sum / float64(len(list)))
	}
	in := func(b BrokerLoad) float64 { return b.In }
	out := func(b BrokerLoad) float64 { return b.Out }
	t.Logf("%d moves of %d; in %.2f -> %.2f, out %.2f -> %.2f of the mean", len(r.Moves), len(w.assign),
		spread(r.Before, in), spread(r.After, in), spread(r.Before, out), spread(r.After, out))
	require.Greater(t, spread(r.Before, in), 1.5)
	require.Less(t, spread(r.After, in), 1.35)
	require.Less(t, spread(r.After, out), 1.25)
	require.Less(t, len(r.Moves), 200)
	for _, b := range r.After {
		require.InDelta(t, 100, b.Partitions, 3)
	}
}

// TestRebalanceProperties holds any cluster against what a rebalance promises.
func TestRebalanceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		brokers := rapid.Int32Range(1, 8).Draw(t, "brokers")
		w := crooked(brokers, rapid.IntRange(1, 6).Draw(t, "topics"), rapid.Int32Range(1, 20).Draw(t, "partitions"),
			func(frame.PartitionID) int32 { return rapid.Int32Range(1, brokers).Draw(t, "at") })
		loads := Loads{}
		if rapid.Bool().Draw(t, "loads") {
			for id := range w.assign {
				loads[id] = Load{In: rapid.Float64().Draw(t, "in"), Out: rapid.Float64Range(0, 1e7).Draw(t, "out")}
			}
		}
		for i := range w.brokers {
			w.brokers[i].Rack = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "rack")
			w.brokers[i].Weight = rapid.SampledFrom([]float64{0, 1, 2}).Draw(t, "weight")
			w.brokers[i].Draining = rapid.IntRange(0, 5).Draw(t, "drains") == 0
		}
		r := PlanRebalance(w, loads, Goals{Labels: true, Count: true})
		surplus := 0
		total, weights := 0, 0.0
		for _, b := range r.Before {
			if !b.Draining {
				total += b.Partitions
				weights += b.Weight
			}
		}
		for _, b := range r.Before {
			if share := float64(total) * b.Weight / weights; !b.Draining && float64(b.Partitions) > share {
				surplus += b.Partitions - int(share)
			}
		}
		require.LessOrEqual(t, len(r.Moves), surplus, "only what is too many moves")
		for _, b := range r.After {
			if !b.Draining {
				require.InDelta(t, float64(total)*b.Weight/weights, b.Partitions, 1+1e-9)
			}
		}
		all := PlanRebalance(w, loads, AllGoals())
		require.Equal(t, all, PlanRebalance(w, loads, AllGoals()))
		for _, m := range all.Moves {
			require.False(t, w.alive(m.To).Draining)
		}
		w.carry(t, all.Moves)
	})
}

func TestAutomaticRebalance(t *testing.T) {
	fresh := func() *world {
		return crooked(3, 2, 15, func(id frame.PartitionID) int32 { return id.Partition%2 + 1 })
	}
	w := fresh()
	r, next := PlanAuto(w, 1_000_000)
	require.Len(t, r.Moves, 10)
	require.Equal(t, NeverDue, next)
	w.carry(t, r.Moves)
	r, _ = PlanAuto(w, 1_000_000)
	require.Empty(t, r.Moves, "hysteresis: what it made is even")

	for name, change := range map[string]func(w *world){
		"switched off":         func(w *world) { w.limits.Auto = false },
		"a wish is pending":    func(w *world) { w.wish(w.topics[0], 0, 3, 1, false) },
		"a move is under way":  func(w *world) { w.set(w.topics[0], 0, to(3, 1)) },
		"one recovers":         func(w *world) { w.set(w.topics[0], 0, state(cluster.Recovering)) },
		"a broker shuts down":  func(w *world) { w.brokers[0].Draining = true },
		"a broker is drained":  func(w *world) { w.drains[1] = cluster.BrokerWish{Draining: true} },
		"below the threshold":  func(w *world) { w.limits.Threshold = 101 },
		"a broker was started": func(w *world) { w.brokers[2].StartedAt = 1_000_000 - 59_999 },
	} {
		w := fresh()
		change(w)
		r, next := PlanAuto(w, 1_000_000)
		require.Empty(t, r.Moves, name)
		if name == "a broker was started" {
			require.Equal(t, int64(1_000_001), next)
		}
	}
}

func TestRebalanceAtScale(t *testing.T) {
	w := crooked(1000, 2000, 100, func(id frame.PartitionID) int32 { return (id.Partition*7+int32(id.Topic[1]))%900 + 1 })
	start := time.Now()
	r := PlanRebalance(w, nil, AllGoals())
	t.Logf("%d moves of 200,000 partitions to 100 empty ones of 1,000 brokers in %v", len(r.Moves), time.Since(start))
	for _, b := range r.After {
		require.Equal(t, 200, b.Partitions)
	}
}

// What operators have placed stays where it is for the automatic rebalance; the others make up for it. A rebalance that
// an operator asks for moves it like any other.
func TestAutomaticRebalanceKeepsWhatIsPlaced(t *testing.T) {
	w := crooked(3, 1, 12, func(frame.PartitionID) int32 { return 1 })
	topic := w.topics[0]
	for p := range int32(5) {
		w.set(topic, p, func(a *cluster.Assignment) { a.Placed = true })
	}
	r, _ := PlanAuto(w, 1_000_000)
	require.Len(t, r.Moves, 7, "broker 1 is still above its share, but the rest of it is placed")
	for _, m := range r.Moves {
		require.GreaterOrEqual(t, m.ID.Partition, int32(5))
	}
	w.carry(t, r.Moves)
	r, _ = PlanAuto(w, 1_000_000)
	require.Empty(t, r.Moves, "and that is no reason to begin again")
	r = PlanRebalance(w, nil, AllGoals())
	require.Len(t, r.Moves, 1)
	require.Less(t, r.Moves[0].ID.Partition, int32(5))
}

func TestRebalanceOfNextToNoBytes(t *testing.T) {
	w := crooked(2, 1, 4, func(id frame.PartitionID) int32 { return id.Partition%2 + 1 })
	loads := Loads{}
	for id, a := range w.assign {
		loads[id] = Load{In: float64(a.Owner-1) * quiet / 2, Out: 1}
	}
	require.Empty(t, PlanRebalance(w, loads, AllGoals()).Moves, "a broker with little is not worth a move, whatever the others have")
	for id, a := range w.assign {
		loads[id] = Load{In: float64(a.Owner-1) * quiet}
	}
	r := PlanRebalance(w, loads, AllGoals())
	require.Len(t, r.Moves, 2)
	for _, m := range r.Moves {
		if loads[m.ID].In == 0 {
			require.Equal(t, GoalCount, m.Goal, "no bytes move with it")
		} else {
			require.Equal(t, GoalBytesIn, m.Goal)
		}
	}
}
