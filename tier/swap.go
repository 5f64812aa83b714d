package tier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

func headOp(topic string) bucket.Op {
	return bucket.Op{Class: bucket.ClassHead, Topic: topic, Kind: bucket.KindHead}
}

// Load returns the partition's head. ErrNoHead: there is none. ErrHeadRegressed: the bucket shows an older one than before.
func (a *Archive) Load(ctx context.Context, id frame.PartitionID) (*Head, error) {
	return a.load(ctx, id, "")
}

func (a *Archive) load(ctx context.Context, id frame.PartitionID, topic string) (*Head, error) {
	key := HeadKey(id)
	before := a.lastSeen(id) // before the read: a swap may come between the read and its check
	h, info, err := readTwice(func() (*Head, bucket.Info, error) {
		b, info, err := bucket.GetAll(ctx, a.opts.Heads, headOp(topic), key, maxEnvelope)
		if err != nil {
			return nil, info, err
		}
		h, err := DecodeHead(b)
		return h, info, err
	})
	if errors.Is(err, bucket.ErrNotFound) {
		return nil, checkMissing(id, before)
	}
	if err != nil {
		return nil, withKey(err, key)
	}
	if h.ID != id {
		return nil, &CorruptError{Key: key, Part: "head", Reason: "it belongs to " + h.ID.String()}
	}
	h.etag = info.ETag
	if h.Version < before.version || h.Version == before.version && h.Attempt != before.attempt {
		return nil, fmt.Errorf("head of %v has version %d (%s), version %d (%s) was seen: %w", id, h.Version, h.Attempt, before.version, before.attempt, ErrHeadRegressed)
	}
	a.remember(h)
	return h, nil
}

// readTwice gives bytes that were damaged on the way a second chance.
func readTwice[T any](read func() (T, bucket.Info, error)) (T, bucket.Info, error) {
	v, info, err := read()
	if errors.Is(err, ErrCorrupt) {
		v, info, err = read()
	}
	return v, info, err
}

func (a *Archive) lastSeen(id frame.PartitionID) seen {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[id]
}

// remember notes a head that is or was in the bucket. Two heads of one version cannot be: each attempt replaces one version.
func (a *Archive) remember(h *Head) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.seen[h.ID]; h.Version > s.version {
		a.seen[h.ID] = seen{version: h.Version, attempt: h.Attempt, tombstone: h.Tombstone, tried: s.tried}
	}
}

// trying notes that a put of a version begins.
func (a *Archive) trying(id frame.PartitionID, version int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.seen[id]
	s.tried = max(s.tried, version)
	a.seen[id] = s
}

// newest returns old, or the head in the bucket when a newer one was seen: a caller whose last swap was in doubt, or who kept an
// old head, would otherwise try in vain for ever.
func (a *Archive) newest(ctx context.Context, id frame.PartitionID, old *Head) (*Head, error) {
	if old.Version >= a.lastSeen(id).version {
		return old, nil
	}
	return a.Load(ctx, id)
}

func checkMissing(id frame.PartitionID, before seen) error {
	if before.version > 0 && !before.tombstone {
		return fmt.Errorf("head of %v is missing, version %d was seen: %w", id, before.version, ErrHeadRegressed)
	}
	return fmt.Errorf("partition %v: %w", id, ErrNoHead)
}

// Swap replaces old by what edit makes of a copy of it; old == nil creates the head. edit is called once, must be pure, and sees
// version and attempt already set. The bytes are frozen then: they are sent again until the outcome is known or ctx ends.
//
// It returns the new head when it won. ErrConflict comes with the newer head, which another attempt of the same owner (or of an
// owner that this attempt would have followed) wrote. ErrFenced comes with the head of the other owner. ErrInDoubt: ctx ended
// first.
func (a *Archive) Swap(ctx context.Context, id frame.PartitionID, old *Head, edit func(*Head) error) (*Head, error) {
	next := &Head{Format: headFormat, ID: id, Version: 1, MaxTimestamp: -1, Cluster: a.opts.ClusterID}
	cond := bucket.Condition{IfNoneMatch: true}
	if old != nil {
		if old.etag == "" || old.ID != id {
			return nil, fmt.Errorf("swap head of %v: the old head (%v) was not loaded", id, old.ID)
		}
		if old.features != 0 {
			return nil, fmt.Errorf("swap head of %v: %w", id, featureError("head write features", uint64(old.features)))
		}
		if err := a.checkIncarnation(old); err != nil {
			return nil, err
		}
		next, cond = old.Clone(), bucket.Condition{IfMatch: old.etag}
		next.Version++
	}
	next.Attempt, next.etag = uid(), ""
	next.ClusterIncarnation = a.opts.ClusterIncarnation
	version, attempt := next.Version, next.Attempt
	if err := edit(next); err != nil {
		return nil, err
	}
	next.ID, next.Attempt, next.etag = id, attempt, ""
	next.Version = max(next.Version, version)
	next.trimEpochs()
	next.raiseCeiling()
	if err := next.check(); err != nil {
		return nil, fmt.Errorf("swap head of %v: %w", id, err)
	}
	frozen, err := next.encode()
	if err != nil {
		return nil, fmt.Errorf("swap head of %v: %w", id, err)
	}
	return a.send(ctx, old, next, bucket.BytesBody(frozen), cond)
}

