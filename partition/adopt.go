package partition

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// Taking a partition over (design, section 9): the claim puts this run's name into the head, and its own WAL stream
// beside those that may hold more than the head covers; adoption seals each of these, and makes extents of what it holds
// of the partition, without copying. Only then is the partition written to.

// takeOver claims the head where it can't wait for the first roll: another broker may have owned the partition, or its
// acks are to rest on the bucket. The caller holds swap.
func (p *Partition) takeOver(ctx context.Context, object, eager bool) error {
	var err error
	switch {
	case object:
		err = p.joinStream(ctx)
	case eager:
		_, err = p.claimed(ctx)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	return p.adoptStreams(ctx)
}

// joinStream makes the head name this run's stream, so that whoever takes the partition over looks there. The caller
// holds swap.
func (p *Partition) joinStream(ctx context.Context) error {
	w, err := p.set.stream.open(ctx)
	if err != nil {
		return err
	}
	if p.leaving {
		// A swap that leaves it may still be on its way: one that is seen to be made ends it.
		if err := p.refreshHead(ctx); err != nil {
			return err
		}
		if err := p.leaveStream(ctx); err != nil {
			return err
		}
		p.leaving = false
	}
	id := p.set.stream.ID()
	_, err = p.claimedIn(ctx, &tier.PendingStream{Broker: id.Broker, Incarnation: id.Incarnation, Epoch: p.owner().Epoch, From: int64(w.Next())})
	return err
}

// leaveStream takes this broker's streams out of the head, which covers everything. The caller holds swap.
func (p *Partition) leaveStream(ctx context.Context) error {
	h, err := p.head(ctx)
	if err != nil || h == nil {
		return err
	}
	own := slices.DeleteFunc(slices.Clone(h.Pending), func(st tier.PendingStream) bool { return st.Broker != p.set.o.Broker })
	if len(own) == 0 {
		return nil
	}
	if h, err = p.claimed(ctx); err != nil {
		return err
	}
	p.leaving = true
	nh, err := p.set.o.Archive.Adopt(ctx, p.id, h, p.owner(), nil, nil, own)
	if err := p.swapped(nh, err); err != nil {
		return err
	}
	p.leaving = false
	return nil
}

// stay is what a hand-over that came to nothing needs before the partition takes writes again: it may have taken the
// stream out of the head, and what is acknowledged from here on is in the stream alone.
func (p *Partition) stay(ctx context.Context) error {
	if err := p.lockSwap(ctx); err != nil {
		return err
	}
	defer p.unlockSwap()
	p.mu.Lock()
	object, draining := p.object, p.state == Draining
	p.mu.Unlock()
	switch {
	case !draining:
		return errLeft
	case !object:
		return nil // a bundle names the stream before it writes
	}
	return p.joinStream(ctx)
}

// ownStream says whether a stream is this run's.
func (s *Set) ownStream(st tier.PendingStream) bool {
	return s.stream != nil && s.stream.ID() == wal.StreamID{Broker: st.Broker, Incarnation: st.Incarnation}
}

func (p *Partition) foreignStreams(h *tier.Head) []tier.PendingStream {
	return slices.DeleteFunc(slices.Clone(h.Pending), p.set.ownStream)
}

// adoption is what the streams of earlier owners add to the archive of a partition.
type adoption struct {
	id        tier.Owner
	end       int64
	exts      []tier.Extent
	producers producers
	batches   int
}

// adoptStreams makes part of the archive what earlier owners' streams hold behind its end. The caller holds swap.
func (p *Partition) adoptStreams(ctx context.Context) error {
	h, err := p.head(ctx)
	if err != nil || h == nil {
		return err
	}
	streams := p.foreignStreams(h)
	if len(streams) == 0 {
		return nil
	}
	p.mu.Lock()
	next := p.next
	p.mu.Unlock()
	a := adoption{id: p.owner(), end: h.End}
	if a.producers, err = decodeSnapshot(h.Producers); err != nil && len(h.Producers) > 0 {
		p.set.event(Warn, p, "the head's producer snapshot is unreadable; retries of old batches may be stored twice", err)
	}
	if a.producers == nil {
		a.producers = producers{}
	}
	for _, st := range streams {
		sealed, err := p.set.seal(ctx, wal.StreamID{Broker: st.Broker, Incarnation: st.Incarnation})
		if err != nil {
			return fmt.Errorf("seal the WAL stream of broker %d (%s): %w", st.Broker, st.Incarnation, bucketError(err))
		}
		es, err := sealed.Entries(ctx, p.id)
		if err != nil {
			return fmt.Errorf("read the WAL stream of broker %d (%s): %w", st.Broker, st.Incarnation, bucketError(err))
		}
		if err := a.add(es, st.Epoch); err != nil {
			p.fail("the WAL stream of an earlier owner does not go on where the archive ends", err)
			return err
		}
	}
	nh, err := p.set.o.Archive.Adopt(ctx, p.id, h, p.owner(), a.exts, a.producers.encodeSnapshot(a.end), streams, a.history(next))
	if err := p.swapped(nh, err); err != nil {
		return err
	}
	if a.end > h.End {
		p.set.event(Info, p, fmt.Sprintf("adopted offsets %d to %d (%d batches) from %d WAL streams of earlier owners, in epoch %d",
			h.End, a.end-1, a.batches, len(streams), a.id.Epoch), nil)
	}
	return p.adoptProducers(nh)
}

// add takes the entries of one stream, which were written since the given epoch of the partition. What an entry holds
// below the end is in the archive.
func (a *adoption) add(es []wal.Entry, since int32) error {
	for i := range es {
		whole := &es[i]
		if whole.Epoch < since || whole.End <= a.end {
			continue
		}
		if whole.Start > a.end {
			return fmt.Errorf("%w: offsets %d to %d are missing before object %s", ErrCorrupt, a.end, whole.Start-1, whole.Key)
		}
		e, ok := whole.Cut(a.end, whole.End)
		if !ok {
			continue
		}
		x := e.Extent()
		for _, b := range e.Batches {
			a.batches++
			if b.ProducerID >= 0 {
				a.producers.apply(produced{id: b.ProducerID, epoch: b.ProducerEpoch, seen: b.AppendTime, batch: producedBatch{
					firstSeq: b.FirstSequence, lastSeq: lastSequence(b.FirstSequence, b.Records), base: b.Base, last: b.Last}})
			}
		}
		x.Epoch = a.id.Epoch
		a.exts, a.end = append(a.exts, x), e.End
	}
	return nil
}

// history lets the present epoch begin where the partition goes on: behind what was adopted, and what is here. Epochs that
// were claimed and never written in are left out.
func (a *adoption) history(next int64) func(*tier.Head) {
	return func(n *tier.Head) {
		at := max(n.End, next)
		n.Epochs = slices.DeleteFunc(n.Epochs, func(e EpochStart) bool { return e.Start >= at })
		n.AddEpoch(EpochStart{Epoch: a.id.Epoch, Start: at, Owner: a.id.Incarnation})
	}
}

// lastSequence is the sequence of the last of n records; sequences wrap to 0 (KIP-98).
func lastSequence(first int32, n int32) int32 {
	return int32((int64(first) + int64(n) - 1) & (1<<31 - 1))
}

// seals are the streams that this run has sealed or found sealed: a thousand partitions of one dead broker read its
// stream once.
type seals struct {
	mu sync.Mutex
	m  map[wal.StreamID]*sealing
}

type sealing struct {
	done   chan struct{}
	sealed *wal.Sealed
	err    error
	used   int64 // ms
}

func newSeals() *seals { return &seals{m: map[wal.StreamID]*sealing{}} }

// seal ends a stream, if it hasn't ended, and returns what it holds.
func (s *Set) seal(ctx context.Context, id wal.StreamID) (*wal.Sealed, error) {
	c := s.seals
	c.mu.Lock()
	x := c.m[id]
	if x == nil {
		x = &sealing{done: make(chan struct{})}
		c.m[id] = x
		s.work.Go(func() { s.runSeal(id, x) })
	}
	x.used = s.o.Now()
	c.mu.Unlock()
	select {
	case <-x.done:
		return x.sealed, x.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *Set) runSeal(id wal.StreamID, x *sealing) {
	ctx, cancel := context.WithTimeout(s.ctx, s.o.BucketCallTimeout)
	defer cancel()
	x.sealed, x.err = wal.Seal(ctx, s.o.WAL.Bucket, streamOp, id, s.o.WAL.ClusterIncarnation)
	if x.err != nil {
		s.seals.mu.Lock()
		delete(s.seals.m, id)
		s.seals.mu.Unlock()
	}
	close(x.done)
}

// sealedPatience is how long a sealed stream's directory stays in memory after its last use, in ms.
const sealedPatience = 60_000

// forgetSeals frees what nobody has asked for lately.
func (s *Set) forgetSeals(now int64) {
	s.seals.mu.Lock()
	defer s.seals.mu.Unlock()
	for id, x := range s.seals.m {
		select {
		case <-x.done:
			if now-x.used > sealedPatience {
				delete(s.seals.m, id)
			}
		default:
		}
	}
}
