package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// objectsPerRound is how many data objects are uploaded before others have their turn: a failure repeats little.
const objectsPerRound = 4

// minObjectBytes keeps a tiny segment.bytes from making an object of every batch.
const minObjectBytes = 1 << 10

// Roll brings everything that is durable now into the bucket and returns when the head covers it.
func (p *Partition) Roll(ctx context.Context) error {
	p.mu.Lock()
	target := p.durable
	err := p.admit(-1)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if err := p.lockSwap(ctx); err != nil {
		return err
	}
	defer p.unlockSwap()
	return p.rollTo(ctx, target)
}

// rollTo rolls until the tiered offset has reached target. The caller holds swap.
func (p *Partition) rollTo(ctx context.Context, target int64) error {
	for {
		p.mu.Lock()
		tiered := p.tiered
		p.mu.Unlock()
		if tiered >= target {
			return nil
		}
		if _, err := p.rollOnce(ctx, target, true); err != nil {
			return err
		}
	}
}

// rollOnce uploads up to objectsPerRound objects and commits them, and those uploaded before, with one swap. A crash in
// between leaves orphans (swept later), never a hole. Without all, what would make a small object behind a full one waits
// until there is more, and the swap may wait for more objects (see unlisted). done is false when nothing was uploaded and nothing
// committed: there is no use in trying again before something has changed. The caller holds swap.
func (p *Partition) rollOnce(ctx context.Context, target int64, all bool) (done bool, err error) {
	if err := p.loadProducers(); err != nil {
		return false, err // the head's snapshot must not stay behind its end
	}
	h, err := p.claimed(ctx)
	if err != nil {
		return false, err
	}
	if err := p.settlePending(); err != nil || h.End >= target {
		return true, err // an earlier attempt has got further than was known
	}
	from := p.matchUnlisted(h)
	more, err := p.upload(ctx, from, target, all)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	n, list := len(p.unlisted.exts), all || !more || p.listDue()
	done = n > 0 && p.unlisted.exts[n-1].End > from
	p.mu.Unlock()
	switch {
	case n == 0:
		return false, fmt.Errorf("%w: offsets from %d of %s-%d should be in the local log and are not", ErrCorrupt, h.End, p.Topic(), p.id.Partition)
	case list:
		return true, p.commitRoll(ctx, h)
	}
	return done, nil
}

