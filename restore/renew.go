package restore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// seal is step 3.
func (r *run) seal(ctx context.Context) error {
	ids, err := wal.List(ctx, r.o.Bucket)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Parallel)
	count := counter{}
	for _, id := range ids {
		g.Go(func() error { return r.sealOne(gctx, id, &count, len(ids)) })
	}
	return g.Wait()
}

func (r *run) sealOne(ctx context.Context, id wal.StreamID, count *counter, all int) error {
	_, err := wal.Seal(ctx, r.o.Bucket, bucket.Op{Class: bucket.ClassHead}, id, r.mark.Incarnation)
	r.o.Progress("seal WAL streams", count.add(1), all)
	return err
}

// renewed stands in heads as their owner until a broker claims them.
var renewed = tier.Owner{Broker: cluster.NoBroker, Incarnation: "restore"}

// maxRaces bounds how often an old owner may be first at one head.
const maxRaces = 64

// renewer swaps heads.
type renewer struct {
	*run
	lives map[string]*tier.Archive // by the incarnation whose heads it takes over

	mu          sync.Mutex
	assignments map[frame.PartitionID]cluster.Assignment
}

// renewAll is step 4. It returns under which epochs partitions go on.
func (r *run) renewAll(ctx context.Context) (_ map[frame.PartitionID]cluster.Assignment, err error) {
	n := &renewer{run: r, lives: map[string]*tier.Archive{}, assignments: map[frame.PartitionID]cluster.Assignment{}}
	for life := range lives(&r.root) {
		n.lives[life] = tier.New(tier.Options{Heads: r.o.Bucket, ClusterID: r.mark.ClusterID, ClusterIncarnation: r.mark.Incarnation, PreviousIncarnation: life})
	}
	defer func() {
		for _, a := range n.lives {
			err = errors.Join(err, a.Close())
		}
	}()
	all := len(r.p.dead)
	for _, t := range r.p.Topics {
		all += len(t.Partitions)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Parallel)
	count := counter{}
	for _, id := range r.p.dead {
		g.Go(func() error {
			_, _, err := n.renew(gctx, id, "", false)
			r.o.Progress("take over heads", count.add(1), all)
			return err
		})
	}
	for _, t := range r.p.Topics {
		for _, q := range t.Partitions {
			g.Go(func() error {
				err := n.partition(gctx, t, q)
				r.o.Progress("take over heads", count.add(1), all)
				return err
			})
		}
	}
	return n.assignments, g.Wait()
}

func (n *renewer) partition(ctx context.Context, t *Topic, q *Partition) error {
	a := cluster.Assignment{Owner: cluster.NoBroker, Target: cluster.NoBroker, State: cluster.Unassigned, Epoch: epochGap, Safe: true, Jump: true}
	if !q.damaged {
		h, jump, err := n.renew(ctx, t.id(q), t.Name, !t.Deleting)
		if err != nil {
			return fmt.Errorf("take over partition %d of topic %s: %w", q.Partition, t.Name, err)
		}
		a.Jump = jump
		if h != nil {
			a.Epoch = h.Epoch
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.assignments[t.id(q)] = a
	return nil
}

// renew makes a head the new cluster's. jump: who adopts its pending streams must jump. A nil head: there is none, and create is off.
func (n *renewer) renew(ctx context.Context, id frame.PartitionID, topic string, create bool) (h *tier.Head, jump bool, err error) {
	own := n.lives[n.mark.Incarnation]
	r := tier.Renewal{Cluster: n.mark.ClusterID, By: renewed, Gap: epochGap, Topic: topic}
	for range maxRaces {
		old, err := own.Load(ctx, id)
		archive := own
		switch {
		case errors.Is(err, tier.ErrNoHead) && !create:
			return nil, false, nil
		case errors.Is(err, tier.ErrNoHead):
			old = nil
		case err != nil:
			return nil, false, err
		case old.ClusterIncarnation == n.mark.Incarnation:
			return old, len(old.Pending) > 0, nil
		default:
			if archive = n.lives[old.ClusterIncarnation]; archive == nil {
				return nil, false, fmt.Errorf("its head belongs to incarnation %s of cluster %s: %w", old.ClusterIncarnation, old.Cluster, ErrTaken)
			}
		}
		h, err := archive.Swap(ctx, id, old, func(h *tier.Head) error {
			skipped, err := h.Renew(r)
			jump = !skipped
			return err
		})
		if err == nil {
			return h, jump, nil
		}
		if !errors.Is(err, tier.ErrConflict) && !errors.Is(err, tier.ErrFenced) && !errors.Is(err, tier.ErrNoHead) {
			return nil, false, err
		}
	}
	return nil, false, fmt.Errorf("somebody else changes its head again and again: %w", ErrAlive)
}
