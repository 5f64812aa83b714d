package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// takeOver claims the head where it can't wait for the first roll: another broker may have owned the partition, or its
// acks are to rest on the bucket. The caller holds swap.
func (p *Partition) takeOver(ctx context.Context, object, eager bool) error {
	if !object && !eager {
		return nil
	}
	if done, err := p.takeOverAtOnce(ctx, object); done || err != nil {
		return err
	}
	loaded := p.version()
	var err error
	if object {
		err = p.joinStream(ctx)
	} else {
		_, err = p.claimed(ctx)
	}
	if err != nil {
		return err
	}
	if h, err := p.head(ctx); err == nil && h != nil && h.Version > loaded+1 {
		// Somebody has swapped between load and claim: with what was rolled came producers.
		if err := p.adoptProducers(h); err != nil {
			return err
		}
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
	_, err = p.claimedIn(ctx, p.set.stream.inHead(p.owner().Epoch, w.Next()))
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
	streams   []tier.PendingStream
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
	if len(p.foreignStreams(h)) == 0 {
		return nil
	}
	a, err := p.adoption(ctx, h)
	if errors.Is(err, errHole) {
		p.fail("the WAL stream of an earlier owner does not go on where the archive ends", err)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	next := p.next
	p.mu.Unlock()
	nh, err := p.set.o.Archive.Adopt(ctx, p.id, h, a.id, a.exts, a.producers.encodeSnapshot(a.end), a.streams, a.history(next))
	return p.adopted(a, h, nh, err)
}

// adopted follows the swap of an adoption.
func (p *Partition) adopted(a *adoption, h, nh *tier.Head, err error) error {
	if err := p.swapped(nh, err); err != nil {
		return err
	}
	if a.end > h.End {
		p.set.event(Info, p, fmt.Sprintf("adopted offsets %d to %d (%d batches) from %d WAL streams of earlier owners, in epoch %d",
			h.End, a.end-1, a.batches, len(a.streams), a.id.Epoch), nil)
	}
	return p.adoptProducers(nh)
}

// adoption seals the streams of earlier owners that a head names, and reads what they hold behind its end. errHole: they
// don't go on there.
func (p *Partition) adoption(ctx context.Context, h *tier.Head) (*adoption, error) {
	a := &adoption{id: p.owner(), streams: p.foreignStreams(h), end: h.End}
	var err error
	if a.producers, err = decodeSnapshot(h.Producers); err != nil && len(h.Producers) > 0 {
		p.set.event(Warn, p, "the head's producer snapshot is unreadable; retries of old batches may be stored twice", err)
	}
	if a.producers == nil {
		a.producers = producers{}
	}
	for _, st := range a.streams {
		sealed, err := p.set.seal(ctx, wal.StreamID{Broker: st.Broker, Incarnation: st.Incarnation})
		if err != nil {
			return nil, fmt.Errorf("seal the WAL stream of broker %d (%s): %w", st.Broker, st.Incarnation, bucketError(err))
		}
		es, err := sealed.Entries(ctx, p.id)
		if err != nil {
			return nil, fmt.Errorf("read the WAL stream of broker %d (%s): %w", st.Broker, st.Incarnation, bucketError(err))
		}
		if err := a.add(es, st.Epoch); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// errHole says that what the streams hold does not begin where the archive ends.
var errHole = errors.New("offsets are in neither archive nor WAL streams")

// add takes the entries of one stream, which were written since the given epoch of the partition. What an entry holds
// below the end is in the archive.
func (a *adoption) add(es []wal.Entry, since int32) error {
	for i := range es {
		whole := &es[i]
		if whole.Epoch < since || whole.End <= a.end {
			continue
		}
		if whole.Start > a.end {
			return fmt.Errorf("%w: %w: offsets %d to %d are missing before object %s", ErrCorrupt, errHole, a.end, whole.Start-1, whole.Key)
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