// upload puts the objects that begin at from into the bucket, each under a deadline of its own, and adds them to the unlisted
// ones. Records deleted before they were rolled become a void extent. When one fails, those before it are not given
// up, but listed (more is false): on a slow link a backlog would otherwise never get anywhere.
func (p *Partition) upload(ctx context.Context, from, target int64, all bool) (more bool, err error) {
	p.mu.Lock()
	start, local, n := p.start, p.local, len(p.unlisted.exts)
	p.mu.Unlock()
	if from < start {
		to, skipped, err := p.voidBelow(from, min(start, target))
		if err != nil {
			return false, err
		}
		if to > from {
			p.note(tier.VoidExtent(from, to, p.owner().Epoch), skipped)
			from, n = to, n+1
		}
	}
	if from < local && from < target {
		return false, fmt.Errorf("%w: offsets %d to %d of %s-%d are neither in the local log nor in the bucket", ErrCorrupt, from, local-1, p.Topic(), p.id.Partition)
	}
	for range objectsPerRound {
		if from >= target || n >= maxUnlisted {
			break
		}
		src, next, err := p.planObject(from, target)
		if err != nil {
			return false, err
		}
		if len(src.entries) == 0 || !all && n > 0 && next >= target && src.bytes < p.rollBytes()/2 {
			break // it may grow still
		}
		ext, err := p.uploadOne(ctx, p.objectSpec(from, next), src)
		if err != nil && n > 0 {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		p.note(ext, src.bytes)
		from, n = next, n+1
	}
	return true, nil
}

func (p *Partition) uploadOne(ctx context.Context, spec tier.ObjectSpec, src *rollSource) (tier.Extent, error) {
	ctx, cancel := context.WithTimeout(ctx, p.set.o.BucketCallTimeout)
	defer cancel()
	ext, err := p.set.o.Archive.Upload(ctx, spec, src)
	if errors.Is(err, bucket.ErrCorrupt) {
		// The bytes were not those that their headers promise: here, or on their way.
		if bad := src.check(); bad != nil {
			err = bad
		}
	}
	if err != nil {
		p.discard([]tier.Extent{ext}, 0)
		return ext, p.uploadError(err)
	}
	return ext, nil
}

// uploadError fails the partition when its local data is damaged: retrying would never end, and the damage must be
// seen by an operator.
func (p *Partition) uploadError(err error) error {
	if errors.Is(err, ErrCorrupt) {
		p.fail("a batch in the local log is damaged and not yet in the bucket", err)
		return err
	}
	if errors.Is(err, ErrStorage) || errors.Is(err, errFileGone) {
		return err
	}
	return bucketError(err)
}

func (p *Partition) objectSpec(from, to int64) tier.ObjectSpec {
	p.mu.Lock()
	defer p.mu.Unlock()
	spec := tier.ObjectSpec{ID: p.id, Topic: p.Topic(), Epoch: p.epoch, Start: from, End: to, LogStart: p.start, Now: p.set.o.Now(),
		Epochs: append([]EpochStart(nil), p.epochs...)}
	if p.producersLoaded {
		spec.Producers = p.live.encodeSnapshot(to)
	}
	return spec
}

// objectBytes is how many bytes of batches an object takes of segment.bytes. What the object has around them, its index above all, fits into
// the rest: an object of 64 MiB is sixteen chunks of the cache, not sixteen and a bit of a seventeenth, which would be a request more.
func objectBytes(segmentBytes int64) int64 {
	return max(segmentBytes-segmentBytes>>8, minObjectBytes)
}

// planObject chooses the batches of the next object: from the given offset up to segment.bytes.
func (p *Partition) planObject(from, target int64) (*rollSource, int64, error) {
	size := objectBytes(p.rollBytes())
	buf := &entryBuf{}
	if err := p.entries(buf, from, &budget{left: int(size), first: true, limit: target}); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrStorage, err)
	}
	src := &rollSource{log: p.set.log}
	next := from
	for i := range buf.list {
		e := &buf.list[i]
		if e.Base != next {
			// The log has a gap that nothing explains. What is before it may be rolled.
			break
		}
		src.bytes += int64(e.Length)
		next = e.Last + 1
		src.entries = buf.list[:i+1]
	}
	return src, next, nil
}

// voidBelow finds how much of [from, start) consists of whole batches, and their bytes.
func (p *Partition) voidBelow(from, start int64) (to, bytes int64, err error) {
	to = start
	err = p.scanLocal(from, start, func(e *index.Entry) bool {
		if e.Last < start {
			bytes += int64(e.Length)
			return true
		}
		to = max(from, min(start, e.Base))
		return false
	})
	if err != nil {
		return 0, 0, err
	}
	return to, bytes, nil
}

// commitRoll swaps the head so that it names the unlisted objects. Whatever comes of it, they are unlisted no more.
func (p *Partition) commitRoll(ctx context.Context, h *tier.Head) error {
	p.mu.Lock()
	bytes, lost := p.unlisted.bytes, p.unlisted.lost
	exts := p.unlisted.take()
	end := exts[len(exts)-1].End
	want, epochs := p.wantCeiling, append([]EpochStart(nil), p.epochs...)
	loaded, snapshot, back := p.producersLoaded, p.live.encodeSnapshot(end), lost || p.next < end
	p.mu.Unlock()
	if back {
		p.discard(exts, 0)
		return fmt.Errorf("%w: what was to be rolled of %s-%d up to %d has been lost meanwhile", ErrStorage, p.Topic(), p.id.Partition, end)
	}
	stale := p.dropStale()
	ctx, cancel := context.WithTimeout(ctx, p.set.o.BucketCallTimeout)
	defer cancel()
	nh, err := p.set.o.Archive.CommitRoll(ctx, p.id, h, p.owner(), exts, func(h *tier.Head) {
		h.Ceiling = max(h.Ceiling, want)
		for _, e := range epochs {
			if e.Start < end {
				h.AddEpoch(e)
			}
		}
		if loaded {
			h.Producers = snapshot
		}
		stale(h)
	})
	if err := p.swapped(nh, err); err != nil {
		p.discard(exts, h.Version+1)
		return err
	}
	return p.rolled(end, bytes)
}

