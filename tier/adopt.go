package tier

import (
	"context"
	"fmt"
	"slices"

	"github.com/tierbroker/tierbroker/frame"
)

// Streams of a head: two entries of one run of a broker are the same stream.
func (s *PendingStream) same(o *PendingStream) bool {
	return s.Broker == o.Broker && s.Incarnation == o.Incarnation
}

func (h *Head) isPending(s *PendingStream) bool {
	return slices.ContainsFunc(h.Pending, func(p PendingStream) bool { return p.same(s) })
}

// Adopt takes what sealed WAL streams hold of the partition into the archive, in one swap: extents from End on, the producer snapshot as of
// the new end (nil: as it is), and done, which are the streams that have nothing more, out of Pending. There may be no extents. Nothing is
// copied; a merge puts the batches into data objects later. Epochs that the extents bring and the history doesn't know are more's to add;
// more may be nil, and may be called more than once. ErrNotContiguous: they don't begin at End, or leave a hole. A stream in done that isn't
// pending is no error, so that an adoption whose outcome was in doubt can be repeated with what is left of it.
func (a *Archive) Adopt(ctx context.Context, id frame.PartitionID, old *Head, o Owner, exts []Extent, producers []byte, done []PendingStream, more ...func(*Head)) (*Head, error) {
	topic := ""
	if old != nil {
		topic = old.Topic
	}
	s := a.newSpiller(id, topic, o.Epoch)
	h, err := a.change(ctx, id, old, o, func(h *Head) (func(*Head) error, error) {
		n := h.Clone()
		s.version = h.Version + 1
		if err := n.adopt(exts); err != nil {
			return nil, err
		}
		if err := s.spill(ctx, n); err != nil {
			return nil, err
		}
		if len(exts) == 0 && producers == nil && len(more) == 0 && !slices.ContainsFunc(done, func(d PendingStream) bool { return h.isPending(&d) }) {
			return nil, nil
		}
		return func(next *Head) error {
			if err := next.adopt(exts); err != nil {
				return err
			}
			next.Pages, next.Extents = n.Pages, n.Extents
			next.settle(&Adoption{Producers: producers, Done: done})
			for _, f := range more {
				f(next)
			}
			return nil
		}, nil
	})
	s.discard(err)
	return h, err
}

// adopt appends the extents of an adoption.
func (h *Head) adopt(exts []Extent) error {
	for _, e := range exts {
		if e.Kind != KindWAL && e.Kind != KindVoid {
			return fmt.Errorf("adopt extent [%d, %d) of kind %q: %w", e.Start, e.End, e.Kind, ErrFeature)
		}
		if err := h.append(e); err != nil {
			return fmt.Errorf("adopt: %w", err)
		}
	}
	return nil
}

// settle is what an adoption changes besides extents.
func (h *Head) settle(ad *Adoption) {
	if ad.Producers != nil {
		h.Producers = ad.Producers
	}
	h.Pending = slices.DeleteFunc(slices.Clone(h.Pending), func(p PendingStream) bool {
		return slices.ContainsFunc(ad.Done, func(d PendingStream) bool { return d.same(&p) })
	})
	if ad.More != nil {
		ad.More(h)
	}
}

// HoldsWAL reports whether the head may still need the part of a WAL object that holds [start, end) of its partition: an extent names the
// object there, or the stream is pending and the archive doesn't cover the part. A head with a tombstone needs nothing.
func (a *Archive) HoldsWAL(ctx context.Context, h *Head, stream PendingStream, key string, start, end int64) (bool, error) {
	if h.Tombstone {
		return false, nil
	}
	if end > h.End && h.isPending(&stream) {
		return true, nil
	}
	for at := max(start, h.Start); at < min(end, h.End); {
		e, err := a.extentAt(ctx, h, at)
		if err != nil {
			return true, fmt.Errorf("find extent of %v at %d: %w", h.ID, at, err)
		}
		if e.Key == key {
			return true, nil
		}
		at = e.End
	}
	return false, nil
}
