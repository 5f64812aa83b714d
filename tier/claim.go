package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/frame"
)

// ClaimOptions say what a claim writes besides the owner.
type ClaimOptions struct {
	// Starts are epochs that the partition has begun since the head was last swapped: a broker that claims late has batches above End
	// already, whose epochs must not seem to be the owner's. Without an entry for its epoch that one begins at End.
	Starts []EpochStart
	// Stream is the owner's WAL stream, which the head names as pending from the claim on: batches may be acknowledged there. Others stay.
	Stream *PendingStream
	// More, which may be nil, changes other fields in the same swap; it may be called more than once.
	More func(*Head)
}

// Claim is ClaimWith for an owner without a WAL stream.
func (a *Archive) Claim(ctx context.Context, id frame.PartitionID, topic string, old *Head, o Owner, starts ...EpochStart) (*Head, error) {
	return a.ClaimWith(ctx, id, topic, old, o, ClaimOptions{Starts: starts})
}

// ClaimWith makes o the owner of the head, and creates the head when old is nil and there is none. A head that o holds already, and that
// names its stream, is returned as it is. ErrFenced: another owner holds it in the same epoch, or a later epoch was there.
func (a *Archive) ClaimWith(ctx context.Context, id frame.PartitionID, topic string, old *Head, o Owner, opts ClaimOptions) (*Head, error) {
	if old != nil {
		var err error
		if old, err = a.newest(ctx, id, old); err != nil {
			return nil, err
		}
	}
	for try := 0; ; try++ {
		held := old != nil && old.OwnerOf() == o
		if old != nil {
			if old.Tombstone {
				return old, fmt.Errorf("head of %v: %w", id, ErrTombstone)
			}
			if held && (opts.Stream == nil || old.isPending(opts.Stream)) {
				return old, nil
			}
			if old.Epoch >= o.Epoch && !held {
				return old, old.refuse(o)
			}
		}
		h, err := a.Swap(ctx, id, old, func(h *Head) error {
			if !held {
				h.claim(topic, o, opts.Starts)
			}
			if opts.Stream != nil && !h.isPending(opts.Stream) {
				h.Pending = append(h.Pending, *opts.Stream)
			}
			if opts.More != nil {
				opts.More(h)
			}
			return nil
		})
		if !errors.Is(err, ErrConflict) || try == maxConflicts {
			return h, err
		}
		old = h
	}
}

func (h *Head) claim(topic string, o Owner, starts []EpochStart) {
	h.Topic = topic
	h.Epoch, h.Owner, h.OwnerIncarnation = o.Epoch, o.Broker, o.Incarnation
	h.AddEpoch(EpochStart{Epoch: o.Epoch, Start: h.End, Owner: o.Incarnation})
	for _, s := range starts {
		if s.Epoch <= o.Epoch {
			h.AddEpoch(s)
		}
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
