package restore

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/catalog"
)

// epochGap is how far the epoch of every partition rises; see the package comment.
const epochGap = 1000

// producerGap is how far the next producer id rises: the bucket's copy is written only when topics or settings change.
const producerGap = 1 << 32

var (
	// ErrDamaged: some partitions can't be restored; Plan.Damaged says why.
	ErrDamaged = errors.New("some partitions can't be restored")
	// ErrOtherTarget: an unfinished restore of the bucket fills another etcd.
	ErrOtherTarget = errors.New("an unfinished restore of this bucket fills another etcd")
	// ErrTaken: the bucket was taken over by somebody else.
	ErrTaken = errors.New("the bucket was taken over by another restore")
)

// Settings of a run.
type Settings struct {
	ClusterID string // of the new cluster; empty: a random one
	// StartOver gives up an unfinished restore whose etcd is lost.
	StartOver bool
	// LeaveDamaged goes on without the partitions of Plan.Damaged.
	LeaveDamaged bool
}

// Result is a restored cluster.
type Result struct {
	ClusterID   string `json:"cluster_id"`
	Incarnation string `json:"incarnation"`
	Topics      int    `json:"topics"`
	Partitions  int    `json:"partitions"`
	Resumed     bool   `json:"resumed,omitempty"` // an earlier run had begun it
}

// run is one restore.
type run struct {
	o      Options
	s      Settings
	p      *Plan
	target *cluster.Restoration
	root   catalog.Root
	mark   cluster.RestoreMark
}

// Resumes tells whether Run would go on with a restore that an earlier run has begun; then nobody must be asked whether the old
// cluster lives, since the root is the new one's already. The errors are those of Run.
func Resumes(p *Plan, target *cluster.Restoration, s Settings) (bool, error) {
	m := target.Mark()
	switch u := p.root.Restore != nil; {
	case m == nil && !u:
		return false, nil
	case m == nil && s.StartOver:
		return true, nil
	case m == nil:
		return false, fmt.Errorf("%w: give that one, or start over if it is lost", ErrOtherTarget)
	case m.Incarnation == p.root.Incarnation:
		return true, nil
	case m.From == p.root.Incarnation:
		return false, nil // it died before it had the root
	}
	return false, fmt.Errorf("%w: its incarnation is %s, the unfinished restore in etcd is of %s: use an empty etcd", ErrTaken, p.root.Incarnation, m.Incarnation)
}

// Run makes a cluster of what the plan has found, in an etcd that is empty or that an earlier run has begun to fill. Every step may have been
// made by an earlier run. Errors: those of the bucket and of etcd, after which the same call can be made again; ErrDamaged, ErrOtherTarget,
// ErrTaken, ErrAlive.
func Run(ctx context.Context, o Options, p *Plan, target *cluster.Restoration, s Settings) (*Result, error) {
	o.setDefaults()
	if len(p.Damaged) > 0 && !s.LeaveDamaged {
		return nil, fmt.Errorf("%w: %d", ErrDamaged, len(p.Damaged))
	}
	resumes, err := Resumes(p, target, s)
	if err != nil {
		return nil, err
	}
	r := &run{o: o, s: s, p: p, target: target, root: p.root}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	if err := r.takeRoot(ctx); err != nil {
		return nil, err
	}
	if r.root.Restore != nil { // else it was finished but for the mark
		if err := r.fill(ctx); err != nil {
			return nil, err
		}
	}
	if err := target.Finish(ctx); err != nil {
		return nil, err
	}
	out := &Result{ClusterID: r.mark.ClusterID, Incarnation: r.mark.Incarnation, Topics: len(p.Topics), Resumed: resumes}
	for _, t := range p.Topics {
		out.Partitions += len(t.Partitions)
	}
	return out, nil
}

// begin is step 1.
func (r *run) begin(ctx context.Context) error {
	if m := r.target.Mark(); m != nil {
		r.mark = *m
		return nil
	}
	r.mark = cluster.RestoreMark{ClusterID: r.s.ClusterID, Incarnation: cluster.NewID(), From: r.root.Incarnation, StartedAt: r.o.Now()}
	if r.mark.ClusterID == "" {
		r.mark.ClusterID = cluster.NewID()
	}
	return r.target.Begin(ctx, r.mark)
}

