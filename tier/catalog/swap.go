package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// ErrRootChanged: somebody else has swapped the root. Read it and decide again.
var ErrRootChanged = errors.New("cluster root was changed by somebody else")

// SwapRoot replaces a root that ReadRoot has returned by what edit makes of a copy of it. Version and attempt are
// set. The outcome of a put that failed is learned by reading back; while the bucket does not answer it is tried again
// until ctx ends. ErrRootChanged comes with the root that is there.
func SwapRoot(ctx context.Context, b bucket.Bucket, old Root, edit func(*Root)) (Root, error) {
	if old.etag == "" {
		return Root{}, errors.New("swap cluster root: the old one was not read from a bucket")
	}
	next := old
	next.Earlier = append([]Earlier(nil), old.Earlier...)
	edit(&next)
	next.Version, next.Attempt, next.etag = old.Version+1, cluster.NewID(), ""
	if err := next.check(); err != nil {
		return Root{}, fmt.Errorf("swap cluster root: %w", err)
	}
	raw, err := next.Encode()
	if err != nil {
		return Root{}, err
	}
	if len(raw) > maxRoot {
		return Root{}, fmt.Errorf("swap cluster root: %d bytes, at most %d are possible", len(raw), maxRoot)
	}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		info, err := b.Put(ctx, headOp(), RootKey, bucket.BytesBody(raw), bucket.Condition{IfMatch: old.etag})
		if err == nil && info.ETag != "" {
			next.etag = info.ETag
			return next, nil
		}
		if err != nil && !errors.Is(err, bucket.ErrUnavailable) && !errors.Is(err, bucket.ErrPrecondition) {
			return Root{}, fmt.Errorf("swap cluster root: %w", err)
		}
		cur, rerr := ReadRoot(ctx, b)
		switch {
		case rerr == nil && cur.Attempt == next.Attempt:
			return cur, nil
		case rerr == nil && (cur.Attempt != old.Attempt || cur.Version != old.Version):
			return cur, fmt.Errorf("swap cluster root: %w", ErrRootChanged)
		case rerr != nil && !errors.Is(rerr, bucket.ErrUnavailable):
			return Root{}, fmt.Errorf("swap cluster root: %w", errors.Join(err, rerr))
		}
		if werr := wait(ctx, pause); werr != nil {
			return Root{}, fmt.Errorf("swap cluster root: %w", errors.Join(err, rerr, werr))
		}
	}
}
