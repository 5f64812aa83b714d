package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/tier"
)

// errLeft says that a job found nothing more to do for the partition object it was given: the next pass looks again.
var errLeft = errors.New("the partition's local state was dropped")

// errNotYet says that it can't be decided yet what becomes of the remains of a partition.
var errNotYet = errors.New("the new owner has not claimed the head yet")

// overtaken says whether another broker has owned the partition since this one did: what is local isn't a beginning of
// what the archive says then, and nothing may be built on it. The caller holds p.mu.
func (p *Partition) overtaken(h *tier.Head) bool {
	return p.traced && h != nil && h.Owner != p.set.o.Broker && h.Epoch > p.epoch
}

// leave drops what is left here of a partition that another broker owns. Records that the archive doesn't have (its
// owner was forced away before it could roll them) are moved to quarantine files first, and reported.
//
// It does nothing before the head shows a later owner: until then the local copy may be the only one.
func (p *Partition) leave(ctx context.Context) error {
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
	h, err := p.set.o.Archive.Load(ctx, p.id)
	if errors.Is(err, tier.ErrNoHead) {
		return errNotYet
	}
	if err != nil {
		return bucketError(err)
	}
	p.mu.Lock()
	gone := p.overtaken(h) && p.state == Closed
	p.mu.Unlock()
	if !gone {
		return errNotYet
	}
	return p.dropRemains(h)
}

// dropRemains is leave's deed. The caller holds swap.
func (p *Partition) dropRemains(h *tier.Head) error {
	from, n, err := p.divergence(h)
	if err != nil {
		return err
	}
	if n > 0 {
		if err := p.quarantineFrom(from, n); err != nil {
			return err
		}
	}
	if err := p.dropLocal(); err != nil {
		return err
	}
	// A machine that loses its power must not find what was dropped, when the head names this broker again.
	if err := p.set.log.Sync(p.set.ctx); err != nil {
		return storageError(err)
	}
	if !slices.ContainsFunc(h.Pending, p.set.ownStream) {
		p.releaseAll()
	}
	p.set.forget(p)
	p.set.kickReclaim()
	return errLeft
}

// divergence finds the first local record that the archive doesn't have: it lies behind the head's end, or in a range
// that belongs to another epoch there. Of a partition that was safe (object, and all of it acknowledged by the
// bucket) these were never acknowledged.
func (p *Partition) divergence(h *tier.Head) (from int64, batches int, err error) {
	p.mu.Lock()
	begin, object := max(p.local, p.start), p.isSafe() || p.wasObject
	p.mu.Unlock()
	if object {
		return 0, 0, nil
	}
	from = -1
	err = p.set.index.Scan(p.id, begin, func(e index.Entry) bool {
		if e.Last < h.End && (e.Last < h.Start || h.EpochOf(e.Base) == e.Epoch) {
			return true
		}
		if from < 0 {
			from = e.Base
		}
		batches++
		return true
	})
	return from, batches, err
}

func (p *Partition) quarantineFrom(from int64, batches int) error {
	s := p.set
	files, err := s.index.FileUses()
	if err != nil {
		return err
	}
	for _, base := range files {
		used := false
		err := s.index.FileUse(base, func(id frame.PartitionID, last int64) bool {
			used = used || id == p.id && last >= from
			return !used
		})
		if err != nil {
			return err
		}
		if !used {
			continue
		}
		if _, err := s.log.Quarantine(base, p.id, from); err != nil {
			return fmt.Errorf("quarantine %s: %w", p.id, err)
		}
	}
	s.event(Error, p, fmt.Sprintf("another broker owns the partition, and its archive lacks %d batches from offset %d on that are here: "+
		"they were moved to quarantine files in the commit log's directory", batches, from), nil)
	return nil
}

// leaveOthers has the remains dropped of partitions that others serve.
func (s *Set) leaveOthers(img *cluster.Image, mine map[frame.PartitionID]bool) {
	for _, p := range s.All() {
		if mine[p.id] {
			continue
		}
		a, ok := img.Assignment(p.id)
		if !ok || a.Owner == s.o.Broker || a.Owner == cluster.NoBroker || a.State != cluster.Writing {
			continue
		}
		p.mu.Lock()
		due := p.state == Closed && p.traced && a.Epoch > p.epoch
		p.mu.Unlock()
		if due {
			s.offer(job{start: start{p, a}, kind: jobLeave})
		}
	}
}
