package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
)

// delete ends a partition of a deleted topic: the head becomes a tombstone and local data is dropped. When the cluster
// learns that, the topic's name is free; the objects follow after the sweep's delay (sweepDeleted).
//
// It is safe to repeat: every step finds what an earlier attempt has done.
func (p *Partition) delete(ctx context.Context, epoch int32) error {
	p.retire()
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
	p.releaseAll()
	return nil
}

// bury puts the tombstone into the bucket. What is known locally isn't asked: a run that ended early may have made the
// head. A partition that never had one has nothing there.
func (p *Partition) bury(ctx context.Context, epoch int32) error {
	p.mu.Lock()
	p.epoch = max(p.epoch, epoch)
	p.mu.Unlock()
	_, err := p.set.o.Archive.Tombstone(ctx, p.id, nil, p.owner(), p.set.o.Now())
	return bucketError(err)
}

// dropLocal forgets the partition's local data, also what is still on its way into the index. The frame tells recovery
// the same, should it replay the log.
func (p *Partition) dropLocal() error {
	s := p.set
	pos, gen, err := s.log.Enqueue(&segment.Entry{Sync: true, Header: frame.Header{Type: frame.DropPartition, ID: p.id, AppendTime: s.o.Now()}})
	if err == nil {
		err = s.log.Written(pos, gen)
	}
	if err != nil {
		return storageError(err)
	}
	return s.update(func(b *index.Batch) error {
		p.dropped.Store(true)
		b.DropPartition(p.id)
		return s.dropUses(b, p.id)
	})
}

// noUse as the last offset of a partition in a log file says that it has nothing there any more.
const noUse = -1

// dropUses forgets which log files hold records of a partition, so that reclaim takes none of them for something worth
// keeping.
func (s *Set) dropUses(b *index.Batch, id frame.PartitionID) error {
	files, err := s.index.FileUses()
	if err != nil {
		return err
	}
	for _, base := range files {
		err := s.index.FileUse(base, func(user frame.PartitionID, _ int64) bool {
			if user == id {
				b.PutFileUse(base, id, noUse)
			}
			return user != id
		})
		if err != nil {
			return err
		}
	}
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
			done, err := s.destroy(ctx, frame.PartitionID{Topic: t.ID, Partition: i}, now)
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

func (s *Set) destroy(ctx context.Context, id frame.PartitionID, now int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.BucketCallTimeout)
	defer cancel()
	return s.o.Archive.DestroyPartition(ctx, id, s.o.SweepDelay, now)
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