// send puts the frozen bytes until it knows what became of them.
func (a *Archive) send(ctx context.Context, old, next *Head, frozen bucket.Body, cond bucket.Condition) (*Head, error) {
	a.trying(next.ID, next.Version)
	pause := a.opts.RetryMin
	inDoubt := false // some put may have happened
	for {
		info, err := a.opts.Heads.Put(ctx, headOp(next.Topic), HeadKey(next.ID), frozen, cond)
		if err == nil && info.ETag != "" {
			next.etag = info.ETag
			a.remember(next)
			return next, nil
		}
		if err != nil && !unknownOutcome(err) && !inDoubt {
			return nil, fmt.Errorf("swap head of %v: %w", next.ID, err)
		}
		inDoubt = true
		h, known, rerr := a.outcome(ctx, old, next)
		if known {
			return h, rerr
		}
		if err == nil {
			err = rerr
		}
		if serr := sleep(ctx, jitter(pause)); serr != nil {
			return nil, fmt.Errorf("swap head of %v: %w: %w", next.ID, ErrInDoubt, errors.Join(serr, err, rerr))
		}
		pause = min(2*pause, a.opts.RetryMax)
	}
}

// unknownOutcome reports whether a put that failed with err may have happened, or have been beaten. Everything else says that
// the store refused it.
func unknownOutcome(err error) bool {
	for _, definite := range []error{bucket.ErrDenied, bucket.ErrConfig, bucket.ErrKey, bucket.ErrTooLarge, bucket.ErrRefused} {
		if errors.Is(err, definite) {
			return false
		}
	}
	return true
}

// outcome reads the head back. known is false when the head is still the old one, or could not be read.
func (a *Archive) outcome(ctx context.Context, old, next *Head) (h *Head, known bool, err error) {
	cur, err := a.load(ctx, next.ID, next.Topic)
	switch {
	case errors.Is(err, ErrNoHead):
		if old == nil {
			return nil, false, err // nothing there yet: send again
		}
		return nil, true, err // destroyed meanwhile
	case errors.Is(err, ErrHeadRegressed), errors.Is(err, ErrFeature):
		return nil, true, err
	case err != nil:
		return nil, false, err
	case cur.Attempt == next.Attempt:
		next.etag = cur.etag
		return next, true, nil
	case old != nil && cur.Attempt == old.Attempt && cur.Version == old.Version:
		return nil, false, nil
	}
	return cur, true, lost(cur, next)
}

// checkIncarnation refuses a head that belongs to another life of the cluster: after a restore the old one must not go on.
func (a *Archive) checkIncarnation(h *Head) error {
	if h.ClusterIncarnation == a.opts.ClusterIncarnation || h.ClusterIncarnation == a.opts.PreviousIncarnation && h.ClusterIncarnation != "" {
		return nil
	}
	return fmt.Errorf("head of %v belongs to cluster incarnation %q, this is %q: %w", h.ID, h.ClusterIncarnation, a.opts.ClusterIncarnation, ErrFenced)
}

// lost says by whom next was beaten.
func lost(cur, next *Head) error {
	switch {
	case cur.Tombstone && !next.Tombstone:
		return fmt.Errorf("head of %v: %w", cur.ID, ErrTombstone)
	case cur.ClusterIncarnation != next.ClusterIncarnation:
		return fmt.Errorf("head of %v belongs to cluster incarnation %q, not %q: %w", cur.ID, cur.ClusterIncarnation, next.ClusterIncarnation, ErrFenced)
	case cur.Epoch > next.Epoch || cur.Epoch == next.Epoch && cur.OwnerOf() != next.OwnerOf():
		return fmt.Errorf("head of %v is held by broker %d (%s) in epoch %d, not by broker %d (%s) in epoch %d: %w",
			cur.ID, cur.Owner, cur.OwnerIncarnation, cur.Epoch, next.Owner, next.OwnerIncarnation, next.Epoch, ErrFenced)
	}
	return fmt.Errorf("head of %v is at version %d already: %w", cur.ID, cur.Version, ErrConflict)
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxConflicts bounds how often a change is applied again to a newer head.
const maxConflicts = 16

// change applies a change until it wins: plan looks at a head, may read or write the bucket, and returns the edit. ErrFenced and
// all other errors end it; the newest head that is known comes with them. A nil edit means that there is nothing to change.
func (a *Archive) change(ctx context.Context, id frame.PartitionID, old *Head, o Owner, plan func(*Head) (func(*Head) error, error)) (*Head, error) {
	if old == nil {
		return nil, fmt.Errorf("partition %v: %w", id, ErrNoHead)
	}
	given := old.Version
	old, err := a.newest(ctx, id, old)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		if err := old.heldBy(o); err != nil {
			return old, err
		}
		edit, err := plan(old)
		if err != nil && old.Version != given {
			return old, fmt.Errorf("%w: %w", ErrConflict, err) // what was planned for one head doesn't fit the newer one
		}
		if err != nil || edit == nil {
			return old, err
		}
		h, err := a.Swap(ctx, id, old, edit)
		if h == nil {
			h = old // the newest one that is known
		}
		if !errors.Is(err, ErrConflict) || try == maxConflicts {
			return h, err
		}
		old = h
	}
}

// heldBy checks that o may change the head.
func (h *Head) heldBy(o Owner) error {
	if h.Tombstone {
		return fmt.Errorf("head of %v: %w", h.ID, ErrTombstone)
	}
	if h.OwnerOf() != o {
		return fmt.Errorf("head of %v is held by broker %d (%s) in epoch %d, not by broker %d (%s) in epoch %d: %w",
			h.ID, h.Owner, h.OwnerIncarnation, h.Epoch, o.Broker, o.Incarnation, o.Epoch, ErrFenced)
	}
	return nil
}
