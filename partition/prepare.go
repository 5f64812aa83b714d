package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/tier"
)

// firstEpoch is the epoch of a partition that was never started before: no head can exist.
const firstEpoch = 0

// prepare is the Recovering state: it reconciles local data with the head, so that the partition may enter Writing
// under the given epoch. It returns an error when it must be tried again (the bucket doesn't answer); a partition
// whose data is damaged is Failed afterwards and the error is nil.
func (p *Partition) prepare(ctx context.Context, a cluster.Assignment) error {
	if err := p.lockSwap(ctx); err != nil {
		return err
	}
	defer p.unlockSwap()
	if p.dropped.Load() {
		return errLeft
	}
	if err := p.drain(ctx); err != nil {
		return err
	}
	object := p.wantsObject() // once: a change meanwhile is followed when the partition is Writing
	if err := p.claimHead(ctx, a, object); err != nil {
		return err
	}
	p.mu.Lock()
	reason := p.reconcileLocal()
	p.trimEpochs(p.next)
	// After a restart of the machine, what was written and not synced may be gone.
	p.jump = p.mustJump() || a.Jump
	jump := p.jump
	p.mu.Unlock()
	if reason != "" {
		p.fail(reason, ErrCorrupt)
		return nil
	}
	if err := p.noteStart(ctx, p.Offsets().Start); err != nil {
		return err
	}
	if err := p.recount(); err != nil {
		return err
	}
	if jump {
		if err := p.jumpToCeiling(ctx); err != nil {
			return fmt.Errorf("void the offsets that the reboot may have lost: %w", err)
		}
	}
	if err := p.enterClass(a, object); err != nil {
		return err
	}
	p.set.markDirty(p)
	return nil
}

// claimHead learns what the bucket says of the partition, as far as it must be asked, and takes it over. The caller
// holds swap.
func (p *Partition) claimHead(ctx context.Context, a cluster.Assignment, object bool) error {
	epoch := a.Epoch
	p.mu.Lock()
	fresh := epoch == firstEpoch && p.next == 0
	ask := !p.localSuffices(epoch) || object && !fresh
	p.mu.Unlock()
	if ask {
		if err := p.refreshHead(ctx); err != nil {
			return err
		}
	}
	h, err := p.head(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	// Where the bucket has all that was acknowledged, a local copy with a hole (of what went to quarantine) is worth nothing.
	useless := p.overtaken(h) || a.Safe && object && h != nil && p.local > max(h.End, p.start)
	p.mu.Unlock()
	if useless {
		return p.dropRemains(h)
	}
	p.mu.Lock()
	// Somebody else may have had it, who may still swap the head unless it is claimed now.
	eager := epoch > firstEpoch && !p.traced
	p.epoch, p.headOwned, p.headKnown = epoch, false, true
	p.leaving = false // a claim is a swap
	p.mu.Unlock()
	if err := p.takeOver(ctx, object, eager); err != nil {
		return err
	}
	p.mu.Lock()
	p.traced = true
	p.mu.Unlock()
	switch {
	case !eager || h == nil || h.Owner == p.set.o.Broker:
	case h.Owner == cluster.NoBroker: // every partition, at the first start after a restore
		p.set.event(Debug, p, fmt.Sprintf("goes on from the restored archive, in epoch %d", epoch), nil)
	default:
		p.set.event(Info, p, fmt.Sprintf("taken over from broker %d, in epoch %d", h.Owner, epoch), nil)
	}
	return nil
}

// enterClass ends the preparation: what may be seen from here on depends on the topic's durability.
func (p *Partition) enterClass(a cluster.Assignment, object bool) error {
	left, err := p.lockBacklog(p.notInStream, func() int64 {
		if object {
			return p.stored
		}
		return 0
	})
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	async := p.asyncNext || p.cfg.Load().Durability == cluster.Async // settings change under the lock
	// All that is here is synced, so only what comes may be lost.
	p.prepared, p.rebooted, p.async, p.asyncSaved = true, false, async, async && p.asyncSaved
	p.move, p.declassing, p.staleTo, p.wasObject = moving{}, false, p.next, false
	if !object {
		p.object, p.queuedTo = false, max(p.covered(), p.sent)
		return nil
	}
	seen := p.next
	if a.Safe {
		// What the bucket lacks was never acknowledged, nor seen.
		seen = max(p.covered(), p.start)
	}
	p.becomeObject(left, seen, seen)
	return nil
}

// localSuffices says whether the head needn't be asked for: a partition that was never started before has none, and of
// one that stayed here the local copy says enough. The caller holds p.mu.
func (p *Partition) localSuffices(epoch int32) bool {
	if epoch == firstEpoch && p.next == 0 {
		return true
	}
	// Another broker may have had it unless this epoch follows the last one here.
	// And what is in the bucket and was lost here (an async batch that was rolled before it was synced) comes with a head
	// whose producers must be asked.
	return p.headKnown && p.traced && epoch-p.epoch <= 1 && p.hole.empty() && p.local <= max(p.tiered, p.start) && p.next >= p.tiered
}

// mustJump says whether records that somebody saw may be missing. The caller holds p.mu.
func (p *Partition) mustJump() bool {
	return p.jump || p.rebooted && (p.async || p.cfg.Load().Durability == cluster.Async)
}

// drain waits until nothing of the partition is on its way into the index: what was appended is stored, or was taken
// back. The partition takes no appends meanwhile.
func (p *Partition) drain(ctx context.Context) error {
	idle := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.stored == p.next
	}
	if idle() {
		return nil
	}
	err := p.set.settleAll(ctx)
	if idle() {
		return nil // also when it was lost
	}
	if err == nil {
		err = errors.New("batches are still being written")
	}
	return fmt.Errorf("%w: wait for the commit log: %w", ErrStorage, err)
}

