package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Tombstone marks the partition as deleted. Nobody can change the head after that; its objects stay until DestroyPartition. A
// partition without a head needs none: old may be nil, and the result too. A tombstone that is there already is no error.
func (a *Archive) Tombstone(ctx context.Context, id frame.PartitionID, old *Head, o Owner, now int64) (*Head, error) {
	if old == nil {
		var err error
		if old, err = a.Load(ctx, id); errors.Is(err, ErrNoHead) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	for try := 0; ; try++ {
		if old.Tombstone {
			return old, nil
		}
		if old.Epoch > o.Epoch || old.Epoch == o.Epoch && old.OwnerOf() != o {
			return old, fmt.Errorf("tombstone of broker %d in epoch %d: %w", o.Broker, o.Epoch, lost(old, &Head{Epoch: o.Epoch, Owner: o.Broker, OwnerIncarnation: o.Incarnation, ClusterIncarnation: old.ClusterIncarnation}))
		}
		h, err := a.Swap(ctx, id, old, func(n *Head) error {
			n.Epoch, n.Owner, n.OwnerIncarnation = o.Epoch, o.Broker, o.Incarnation
			n.Tombstone, n.TombstoneTime = true, now
			return nil
		})
		if !errors.Is(err, ErrConflict) || try == maxConflicts {
			return h, err
		}
		old = h
	}
}

// DestroyPartition deletes everything of a tombstoned partition once delay has passed since the tombstone: objects, pages, older
// heads, unfinished uploads, and the head last. It may be called again after a failure, and reports whether it is done. Without a
// head there is nothing to do: what lies there then is unknown, and stays.
func (a *Archive) DestroyPartition(ctx context.Context, id frame.PartitionID, delay time.Duration, now int64) (done bool, err error) {
	h, err := a.Load(ctx, id)
	if errors.Is(err, ErrNoHead) {
		a.Forget(id)
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("destroy %v: %w", id, err)
	}
	if !h.Tombstone {
		return false, fmt.Errorf("destroy %v: its head has no tombstone", id)
	}
	if h.TombstoneTime+delay.Milliseconds() > now {
		return false, nil
	}
	for _, f := range []struct{ kind, prefix string }{
		{bucket.KindData, DataPrefix(id)}, {bucket.KindPage, PagePrefix(id)}, {bucket.KindHistory, HistoryPrefix(id)},
	} {
		op := bucket.Op{Class: bucket.ClassSweep, Topic: h.Topic, Kind: f.kind}
		if _, err := a.opts.Sweep.Uploads(ctx, op, f.prefix, true); err != nil {
			return false, fmt.Errorf("destroy %v: %w", id, err)
		}
		if err := a.deletePrefix(ctx, op, f.prefix, id); err != nil {
			return false, fmt.Errorf("destroy %v: %w", id, err)
		}
	}
	op := bucket.Op{Class: bucket.ClassSweep, Topic: h.Topic, Kind: bucket.KindHead}
	if err := a.opts.Sweep.Delete(ctx, op, []string{HeadKey(id)}); err != nil {
		return false, fmt.Errorf("destroy %v: %w", id, err)
	}
	a.Forget(id)
	return true, nil
}

// deletePrefix deletes the keys below a prefix that are this format's. Others were put there by somebody else.
func (a *Archive) deletePrefix(ctx context.Context, op bucket.Op, prefix string, id frame.PartitionID) error {
	var keys []string
	flush := func() error {
		if len(keys) == 0 {
			return nil
		}
		err := a.opts.Sweep.Delete(ctx, op, keys)
		for _, k := range keys {
			a.meta.drop(k)
		}
		keys = nil
		return err
	}
	err := listAll(ctx, a.opts.Sweep, op, prefix, func(i bucket.Info) error {
		_, known := keyEpoch(i.Key)
		if _, version := parseHistoryKey(i.Key); !known && !version {
			return nil
		}
		if keys = append(keys, i.Key); len(keys) < bucket.MaxList {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// DestroyTopic is DestroyPartition for all partitions of a topic. It goes on with the others when one fails.
func (a *Archive) DestroyTopic(ctx context.Context, topic frame.TopicID, partitions int32, delay time.Duration, now int64) (done bool, err error) {
	done = true
	var errs []error
	for p := range partitions {
		d, err := a.DestroyPartition(ctx, frame.PartitionID{Topic: topic, Partition: p}, delay, now)
		if err != nil {
			errs = append(errs, err)
		}
		done = done && d
	}
	return done && len(errs) == 0, errors.Join(errs...)
}