// discard hands uploaded objects that no head names to the sweep; version is that of the head that would have named
// them, 0 when no swap was tried.
func (p *Partition) discard(exts []tier.Extent, version int64) {
	for _, e := range exts {
		p.set.o.Archive.Discard(p.id, e.Key, version)
	}
}

// firstEntry returns the first local entry that ends at or behind offset.
func (p *Partition) firstEntry(offset int64) (index.Entry, bool, error) {
	buf := entryBufs.Get().(*entryBuf)
	defer buf.free()
	if err := p.entries(buf, offset, &budget{first: true, limit: 1<<63 - 1}); err != nil {
		return index.Entry{}, false, fmt.Errorf("%w: %w", ErrStorage, err)
	}
	if len(buf.list) == 0 {
		return index.Entry{}, false, nil
	}
	return buf.list[0], true, nil
}

// DeleteRecords removes the records below before (-1: all that is durable) and returns the new start offset. It
// answers when the head says so; the start offset never goes back.
//
// The log's note comes first and is what counts here: from then on nothing below is served, and what a failure leaves
// undone in the bucket is done by maintenance, or by who asks again.
func (p *Partition) DeleteRecords(ctx context.Context, before int64) (int64, error) {
	p.mu.Lock()
	o, err := p.offsets(), p.admitWrite(-1)
	p.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if before == -1 {
		before = o.Durable
	}
	if before > o.Durable || before < 0 {
		return 0, fmt.Errorf("%w: delete before %d, but %s-%d ends at %d", ErrOffsetOutOfRange, before, p.Topic(), p.id.Partition, o.Durable)
	}
	if err := p.lockSwap(ctx); err != nil {
		return 0, err
	}
	defer p.unlockSwap()
	before = max(before, p.Offsets().Start)
	h, err := p.head(ctx)
	if err != nil || before == 0 || h != nil && h.Start >= before {
		return before, err
	}
	p.mu.Lock()
	object := p.object
	p.mu.Unlock()
	if object {
		// What is seen here must be seen elsewhere when this disk is lost: the head first.
		if err := p.deleteInHead(ctx, before, p.set.o.Now()); err != nil {
			return 0, err
		}
		return before, p.raiseStart(ctx)
	}
	if err := p.noteStart(ctx, before); err != nil {
		return 0, err
	}
	p.mu.Lock()
	p.setStart(before)
	p.set.notePending(p) // should the head not follow now
	p.mu.Unlock()
	p.set.markDirty(p)
	return before, p.deleteInHead(ctx, before, p.set.o.Now())
}

// deleteInHead makes the head's start what the partition's is. The caller holds swap.
func (p *Partition) deleteInHead(ctx context.Context, start, now int64) error {
	if err := p.coverForDelete(ctx, start); err != nil {
		return err
	}
	h, err := p.claimed(ctx)
	if err != nil {
		return err
	}
	nh, err := p.set.o.Archive.DeleteRecords(ctx, p.id, h, p.owner(), start, now)
	return p.swapped(nh, err)
}

// coverForDelete makes the head reach the new start: whole batches below it become void without an upload, the one
// that it cuts is uploaded. The caller holds swap.
func (p *Partition) coverForDelete(ctx context.Context, before int64) error {
	h, err := p.claimed(ctx)
	if err != nil || h.End >= before {
		return err
	}
	if p.matchUnlisted(h) > h.End {
		if err := p.commitRoll(ctx, h); err != nil {
			return err
		}
		if h, err = p.claimed(ctx); err != nil || h.End >= before {
			return err
		}
	}
	to, bytes, err := p.voidBelow(h.End, before)
	if err != nil {
		return err
	}
	if to > h.End {
		p.note(tier.VoidExtent(h.End, to, p.owner().Epoch), bytes)
		if err := p.commitRoll(ctx, h); err != nil {
			return err
		}
	}
	if to == before {
		return nil
	}
	e, ok, err := p.firstEntry(to)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: offset %d of %s-%d", ErrCorrupt, to, p.Topic(), p.id.Partition)
	}
	return p.rollTo(ctx, e.Last+1)
}
