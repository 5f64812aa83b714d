package partition

import (
	"context"
	"errors"
	"fmt"

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
	for _, id := range ids {
		if b, ok := img.Broker(id.Broker); ok && b.Incarnation == id.Incarnation || id == s.stream.ID() {
			continue
		}
		err = errors.Join(err, s.sweepStream(ctx, img, id))
	}
	if err != nil && s.ctx.Err() == nil {
		s.event(Warn, nil, "objects of WAL streams that have ended could not be deleted yet", err)
	}
}

func (s *Set) sweepStream(ctx context.Context, img *cluster.Image, id wal.StreamID) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.BucketCallTimeout)
	defer cancel()
	sealed, err := wal.Find(ctx, s.o.WAL.Bucket, streamOp, id)
	if errors.Is(err, wal.ErrNotSealed) {
		if newest := s.image.Load(); !s.unregistered(newest, id) {
			return nil
		}
		sealed, err = wal.Seal(ctx, s.o.WAL.Bucket, streamOp, id, s.o.WAL.ClusterIncarnation)
	}
	if err == nil {
		_, err = sealed.Sweep(ctx, func(ctx context.Context, e wal.Entry) (bool, error) { return s.entryDead(ctx, img, id, &e) })
	}
	if err != nil {
		return fmt.Errorf("WAL stream %v: %w", id, err)
	}
	return nil
}

// unregistered says whether a run has been away from the cluster in two looks in a row: one that is about to register
// has not begun its stream when the first look finds the stream.
func (s *Set) unregistered(img *cluster.Image, id wal.StreamID) bool {
	if b, ok := img.Broker(id.Broker); ok && b.Incarnation == id.Incarnation {
		delete(s.strays, id)
		return false
	}
	seen := s.strays[id]
	s.strays[id] = true
	return seen
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
