package partition

import (
	"context"
	"fmt"
)

// raiseCeiling gives the partition room for more offsets without rolling anything. The caller holds swap.
func (p *Partition) raiseCeiling(ctx context.Context) error {
	h, err := p.claimed(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	want := p.wantCeiling
	p.mu.Unlock()
	nh, err := p.set.o.Archive.RaiseCeiling(ctx, p.id, h, p.owner(), want)
	return p.swapped(nh, err)
}

// jumpToCeiling makes the next offset the ceiling: whatever offsets below it somebody may have seen are never given
// to other records (design, section 9). The gap becomes a void extent. The caller holds swap; the partition isn't
// Writing.
func (p *Partition) jumpToCeiling(ctx context.Context) error {
	// What is still on its way into the index could be lost and take the partition back from where it jumped to. And a
	// log that is not open again still holds what was lost: a process that dies now would find it there, and serve it.
	if err := p.drain(ctx); err != nil {
		return err
	}
	if p.set.repairing() {
		return fmt.Errorf("%w: it is not open again after a failure", ErrStorage)
	}
	p.mu.Lock()
	end := p.next
	p.mu.Unlock()
	if err := p.rollTo(ctx, end); err != nil {
		return err
	}
	h, err := p.claimed(ctx)
	if err != nil {
		return err
	}
	if h.End > end {
		// Some of what is lost here was in the bucket before.
		if err := p.adoptProducers(h); err != nil {
			return err
		}
	}
	nh, err := p.set.o.Archive.SkipToCeiling(ctx, p.id, h, p.owner())
	if err := p.swapped(nh, err); err != nil {
		return err
	}
	to := nh.End
	p.mu.Lock()
	p.next, p.stored, p.durable, p.local = to, to, to, to
	p.jump, p.announce, p.void = false, true, true
	p.tail, p.settled = nil, 0
	p.pending, p.pendingSince, p.counted = 0, 0, to
	p.mu.Unlock()
	p.set.lost(p, h, max(end, h.End), to)
	p.set.markDirty(p)
	return nil
}