// refreshHead loads the head from the bucket. The caller holds swap.
func (p *Partition) refreshHead(ctx context.Context) error {
	h, err := p.set.o.Archive.Load(ctx, p.id)
	if errors.Is(err, tier.ErrNoHead) {
		p.mu.Lock()
		p.headVersion, p.headKnown = 0, true
		p.mu.Unlock()
		return nil
	}
	if err != nil {
		return bucketError(err)
	}
	p.install(h)
	return p.adoptProducers(h)
}

// adoptProducers takes over what the head's snapshot knows better than local data: after the loss of the index, of the
// disk, or of a tail that was rolled before it was synced, retries of records in the bucket are still recognised.
func (p *Partition) adoptProducers(h *tier.Head) error {
	if len(h.Producers) == 0 {
		return nil
	}
	snapshot, err := decodeSnapshot(h.Producers)
	if err != nil {
		p.set.event(Warn, p, "the head's producer snapshot is unreadable; retries of old batches may be stored twice", err)
		return nil
	}
	if err := p.loadProducers(); err != nil {
		return err
	}
	return p.set.update(func(b *index.Batch) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for pid, s := range snapshot {
			if mine := p.committed[pid]; mine != nil && mine.lastOffset() >= s.lastOffset() {
				continue
			}
			live := *s
			p.committed[pid], p.live[pid] = s, &live
			b.PutProducer(p.id, pid, s.encode(nil))
		}
		return nil
	})
}

// reconcileLocal compares what is local with what the head covers. It returns why the partition can't be served, ""
// if it can. The caller holds p.mu.
func (p *Partition) reconcileLocal() string {
	if p.next < p.tiered {
		// Nothing is pending here; offsets go on where the archive ends. What is local ends below that, if there is
		// anything: it can't serve as the part from local on, which must have no hole.
		p.next, p.local = p.tiered, p.tiered
		p.announce, p.void = true, true
	}
	if p.next < p.start {
		p.next = p.start
		p.announce, p.void = true, true
	}
	p.durable, p.stored = p.next, p.next
	if !p.hole.empty() && p.hole.to > max(p.tiered, p.start) {
		return fmt.Sprintf("offsets %d to %d are damaged in the local log and not in the bucket", max(p.hole.from, p.tiered), p.hole.to-1)
	}
	if !p.hole.empty() {
		p.local = max(p.local, p.hole.to) // lookups by time see no hole in what is local
	}
	p.hole = gap{}
	if p.local > p.tiered && p.local > p.start {
		return fmt.Sprintf("offsets %d to %d are neither in the local log nor in the bucket", max(p.tiered, p.start), p.local-1)
	}
	return ""
}

// recount counts the bytes that wait for a roll: the entries at or above the tiered offset.
func (p *Partition) recount() error {
	p.mu.Lock()
	from, end := p.tiered, p.durable
	p.mu.Unlock()
	var pending, since int64
	err := p.set.index.Scan(p.id, from, func(e index.Entry) bool {
		if e.Base >= end {
			return false
		}
		if pending == 0 {
			since = e.AppendTime
		}
		pending += int64(e.Length)
		return true
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.pending, p.pendingSince, p.counted = pending, since, from
	unaligned := p.start > p.headStart
	p.mu.Unlock()
	if pending > 0 || unaligned {
		p.set.notePending(p)
	}
	return nil
}

// loadProducers brings the producer table into memory before its first use.
func (p *Partition) loadProducers() error {
	p.mu.Lock()
	loaded := p.producersLoaded
	p.mu.Unlock()
	if loaded {
		return nil
	}
	t := producers{}
	var bad error
	err := p.set.index.Producers(p.id, func(pid int64, val []byte) bool {
		s, _, err := decodeProducer(val)
		if err != nil {
			bad = fmt.Errorf("producer %d of %s: %w", pid, p.id, err)
			return false
		}
		t[pid] = s
		return true
	})
	if err := errors.Join(err, bad); err != nil {
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.producersLoaded {
		return nil
	}
	p.committed, p.live, p.producersLoaded = t, t.clone(), true
	return nil
}

// lockSwap waits for the right to change the head.
func (p *Partition) lockSwap(ctx context.Context) error {
	select {
	case p.swap <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Partition) unlockSwap() { <-p.swap }
