package catalog

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// RootKey is the key of the root.
const RootKey = "cluster/root"

// maxRoot bounds the root object in bytes.
const maxRoot = 1 << 20

var (
	// ErrNoRoot: the bucket holds no cluster.
	ErrNoRoot = errors.New("bucket holds no cluster")
	// ErrOtherCluster: wrapped by every *OtherClusterError.
	ErrOtherCluster = errors.New("bucket belongs to another cluster")
	// ErrUnfinished: a restore of the bucket has begun and is not finished.
	ErrUnfinished = errors.New("a restore from the bucket is not finished")
)

// Root says whose bucket this is.
type Root struct {
	ClusterID   string `json:"clusterId"`
	Incarnation string `json:"incarnation"`
	CreatedAt   int64  `json:"createdAt"` // ms since 1970, of this incarnation
	Version     int64  `json:"version"`   // rises with each swap, from 1
	Attempt     string `json:"attempt"`   // unique id of the put that wrote it
	// Earlier incarnations, oldest first.
	Earlier []Earlier `json:"earlier,omitempty"`
	// Restore is there while a restore into this incarnation is under way: nobody else may use the bucket.
	Restore *Restore `json:"restore,omitempty"`
	// Question is there when somebody has asked whether the cluster lives.
	Question *Question `json:"question,omitempty"`

	etag string // as ReadRoot found it
}

// Restore says what a restore that is not finished began with.
type Restore struct {
	Incarnation string `json:"incarnation"` // whose snapshot of topics and settings
	Revision    int64  `json:"revision"`    // of that snapshot
	StartedAt   int64  `json:"startedAt"`   // ms since 1970
}

// Earlier is an incarnation that a restore has ended.
type Earlier struct {
	ClusterID   string `json:"clusterId"`
	Incarnation string `json:"incarnation"`
	EndedAt     int64  `json:"endedAt"` // ms since 1970
}

// OtherClusterError tells an operator what to do about a bucket that another
// cluster owns.
type OtherClusterError struct {
	Have           Root   // in the bucket
	ClusterID      string // of this node
	Incarnation    string
	SameClusterOld bool // same cluster id, another incarnation
}

// Error is one sentence.
func (e *OtherClusterError) Error() string {
	if e.SameClusterOld {
		return fmt.Sprintf("the bucket belongs to incarnation %s of cluster %s, but this node's state is of incarnation %s: the cluster was restored elsewhere, remove this node's data directory or use another bucket",
			e.Have.Incarnation, e.Have.ClusterID, e.Incarnation)
	}
	return fmt.Sprintf("the bucket belongs to cluster %s, but this node is of cluster %s: use another bucket or prefix, the data directory that belongs to it, or restore the cluster from the bucket",
		e.Have.ClusterID, e.ClusterID)
}

// Unwrap makes errors.Is(err, ErrOtherCluster) true.
func (e *OtherClusterError) Unwrap() error { return ErrOtherCluster }

func headOp() bucket.Op { return bucket.Op{Class: bucket.ClassHead, Kind: bucket.KindCluster} }

func sweepOp() bucket.Op { return bucket.Op{Class: bucket.ClassSweep, Kind: bucket.KindCluster} }

// idPattern is what a cluster id or incarnation may look like: it is part of keys.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (r *Root) check() error {
	if !idPattern.MatchString(r.ClusterID) || !idPattern.MatchString(r.Incarnation) || r.Version < 1 {
		return fmt.Errorf("%w: the root lacks a cluster id, incarnation or version", ErrCorrupt)
	}
	return nil
}

// Encode returns the root's object.
func (r *Root) Encode() ([]byte, error) { return encode(kindRoot, r) }

// DecodeRoot reads a root's object.
func DecodeRoot(b []byte) (Root, error) {
	var r Root
	if err := decode(kindRoot, b, &r); err != nil {
		return Root{}, fmt.Errorf("root: %w", err)
	}
	return r, r.check()
}

// ReadRoot returns the root. ErrNoRoot: there is none; ErrCorrupt, ErrVersion, and
// the bucket's errors.
func ReadRoot(ctx context.Context, b bucket.Bucket) (Root, error) {
	raw, info, err := bucket.GetAll(ctx, b, headOp(), RootKey, maxRoot)
	if errors.Is(err, bucket.ErrNotFound) {
		return Root{}, ErrNoRoot
	}
	if err != nil {
		return Root{}, fmt.Errorf("read cluster root: %w", err)
	}
	r, err := DecodeRoot(raw)
	r.etag = info.ETag
	return r, err
}

// claim makes the root when the bucket has none, or checks it. The outcome of a
// conditional put can be unknown, so every failure is followed by a look at what
// is there, until ctx ends.
func claim(ctx context.Context, o *Options) (Root, error) {
	fresh := Root{ClusterID: o.ClusterID, Incarnation: o.Incarnation, CreatedAt: o.Now(), Version: 1, Attempt: cluster.NewID()}
	if err := fresh.check(); err != nil {
		return Root{}, fmt.Errorf("cluster id %q, incarnation %q: %w", o.ClusterID, o.Incarnation, err)
	}
	raw, err := fresh.Encode()
	if err != nil {
		return Root{}, err
	}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		root, err := ReadRoot(ctx, o.Bucket)
		switch {
		case err == nil:
			return root, root.matches(o)
		case errors.Is(err, ErrNoRoot) && !o.Create:
			return Root{}, ErrNoRoot
		case errors.Is(err, ErrNoRoot):
			_, err = o.Bucket.Put(ctx, headOp(), RootKey, bucket.BytesBody(raw), bucket.Condition{IfNoneMatch: true})
			if err == nil || errors.Is(err, bucket.ErrPrecondition) {
				// Read back: on success to see that the store keeps what it takes, on
				// the other to see whose it is (a retried put of ours answers so too).
				pause = 0
				continue
			}
		}
		if !errors.Is(err, bucket.ErrUnavailable) {
			return Root{}, fmt.Errorf("claim bucket: %w", err)
		}
		if werr := wait(ctx, pause); werr != nil {
			return Root{}, fmt.Errorf("claim bucket: %w", errors.Join(err, werr))
		}
	}
}

func (r *Root) matches(o *Options) error {
	if r.ClusterID == o.ClusterID && r.Incarnation == o.Incarnation {
		if r.Restore != nil {
			return fmt.Errorf("%w: run the same tierctl cluster restore again, with the same target", ErrUnfinished)
		}
		return nil
	}
	return &OtherClusterError{Have: *r, ClusterID: o.ClusterID, Incarnation: o.Incarnation,
		SameClusterOld: r.ClusterID == o.ClusterID}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
