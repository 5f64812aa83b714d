package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
)

// deleteAll ends the partitions of deleted topics: the head becomes a tombstone, local data is dropped, and the
// cluster learns that the partition is Deleted, which frees the topic's name. The objects follow after the sweep's
// delay (sweepDeleted).
func (s *Set) deleteAll(img *cluster.Image, ps []*Partition) error {
	var done []cluster.Transition
	var errs []error
	for _, p := range ps {
		a, ok := img.Assignment(p.id)
		if !ok {
			continue
		}
		if err := p.delete(s.ctx, a.Epoch); err != nil {
			errs = append(errs, fmt.Errorf("delete %s-%d: %w", p.topic, p.id.Partition, err))
			continue
		}
		done = append(done, s.transition(start{p, a}, cluster.Deleted, ""))
	}
	if err := s.o.Cluster.Transition(s.ctx, done); err != nil {
		errs = append(errs, ignoreFenced(err))
	} else {
		for _, p := range ps {
			if p.State() == Closed {
				s.forget(p)
			}
		}
	}
	return errors.Join(errs...)
}

// delete is safe to repeat: every step finds what an earlier attempt has done.
func (p *Partition) delete(ctx context.Context, epoch int32) error {
	ctx, cancel := context.WithTimeout(ctx, p.set.o.BucketCallTimeout)
	defer cancel()
	p.mu.Lock()
	p.state = Draining // no more writes; reads end below
	p.wake()
	p.mu.Unlock()
	if err := p.lockSwap(ctx); err != nil {
		return err
	}
	defer p.unlockSwap()
	if err := p.bury(ctx, epoch); err != nil {
		return err
	}
	if err := p.dropLocal(); err != nil {
		return err
	}
	p.mu.Lock()
	p.state = Closed
	p.wake()
	p.mu.Unlock()
	return nil
}

// bury puts the tombstone into the bucket. A partition that never had a head has nothing there.
func (p *Partition) bury(ctx context.Context, epoch int32) error {
	p.mu.Lock()
	p.epoch = max(p.epoch, epoch)
	known, version := p.headKnown, p.headVersion
	p.mu.Unlock()
	if !known {
		if err := p.refreshHead(ctx); err != nil {
			return err
		}
		p.mu.Lock()
		version = p.headVersion
		p.mu.Unlock()
	}
	if version == 0 {
		return nil
	}
	h, err := p.head(ctx)
	if err != nil {
		return err
	}
	if h.Tombstone {
		return nil
	}
	if h, err = p.claimed(ctx); err != nil {
		if errors.Is(err, tier.ErrTombstone) {
			return nil
		}
		return err
	}
	nh, err := p.set.o.Archive.Tombstone(ctx, p.id, h, p.owner(), p.set.o.Now())
	if err != nil {
		return bucketError(err)
	}
	p.install(nh)
	return nil
}

// dropLocal forgets the partition's local data. The frame tells recovery the same, should it replay the log.
func (p *Partition) dropLocal() error {
	s := p.set
	pos, gen, err := s.log.Enqueue(&segment.Entry{Sync: true, Header: frame.Header{Type: frame.DropPartition, ID: p.id, AppendTime: s.o.Now()}})
	if err == nil {
		err = s.log.Written(pos, gen)
	}
	if err != nil {
		return storageError(err)
	}
	if err := s.update(func(b *index.Batch) error { b.DropPartition(p.id); return nil }); err != nil {
		return err
	}
	s.rolls.mu.Lock()
	delete(s.rolls.pending, p)
	s.rolls.mu.Unlock()
	return nil
}

// sweepDeleted removes the objects of deleted topics once their delay has passed, and then the last record of the
// topic. Nothing of a deleted topic stays in the bucket.
func (s *Set) sweepDeleted(ctx context.Context, img *cluster.Image, now int64) error {
	if img == nil {
		return nil
	}
	var errs []error
	for _, t := range img.Deleted() {
		if img.TopicByID(t.ID) != nil || t.DeletedAt+s.o.SweepDelay.Milliseconds() > now {
			continue
		}
		if !s.mayDestroy(img) {
			continue
		}
		all := true
		for i := range t.Partitions {
			done, err := s.o.Archive.DestroyPartition(ctx, frame.PartitionID{Topic: t.ID, Partition: i}, s.o.SweepDelay, now)
			if err != nil {
				errs = append(errs, fmt.Errorf("topic %s, partition %d: %w", t.Name, i, bucketError(err)))
			}
			all = all && done && err == nil
		}
		if all {
			errs = append(errs, s.o.Cluster.FinishDelete(ctx, t.ID))
		}
	}
	return errors.Join(errs...)
}

// mayDestroy elects one broker for the sweep of deleted topics: the living one with the lowest id.
func (s *Set) mayDestroy(img *cluster.Image) bool {
	for _, b := range img.Brokers() {
		if b.ID < s.o.Broker {
			return false
		}
	}
	return true
}