// takeRoot is step 2.
func (r *run) takeRoot(ctx context.Context) error {
	for {
		if r.root.Incarnation == r.mark.Incarnation {
			return nil
		}
		if r.root.Incarnation != r.mark.From {
			return fmt.Errorf("%w: its incarnation is %s", ErrTaken, r.root.Incarnation)
		}
		if q, then := r.root.Question, r.p.root.Question; q != nil && q.Answer != "" && (then == nil || *q != *then) {
			return fmt.Errorf("%w: %s", ErrAlive, q.Answer) // later than it was waited for
		}
		next, err := catalog.SwapRoot(ctx, r.o.Bucket, r.root, func(n *catalog.Root) {
			n.Earlier = append(n.Earlier, catalog.Earlier{ClusterID: n.ClusterID, Incarnation: n.Incarnation, EndedAt: r.mark.StartedAt})
			n.ClusterID, n.Incarnation, n.CreatedAt, n.Question = r.mark.ClusterID, r.mark.Incarnation, r.mark.StartedAt, nil
			n.Restore = &catalog.Restore{Incarnation: r.p.snapshot.Incarnation, Revision: r.p.snapshot.Revision, StartedAt: r.mark.StartedAt}
		})
		if err != nil && !errors.Is(err, catalog.ErrRootChanged) {
			return err
		}
		r.root = next
	}
}

// fill is steps 3 to 7.
func (r *run) fill(ctx context.Context) error {
	if err := r.seal(ctx); err != nil {
		return err
	}
	assignments, err := r.renewAll(ctx)
	if err != nil {
		return err
	}
	seed := r.seed(assignments)
	if err := r.target.Write(ctx, seed, func(done, all int) { r.o.Progress("write cluster state", done, all) }); err != nil {
		return err
	}
	snapshot := &catalog.Snapshot{ClusterID: r.mark.ClusterID, Incarnation: r.mark.Incarnation, Revision: r.target.Revision(), WrittenAt: r.o.Now(),
		NextProducerID: seed.NextProducerID, Content: catalog.Content{Deleted: seed.Deleted, Config: r.p.snapshot.Config}}
	for _, t := range r.p.Topics {
		snapshot.Topics = append(snapshot.Topics, t.spec)
	}
	if err := catalog.WriteSnapshot(ctx, r.o.Bucket, snapshot); err != nil {
		return err
	}
	return r.releaseRoot(ctx)
}

// releaseRoot is step 7.
func (r *run) releaseRoot(ctx context.Context) error {
	next, err := catalog.SwapRoot(ctx, r.o.Bucket, r.root, func(n *catalog.Root) { n.Restore = nil })
	if errors.Is(err, catalog.ErrRootChanged) && next.Incarnation == r.mark.Incarnation && next.Restore == nil {
		return nil // another process of the same restore
	}
	if errors.Is(err, catalog.ErrRootChanged) {
		return fmt.Errorf("%w: its incarnation is %s", ErrTaken, next.Incarnation)
	}
	return err
}

// seed is what etcd will hold.
func (r *run) seed(assignments map[frame.PartitionID]cluster.Assignment) *cluster.Seed {
	s := &cluster.Seed{Deleted: r.p.deleted, Configs: r.p.configs(), NextProducerID: min(r.p.snapshot.NextProducerID, math.MaxInt64-producerGap) + producerGap, Assignments: assignments}
	for _, t := range r.p.Topics {
		x := &cluster.Topic{Name: t.Name, ID: t.ID, Partitions: t.spec.Partitions, Overrides: t.spec.Configs, Internal: t.Internal,
			Deleting: t.Deleting, CreatedAt: t.spec.CreatedAt, Version: max(t.spec.Version, 1)}
		if t.Deleting {
			x.DeletedAt = max(t.deletedAt, r.p.SnapshotAt, 1)
		}
		s.Topics = append(s.Topics, x)
	}
	return s
}
