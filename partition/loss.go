package partition

import (
	"fmt"

	"github.com/tierbroker/tierbroker/tier"
)

// lost tells the operator that what was appended behind end may be lost; h is the head as of then.
func (s *Set) lost(p *Partition, h *tier.Head, end, next int64) {
	s.o.OnEvent(Event{
		Level: Warn, Topic: p.Topic(), Partition: p.id,
		Message: fmt.Sprintf("offsets %d to %d are left void: records may have been lost there", end, next-1),
		Loss:    &Loss{Start: min(h.Start, end), End: end, Next: next, Newest: newestAppend(h), Durability: p.cfg.Load().Durability},
	})
}

// newestAppend is the append time of the newest record in the archive, as far as the head itself tells.
func newestAppend(h *tier.Head) int64 {
	for i := len(h.Extents) - 1; i >= 0; i-- {
		if x := &h.Extents[i]; x.Kind != tier.KindVoid {
			return x.MaxAppendTime
		}
	}
	return -1
}
