package catalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Images is a source of cluster images; *cluster.Client is one.
type Images interface {
	Image() *cluster.Image
	Wait(ctx context.Context, after int64) (*cluster.Image, error)
}

// Options of a Catalog.
type Options struct {
	Bucket      bucket.Bucket
	Images      Images // for Run
	ClusterID   string
	Incarnation string
	// Create lets Open make the root of an empty bucket. It should be off when the
	// cluster has topics: their bucket is not empty, so this must be the wrong one.
	Create bool
	Quiet  time.Duration // a snapshot waits until nothing has changed this long; default 1 s
	Most   time.Duration // but no longer than this after the first change; default 10 s
	Keep   int           // snapshots that stay; default 16
	Look   time.Duration // how often the root is looked at; default LookEvery
	Node   string        // who this is, for people
	Now    func() int64  // ms since 1970; nil: the system's clock
}

// Catalog writes the bucket's copy of the cluster.
type Catalog struct {
	o    Options
	root Root

	mu     sync.Mutex
	status Status
}

// Status tells how current the bucket's copy is.
type Status struct {
	Revision  int64 // of the newest snapshot that is known to be there, -1: none yet
	WrittenAt int64 // ms since 1970 when it was written
	Behind    bool  // topics or settings have changed since
	Err       error // why the last attempt failed, nil when it did not
}

// Open makes or checks the root. *OtherClusterError: the bucket is another
// cluster's; ErrNoRoot: it is empty and Create is off. It tries until ctx ends when
// the bucket does not answer.
func Open(ctx context.Context, o Options) (*Catalog, error) {
	if o.Bucket == nil {
		return nil, errors.New("catalog: Bucket must be set")
	}
	if o.Quiet <= 0 {
		o.Quiet = time.Second
	}
	if o.Most <= 0 {
		o.Most = 10 * time.Second
	}
	if o.Keep <= 0 {
		o.Keep = 16
	}
	if o.Look <= 0 {
		o.Look = LookEvery
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	root, err := claim(ctx, &o)
	if err != nil {
		return nil, err
	}
	return &Catalog{o: o, root: root, status: Status{Revision: -1}}, nil
}

// Root returns the root as Open found it.
func (c *Catalog) Root() Root { return c.root }

// Status returns how current the bucket's copy is. Before the first Run it is
// not known.
func (c *Catalog) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *Catalog) setStatus(change func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.status)
}

// Run writes a snapshot when topics or settings have changed, until ctx ends, and
// answers who asks in the root whether the cluster lives. A bucket that does not
// answer is tried again for ever, with growing pauses; other faults too, since the
// cluster goes on without its copy. It returns nil when ctx ends, an error when the
// images end, and an *OtherClusterError when the bucket was given to another cluster.
func (c *Catalog) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	guarded := make(chan error, 1)
	go func() {
		err := c.guard(ctx)
		if err != nil {
			c.setStatus(func(s *Status) { s.Err, s.Behind = err, true })
			cancel()
		}
		guarded <- err
	}()
	err := c.follow(ctx)
	cancel()
	return errors.Join(<-guarded, err)
}

func (c *Catalog) follow(ctx context.Context) error {
	const least, most = time.Second, time.Minute
	pause := least
	var last string         // digest of the newest snapshot
	var seen *cluster.Image // the image last was taken from
	known := false
	for {
		err := func() (err error) {
			if !known {
				if last, err = c.newest(ctx); err != nil {
					return err
				}
				known = true
			}
			img := c.o.Images.Image()
			if last, err = c.write(ctx, img, last); err != nil {
				return err
			}
			seen = img
			return nil
		}()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			c.setStatus(func(s *Status) { s.Err, s.Behind = err, true })
			if wait(ctx, pause) != nil {
				return nil
			}
			pause = min(2*pause, most)
			continue
		}
		pause = least
		if err := c.nextChange(ctx, seen); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("catalog: %w", err)
		}
	}
}

// nextChange returns when topics or settings differ from an image and have then
// been quiet, or have not been for too long.
func (c *Catalog) nextChange(ctx context.Context, seen *cluster.Image) error {
	img := seen
	for !changed(img, seen) {
		var err error
		if img, err = c.o.Images.Wait(ctx, img.Revision()); err != nil {
			return err
		}
	}
	c.setStatus(func(s *Status) { s.Behind = true })
	limit, cancel := context.WithTimeout(ctx, c.o.Most)
	defer cancel()
	for {
		quiet, cancel := context.WithTimeout(limit, c.o.Quiet)
		next, err := c.unlike(quiet, img)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && quiet.Err() != nil:
			return nil // quiet, or for too long not
		case err != nil:
			return err
		}
		img = next
	}
}

