package partition

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/segment"
)

// suspect finds the partitions whose last batches may lie in a damaged part of the log. Where later ones were found, the
// gap before them tells what is missing (prepare). Where none were, nothing tells: what was there was acknowledged, so
// the partition must jump and never give these offsets out again. Damage that doesn't say whose it is may be
// anybody's.
func (r *recovery) suspect(found *segment.Recovered) {
	s := r.s
	for i := range found.Corrupt {
		c := &found.Corrupt[i]
		if c.Position < r.from {
			continue // what is there is in the index
		}
		if c.ID != (frame.PartitionID{}) {
			r.suspectOne(s.ensure(c.ID, ""), c, found.End)
			continue
		}
		for _, p := range s.parts {
			r.suspectOne(p, c, found.End)
		}
		s.empty.Store(true) // nor is a partition without any trace above suspicion
	}
}

func (r *recovery) suspectOne(p *Partition, c *segment.Corruption, end uint64) {
	if r.replayed[p] <= c.Position {
		p.jump, p.jumpFrom = true, end
	}
}

// damaged is told of the damage before anything is visited.
func (r *recovery) damaged(cs []segment.Corruption) {
	for i := range cs {
		if cs[i].Position >= r.from {
			r.damage = append(r.damage, cs[i])
		}
	}
	slices.SortFunc(r.damage, func(a, b segment.Corruption) int { return cmp.Compare(a.Position, b.Position) })
}

// pass is called before a frame is visited. No checkpoint passes damage that isn't remembered with it: a start that fails behind the
// checkpoint would never see that damage again. Until suspect knows better, or a batch behind the damage tells, whoever may have had a batch
// there must jump.
func (r *recovery) pass(pos uint64) {
	for len(r.damage) > 0 && r.damage[0].Position < pos {
		c := &r.damage[0]
		r.damage = r.damage[1:]
		if c.ID != (frame.PartitionID{}) {
			r.mark(r.s.ensure(c.ID, ""), c)
			continue
		}
		for _, p := range r.s.parts {
			r.mark(p, c)
		}
		var x checkpointExtra
		_ = json.Unmarshal(r.extra, &x) // without one it is the zero value: an unknown boot
		x.Empty = true
		r.extra = x.encode()
	}
}

func (r *recovery) mark(p *Partition, c *segment.Corruption) {
	p.jump, p.jumpFrom = true, max(p.jumpFrom, c.Position)
	r.changed[p] = struct{}{}
}
