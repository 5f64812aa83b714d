package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/frame"
)

// Claim makes o the owner of the head, and creates the head when old is nil and there is none. A head that o holds already is
// returned as it is. ErrFenced: another owner holds it in the same epoch, or a later epoch was there.
//
// starts are epochs that the partition has begun since the head was last swapped: a broker that claims late has batches above End
// already, whose epochs must not seem to be o.Epoch. Without an entry for o.Epoch that one begins at End.
func (a *Archive) Claim(ctx context.Context, id frame.PartitionID, topic string, old *Head, o Owner, starts ...EpochStart) (*Head, error) {
	if old != nil {
		var err error
		if old, err = a.newest(ctx, id, old); err != nil {
			return nil, err
		}
	}
	for try := 0; ; try++ {
		if old != nil {
			if old.Tombstone {
				return old, fmt.Errorf("head of %v: %w", id, ErrTombstone)
			}
			if old.OwnerOf() == o {
				return old, nil
			}
			if old.Epoch >= o.Epoch {
				return old, fmt.Errorf("head of %v is held by broker %d (%s) in epoch %d; claim of broker %d (%s) in epoch %d: %w",
					id, old.Owner, old.OwnerIncarnation, old.Epoch, o.Broker, o.Incarnation, o.Epoch, ErrFenced)
			}
		}
		h, err := a.Swap(ctx, id, old, func(h *Head) error {
			h.Topic = topic
			h.Epoch, h.Owner, h.OwnerIncarnation = o.Epoch, o.Broker, o.Incarnation
			h.AddEpoch(EpochStart{Epoch: o.Epoch, Start: h.End, Owner: o.Incarnation})
			for _, s := range starts {
				if s.Epoch <= o.Epoch {
					h.AddEpoch(s)
				}
			}
			return nil
		})
		if !errors.Is(err, ErrConflict) || try == maxConflicts {
			return h, err
		}
		old = h
	}
}

// RaiseCeiling swaps the head so that offsets up to need may be assigned. It returns old when they may already.
func (a *Archive) RaiseCeiling(ctx context.Context, id frame.PartitionID, old *Head, o Owner, need int64) (*Head, error) {
	return a.change(ctx, id, old, o, func(h *Head) (func(*Head) error, error) {
		if h.Ceiling > need {
			return nil, nil
		}
		return func(n *Head) error {
			if need >= maxOffset-minHeadroom {
				return fmt.Errorf("offset %d: %w", need, ErrCeiling)
			}
			n.Ceiling = need + minHeadroom
			return nil
		}, nil
	})
}

// SkipToCeiling gives up all offsets from End to the ceiling, one of which somebody may have seen: the gap becomes a void
// extent, and the next batch begins where the ceiling was.
func (a *Archive) SkipToCeiling(ctx context.Context, id frame.PartitionID, old *Head, o Owner) (*Head, error) {
	goal := int64(-1) // the first head's ceiling: a conflict must not skip twice
	return a.change(ctx, id, old, o, func(h *Head) (func(*Head) error, error) {
		if goal < 0 {
			goal = h.Ceiling
		}
		if h.End >= goal {
			return nil, nil
		}
		return func(n *Head) error {
			if err := n.append(VoidExtent(n.End, goal, o.Epoch)); err != nil {
				return err
			}
			n.LastRoll = 0
			return nil
		}, nil
	})
}