// unlike waits for an image whose topics or settings differ from those of another.
func (c *Catalog) unlike(ctx context.Context, img *cluster.Image) (*cluster.Image, error) {
	for next := img; ; {
		var err error
		if next, err = c.o.Images.Wait(ctx, next.Revision()); err != nil {
			return nil, err
		}
		if changed(next, img) {
			return next, nil
		}
	}
}

func changed(img, old *cluster.Image) bool {
	for range img.ChangedTopics(old) {
		return true
	}
	if !sameConfigs(img, old) {
		return true
	}
	a, b := img.Deleted(), old.Deleted()
	if len(a) != len(b) {
		return true
	}
	for i := range a {
		if a[i].ID != b[i].ID {
			return true
		}
	}
	return false
}

// newest returns the digest of the newest snapshot, "" when there is none.
func (c *Catalog) newest(ctx context.Context) (string, error) {
	s, _, err := Latest(ctx, c.o.Bucket, headOp(), c.root.Incarnation)
	if errors.Is(err, ErrNoSnapshot) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	c.setStatus(func(st *Status) { st.Revision, st.WrittenAt = s.Revision, s.WrittenAt })
	return s.Digest, nil
}

// write writes a snapshot of an image unless it equals the last one, and removes
// old ones. It returns the digest of what is there now.
func (c *Catalog) write(ctx context.Context, img *cluster.Image, last string) (string, error) {
	if img.ClusterID() != c.root.ClusterID || img.Meta().Incarnation != c.root.Incarnation {
		return last, fmt.Errorf("write catalog snapshot: the image is of cluster %s, incarnation %s: %w",
			img.ClusterID(), img.Meta().Incarnation, ErrOtherCluster)
	}
	s, err := FromImage(img, c.o.Now())
	if err != nil {
		return last, err
	}
	if s.Digest == last {
		c.setStatus(func(st *Status) { st.Behind, st.Err = false, nil })
		return last, nil
	}
	raw, err := s.Encode()
	if err != nil {
		return last, err
	}
	// Create-only: the key is new, and what is there already is a snapshot of the
	// same revision.
	_, err = c.o.Bucket.Put(ctx, headOp(), SnapshotKey(s.Incarnation, s.Revision), bucket.BytesBody(raw), bucket.Condition{IfNoneMatch: true})
	if errors.Is(err, bucket.ErrPrecondition) {
		err = c.sameThere(ctx, s)
	}
	if err != nil {
		return last, fmt.Errorf("write catalog snapshot: %w", err)
	}
	c.setStatus(func(st *Status) { *st = Status{Revision: s.Revision, WrittenAt: s.WrittenAt} })
	return s.Digest, c.prune(ctx)
}

// sameThere checks an object that was there before this put.
func (c *Catalog) sameThere(ctx context.Context, s *Snapshot) error {
	have, err := ReadSnapshot(ctx, c.o.Bucket, headOp(), s.Incarnation, s.Revision)
	if err != nil {
		return err
	}
	if have.Digest != s.Digest {
		return fmt.Errorf("%w: revision %d is there with another content", ErrCorrupt, s.Revision)
	}
	return nil
}

// prune removes all but the newest snapshots of this incarnation. Snapshots of
// earlier incarnations stay: they are what was restored from.
func (c *Catalog) prune(ctx context.Context) error {
	revisions, err := Revisions(ctx, c.o.Bucket, sweepOp(), c.root.Incarnation)
	if err != nil {
		return err
	}
	for len(revisions) > c.o.Keep {
		n := min(len(revisions)-c.o.Keep, bucket.MaxList)
		keys := make([]string, n)
		for i, rev := range revisions[:n] {
			keys[i] = SnapshotKey(c.root.Incarnation, rev)
		}
		if err := c.o.Bucket.Delete(ctx, sweepOp(), keys); err != nil {
			return fmt.Errorf("remove old catalog snapshots: %w", err)
		}
		revisions = revisions[n:]
	}
	return nil
}

// Spec returns what is needed to create a topic again under its id.
func (t *Topic) Spec() cluster.TopicSpec {
	return cluster.TopicSpec{Name: t.Name, ID: t.ID, Partitions: t.Partitions, Configs: t.Configs, Internal: t.Internal}
}

// TopicIDs returns the ids of all topics of a snapshot, deleted ones included.
func (s *Snapshot) TopicIDs() map[frame.TopicID]string {
	m := make(map[frame.TopicID]string, len(s.Topics)+len(s.Deleted))
	for i := range s.Topics {
		m[s.Topics[i].ID] = s.Topics[i].Name
	}
	for i := range s.Deleted {
		m[s.Deleted[i].ID] = s.Deleted[i].Name
	}
	return m
}
