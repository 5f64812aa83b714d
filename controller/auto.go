package controller

import (
	"math"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// PlanAuto returns the moves of an automatic rebalance, none unless it is due, and
// when to look again if nothing happens before. It is due when the setting allows it,
// every broker has been up for a while, nothing moves, recovers or waits to be placed,
// and a broker is off its share of partitions by more than the threshold and by more
// than rounding explains. What it makes leaves every broker within rounding, so that
// the next one is due only after something else has happened. What operators have
// placed stays; the others make up for it.
func PlanAuto(img State, now int64) (r Rebalance, next int64) {
	s := img.MoveSettings()
	if !s.Auto || len(img.Moves()) > 0 {
		return r, NeverDue
	}
	for _, b := range img.Brokers() {
		up := b.StartedAt + s.Delay
		if b.OwnsPartitions() && b.StartedAt <= now && up > now {
			return r, up
		}
	}
	if !calm(img) {
		return r, NeverDue
	}
	r = PlanRebalance(img, nil, Goals{Labels: true, Count: true, Keep: true})
	if len(r.Moves) == 0 || !uneven(img, r.Moves, float64(s.Threshold)/100) {
		return Rebalance{}, NeverDue
	}
	return r, NeverDue
}

// calm reports whether no partition moves, recovers or waits for a broker that lives.
func calm(img State) bool {
	live := map[int32]string{}
	drains := img.BrokerWishes()
	for _, b := range img.Brokers() {
		live[b.ID] = b.Incarnation
		if b.Draining {
			return false // it shuts down, and will be back
		}
	}
	for _, t := range img.Topics() {
		for n := range t.Partitions {
			a, ok := img.Assignment(frame.PartitionID{Topic: t.ID, Partition: n})
			if !ok || a.Owner == cluster.NoBroker || a.Target != cluster.NoBroker {
				return false
			}
			if run, alive := live[a.Owner]; alive && (run != a.OwnerIncarnation || a.State != cluster.Writing || drains[a.Owner].Drains()) {
				return false
			}
		}
	}
	return true
}

// uneven reports whether a broker is off its share by more than the threshold, or
// has what others are reserved for.
func uneven(img State, moves []Move, threshold float64) bool {
	for _, m := range moves {
		if m.Goal == GoalLabels {
			return true
		}
	}
	b := newBalance(img, nil, false)
	for i := range b.pools {
		total := 0
		for _, m := range b.pools[i].members {
			total += m.count
		}
		for _, m := range b.pools[i].members {
			share := float64(total) * m.share / b.pools[i].weight
			has := float64(m.count)
			if (has < math.Floor(share) || has > math.Ceil(share)) && math.Abs(has-share) > threshold*share {
				return true
			}
		}
	}
	return false
}
