package partition

import (
	"fmt"

	"github.com/tierbroker/tierbroker/index"
)

// rolled corrects the pending count after a roll up to end.
func (p *Partition) rolled(end, bytes int64) error {
	e, ok, err := p.firstEntry(end)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.pending, p.counted = max(0, p.pending-bytes), end
	if p.tiered >= p.durable {
		p.pending = 0
	}
	p.pendingSince = 0
	if ok && p.pending > 0 {
		p.pendingSince = e.AppendTime
	}
	p.mu.Unlock()
	p.set.kickReclaim()
	return nil
}

// settlePending takes out of the pending bytes what the head covers and no roll here has taken out: a swap whose outcome nobody
// learned in time was made after all. Without it they would count for ever: retention.bytes would delete too much, and
// each batch would seem to be enough for an object. The caller holds swap.
func (p *Partition) settlePending() error {
	p.mu.Lock()
	from, to := p.counted, p.tiered
	p.mu.Unlock()
	if from >= to {
		return nil
	}
	var bytes int64
	err := p.set.index.Scan(p.id, from, func(e index.Entry) bool {
		if e.Base >= to {
			return false
		}
		bytes += int64(e.Length)
		return true
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	return p.rolled(to, bytes)
}
