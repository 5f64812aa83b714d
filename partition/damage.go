package partition

import (
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
