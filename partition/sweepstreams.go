package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// streamOp labels what is done to WAL streams.
var streamOp = bucket.Op{Class: "wal", Kind: bucket.KindWAL}

// sweepOwnStream deletes what nobody needs any more of this run's WAL stream.
func (s *Set) sweepOwnStream() {
	if s.stream == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.o.BucketCallTimeout)
	defer cancel()
	if err := s.stream.sweep(ctx, s.o.Now()); err != nil && s.ctx.Err() == nil {
		s.event(Warn, nil, "old objects of the WAL stream could not be deleted yet", err)
	}
}

// sweepStreams deletes the objects of streams that have ended, of which no partition needs anything any more. One broker
// does it for all. A run that is gone from the cluster has lost its lease, so its stream may be sealed by anybody: one that
// no partition had to adopt would stay for ever otherwise.
func (s *Set) sweepStreams(ctx context.Context, img *cluster.Image, now int64) {
	if s.stream == nil || img == nil || !s.mayDestroy(img) || !passed(s.streamsSwept, now, s.o.SweepDelay.Milliseconds()) {
		return
	}
	s.streamsSwept = now
	ids, err := wal.List(ctx, s.o.WAL.Bucket)
	if err == nil {
		maps.DeleteFunc(s.dying, func(id wal.StreamID, _ map[uint64]int64) bool { return !slices.Contains(ids, id) })
	}
	for _, id := range ids {
		if b, ok := img.Broker(id.Broker); ok && b.Incarnation == id.Incarnation || id == s.stream.ID() {
			continue
		}
		err = errors.Join(err, s.sweepStream(ctx, img, id, now))
	}
	if err != nil && s.ctx.Err() == nil {
		s.event(Warn, nil, "objects of WAL streams that have ended could not be deleted yet", err)
	}
}

func (s *Set) sweepStream(ctx context.Context, img *cluster.Image, id wal.StreamID, now int64) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.BucketCallTimeout)
	defer cancel()
	sealed, err := wal.Find(ctx, s.o.WAL.Bucket, streamOp, id)
	if errors.Is(err, wal.ErrNotSealed) {
		// An image may be old, and to seal the stream of a run that lives ends that run. etcd knows: a stream is begun after its
		// run has registered, so one that isn't registered now never will be again.
		lives, lerr := s.o.Cluster.Lives(ctx, id.Broker, id.Incarnation)
		if lerr != nil {
			return fmt.Errorf("ask whether broker %d (%s) lives: %w", id.Broker, id.Incarnation, lerr)
		}
		if lives {
			return nil
		}
		sealed, err = wal.Seal(ctx, s.o.WAL.Bucket, streamOp, id, s.o.WAL.ClusterIncarnation)
	}
	if err == nil {
		dead := func(ctx context.Context, e wal.Entry) (bool, error) { return s.entryDead(ctx, img, id, &e) }
		_, err = sealed.Sweep(ctx, dead, func(seq uint64) bool { return s.ripe(id, seq, now) })
	}
	if err != nil {
		return fmt.Errorf("WAL stream %v: %w", id, err)
	}
	return nil
}

// ripe says whether nobody has needed an object for the sweep's delay: a head names it no more, but readers may hold an older
// one. What isn't known to be dying dies from now on.
func (s *Set) ripe(id wal.StreamID, seq uint64, now int64) bool {
	m := s.dying[id]
	if m == nil {
		m = map[uint64]int64{}
		s.dying[id] = m
	}
	since, ok := m[seq]
	if !ok || now < since {
		m[seq] = now
		return false
	}
	if now-since < s.o.SweepDelay.Milliseconds() {
		return false
	}
	if delete(m, seq); len(m) == 0 {
		delete(s.dying, id)
	}
	return true
}

// entryDead says whether nobody will ever need a part of an object again.
func (s *Set) entryDead(ctx context.Context, img *cluster.Image, id wal.StreamID, e *wal.Entry) (bool, error) {
	h, err := s.o.Archive.Load(ctx, e.ID)
	switch {
	case errors.Is(err, tier.ErrNoHead):
		// The stream is written after the head, so the head was destroyed. With a topic that exists that is not understood, and
		// the part is kept; an image that lags may lack a new topic, but its partitions have heads.
		return img.TopicByID(e.ID.Topic) == nil, nil
	case err != nil:
		return false, err
	}
	held, err := s.o.Archive.HoldsWAL(ctx, h, tier.PendingStream{Broker: id.Broker, Incarnation: id.Incarnation, Epoch: e.Epoch}, e.Key, e.Start, e.End)
	return !held, err
}
