package broker

import (
	"errors"

	"github.com/tierbroker/tierbroker/group"
	"github.com/tierbroker/tierbroker/journal"
)

// GroupStats counts the groups that this broker coordinates. The totals run since its start.
type GroupStats struct {
	Groups     map[string]int // by state, in Kafka's words
	Members    int
	Offsets    int    // committed
	Loading    int    // shards of this broker that can't answer yet
	Rebalances uint64 // ended
	Expired    uint64 // offsets
	BadRecords uint64 // that could not be read
}

// GroupStats looks at every shard; it costs O(groups) and waits for no I/O.
func (b *Broker) GroupStats() GroupStats {
	g := b.groups
	j := g.current()
	g.pastMu.Lock()
	s := g.past
	g.pastMu.Unlock()
	s.Groups = map[string]int{}
	if j == nil {
		return s
	}
	for shard := range j.Shards() {
		if err := j.Look(shard, func(x *groupShard) { s.add(x) }); err != nil && errors.Is(j.Status(shard), journal.ErrLoading) {
			s.Loading++
		}
	}
	return s
}

func (s *GroupStats) add(x *groupShard) {
	st := x.m.Stats()
	for state, n := range st.Groups {
		s.Groups[string(state)] += n
	}
	s.Members += st.Members
	s.Offsets += st.Offsets
	s.count(st)
}

// count adds what only grows.
func (s *GroupStats) count(st group.Stats) {
	s.Rebalances += st.Rebalances
	s.Expired += st.Expired
	s.BadRecords += st.BadRecords
}
