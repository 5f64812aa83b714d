package controller

import (
	"cmp"
	"slices"
)

// quiet is what a broker of weight 1 may have without being called uneven, in bytes per second: less is no reason
// for a move, whatever others have.
const quiet = 64 << 10

// bytesRounds bounds the exchanges of one goal for each broker.
const bytesRounds = 20

// evenBytes exchanges partitions between the broker that is furthest above its share
// of a load and the one that is furthest below, until all are within the tolerance or
// nothing helps. Counts stay even: a partition goes for one that comes, unless the
// receiver has fewer for its weight.
func (b *balance) evenBytes(goal string, tolerance float64, of func(Load) float64) {
	load := func(m *member) float64 { return max(of(m.load), 0) / m.share }
	stuck := map[*member]bool{}
	for range bytesRounds * len(b.pool.members) {
		total := 0.0
		var hot, cold *member
		for _, m := range b.pool.members {
			total += max(of(m.load), 0)
			if !stuck[m] && (hot == nil || load(m) > load(hot)) {
				hot = m
			}
			if cold == nil || load(m) < load(cold) {
				cold = m
			}
		}
		if hot == nil || hot == cold || b.pool.weight == 0 {
			return
		}
		mean := total / b.pool.weight
		if load(hot) <= max(mean*(1+tolerance), quiet) {
			return
		}
		if !b.exchange(hot, cold, mean, goal, of) {
			stuck[hot] = true
		}
	}
}

// exchange makes the move, or the swap, that brings two brokers closest together; false
// when none brings them closer by a hundredth of the mean.
func (b *balance) exchange(hot, cold *member, mean float64, goal string, of func(Load) float64) bool {
	value := func(x *placed) float64 { return clean(of(x.load)) }
	out, in := b.movable(hot, cold, value), b.movable(cold, hot, value)
	gap := max(of(hot.load), 0) - max(of(cold.load), 0)*hot.share/cold.share
	want := gap / (1 + hot.share/cold.share) // what has to go for both to be even
	var give, take *placed
	best := want - mean*hot.share/100 // the distance that is good enough
	consider := func(g, t *placed) {
		d := value(g)
		if t != nil {
			d -= value(t)
		}
		if off := max(want-d, d-want); d > 0 && off < best {
			best, give, take = off, g, t
		}
	}
	alone := float64(cold.count+1)/cold.share <= float64(hot.count)/hot.share
	for _, g := range out {
		if alone {
			consider(g, nil)
		}
		// The best counterpart has the value that is missing.
		i, _ := slices.BinarySearchFunc(in, value(g)-want, func(x *placed, v float64) int { return cmp.Compare(value(x), v) })
		for _, k := range []int{i - 1, i} {
			if k >= 0 && k < len(in) && poolOf(in[k].topic) == poolOf(g.topic) {
				consider(g, in[k])
			}
		}
	}
	if give == nil {
		return false
	}
	b.move(give, cold, goal)
	if take != nil {
		if value(take) < value(give)/20 {
			goal = GoalCount // it goes back for the sake of the number
		}
		b.move(take, hot, goal)
	}
	return true
}

// movable lists what may go from a broker to another, by rising value.
func (b *balance) movable(from, to *member, value func(*placed) float64) []*placed {
	list := slices.DeleteFunc(slices.Clone(from.placed), func(x *placed) bool {
		pool := poolOf(x.topic)
		return x.at != from || b.pool != &b.pools[pool] || !to.pool[pool]
	})
	slices.SortFunc(list, func(x, y *placed) int { return cmp.Or(cmp.Compare(value(x), value(y)), cmp.Compare(x.order, y.order)) })
	return slices.Compact(list)
}
