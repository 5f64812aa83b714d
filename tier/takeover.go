package tier

import (
	"context"
	"fmt"

	"github.com/tierbroker/tierbroker/frame"
)

// Adoption is what sealed WAL streams add to a partition's archive; see Adopt.
type Adoption struct {
	Extents   []Extent        // from the head's End on
	Producers []byte          // the producer snapshot as of the new end; nil: as it is
	Done      []PendingStream // which leave Pending
	More      func(*Head)     // nil, or what else changes in the same swap; it may be called more than once
}

// TakeOver is ClaimWith and Adopt in one swap, which replaces exactly the head that is given: what its pending streams held when they were
// sealed was read for this head, and for no other. ErrConflict comes with the head that is there instead: claim first then, which ends
// all changes by others, and adopt afterwards. ErrFenced: another owner holds it in the same epoch or a later one.
func (a *Archive) TakeOver(ctx context.Context, id frame.PartitionID, topic string, old *Head, o Owner, opts ClaimOptions, ad Adoption) (*Head, error) {
	switch {
	case old == nil:
		return nil, fmt.Errorf("partition %v: %w", id, ErrNoHead)
	case old.Tombstone:
		return old, fmt.Errorf("head of %v: %w", id, ErrTombstone)
	case old.Epoch >= o.Epoch:
		return old, old.refuse(o)
	}
	n := old.Clone()
	if err := n.adopt(ad.Extents); err != nil {
		return old, err
	}
	s := a.newSpiller(id, topic, o.Epoch)
	s.version = old.Version + 1
	err := s.spill(ctx, n)
	if err != nil {
		s.discard(err)
		return old, err
	}
	h, err := a.Swap(ctx, id, old, func(next *Head) error {
		next.claim(topic, o, opts.Starts)
		if opts.Stream != nil && !next.isPending(opts.Stream) {
			next.Pending = append(next.Pending, *opts.Stream)
		}
		if err := next.adopt(ad.Extents); err != nil {
			return err
		}
		next.Pages, next.Extents = n.Pages, n.Extents
		next.settle(&ad)
		if opts.More != nil {
			opts.More(next)
		}
		return nil
	})
	s.discard(err)
	if h == nil {
		h = old
	}
	return h, err
}

// refuse is the error of a claim that comes too late.
func (h *Head) refuse(o Owner) error {
	return fmt.Errorf("head of %v is held by broker %d (%s) in epoch %d; claim of broker %d (%s) in epoch %d: %w",
		h.ID, h.Owner, h.OwnerIncarnation, h.Epoch, o.Broker, o.Incarnation, o.Epoch, ErrFenced)
}
