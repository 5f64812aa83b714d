package partition

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// Apply hands the set a newer image of the cluster. It returns at once; the reconcile loop moves the partitions.
func (s *Set) Apply(img *cluster.Image) {
	s.image.Store(img)
	select {
	case s.images <- struct{}{}:
	default:
	}
}

// retryReconcile is how soon a step that failed (etcd or the bucket didn't answer) is tried again.
const retryReconcile = time.Second

// reconcileLoop makes this broker's partitions follow the image: Starting ones are recovered and enter Writing, lost
// ones are closed, deleted ones leave the bucket. One pass handles all partitions together, so that ten thousand of
// them cost a few transactions.
func (s *Set) reconcileLoop() {
	var retry <-chan time.Time
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.images:
		case <-retry:
		}
		retry = nil
		if err := s.reconcile(s.image.Load()); err != nil && s.ctx.Err() == nil {
			s.event(Warn, nil, "partitions could not follow the cluster state yet; trying again", err)
			retry = time.After(retryReconcile)
		}
	}
}

// plan is what one pass has to do.
type plan struct {
	settings []settings
	starting []start
	deleting []*Partition
}

type settings struct {
	p *Partition
	t *cluster.Topic
}

type start struct {
	p *Partition
	a cluster.Assignment
}

func (s *Set) reconcile(img *cluster.Image) error {
	if img == nil {
		return nil
	}
	if err := s.settleDoubt(img); err != nil {
		return err
	}
	var pl plan
	mine := map[frame.PartitionID]bool{}
	for id, a := range img.Assignments() {
		if a.Owner != s.o.Broker || a.OwnerIncarnation != s.o.Incarnation {
			continue
		}
		t := img.TopicByID(id.Topic)
		if t == nil {
			continue
		}
		mine[id] = true
		s.follow(&pl, id, a, t)
	}
	s.closeOthers(img, mine)
	if err := s.takeSettings(&pl); err != nil {
		return err
	}
	return errors.Join(s.startAll(pl.starting), s.deleteAll(img, pl.deleting))
}

// follow decides what one assignment of this broker asks for.
func (s *Set) follow(pl *plan, id frame.PartitionID, a cluster.Assignment, t *cluster.Topic) {
	p := s.ensure(id, t.Name)
	if *p.cfg.Load() != t.Config || p.Topic() != t.Name {
		pl.settings = append(pl.settings, settings{p, t})
	}
	if t.Deleting {
		if a.State != cluster.Deleted {
			pl.deleting = append(pl.deleting, p)
		}
		return
	}
	switch a.State {
	case cluster.Starting, cluster.Recovering:
		p.mu.Lock()
		ahead := p.state == Writing && p.epoch == a.Epoch // this image is older than our own transition
		p.mu.Unlock()
		if !ahead {
			pl.starting = append(pl.starting, start{p, a})
		}
	case cluster.Writing:
		p.mu.Lock()
		if p.epoch == a.Epoch && p.state == Recovering && p.prepared {
			p.state, p.prepared = Writing, false // the transaction's answer was lost, its effect wasn't
			p.wake()
		}
		p.mu.Unlock()
	}
}

// takeSettings gives partitions their topics' new settings.
func (s *Set) takeSettings(pl *plan) error {
	var async []*Partition
	for _, c := range pl.settings {
		if c.t.Config.Durability == cluster.Async {
			async = append(async, c.p)
		}
	}
	if err := s.secureAsync(async); err != nil {
		return err
	}
	for _, c := range pl.settings {
		cfg := c.t.Config
		c.p.cfg.Store(&cfg)
		c.p.mu.Lock()
		c.p.topic = c.t.Name
		c.p.mu.Unlock()
		s.markDirty(c.p)
	}
	return nil
}

// closeOthers stops serving what this broker doesn't own. The local remains stay until reclaim finds that the bucket
// covers them; what no image knows is reported, never deleted.
func (s *Set) closeOthers(img *cluster.Image, mine map[frame.PartitionID]bool) {
	for _, p := range s.All() {
		if mine[p.id] {
			continue
		}
		p.mu.Lock()
		was := p.state
		if was != Failed {
			p.state = Closed
		}
		unknown := img.TopicByID(p.id.Topic) == nil && !p.reported
		p.reported = p.reported || unknown
		if was != p.state {
			p.wake()
		}
		p.mu.Unlock()
		if unknown && img.DeletedTopic(p.id.Topic) == nil {
			s.event(Warn, p, "the local log holds a partition of a topic that the cluster doesn't know; its data is kept", nil)
		}
	}
}

// startAll takes partitions from Starting over Recovering to Writing.
func (s *Set) startAll(starts []start) error {
	if len(starts) == 0 {
		return nil
	}
	var entering []cluster.Transition
	for _, st := range starts {
		if st.a.State == cluster.Starting {
			entering = append(entering, s.transition(st, cluster.Recovering, ""))
		}
		st.p.mu.Lock()
		st.p.state, st.p.reason, st.p.prepared, st.p.resume = Recovering, "", false, false
		st.p.wake()
		st.p.mu.Unlock()
	}
	if err := s.o.Cluster.Transition(s.ctx, entering); err != nil && !errors.Is(err, cluster.ErrFenced) {
		return err
	}
	ready, err := s.prepareAll(starts)
	var done []cluster.Transition
	for _, st := range ready {
		st.a.State = cluster.Recovering
		to, reason := cluster.Writing, ""
		if st.p.State() == Failed {
			to, reason = cluster.Failed, st.p.Stats().Reason
		}
		done = append(done, s.transition(st, to, reason))
	}
	if terr := s.o.Cluster.Transition(s.ctx, done); terr != nil {
		// Those that were fenced follow the next image; the others are found Writing there.
		return errors.Join(err, ignoreFenced(terr))
	}
	for _, st := range ready {
		st.p.mu.Lock()
		if st.p.state == Recovering && st.p.prepared && !s.closing.Load() {
			st.p.state, st.p.prepared = Writing, false
			st.p.wake()
		}
		st.p.mu.Unlock()
	}
	return err
}

func ignoreFenced(err error) error {
	if errors.Is(err, cluster.ErrFenced) {
		return nil
	}
	return err
}

func (s *Set) transition(st start, to cluster.State, reason string) cluster.Transition {
	return cluster.Transition{ID: st.p.id, Owner: st.a.Owner, OwnerIncarnation: st.a.OwnerIncarnation, Epoch: st.a.Epoch,
		From: st.a.State, To: to, Reason: reason}
}

// prepareAll brings every partition's offsets in order, several at a time. Those whose head can't be had now are left
// out; the error makes the loop try again.
func (s *Set) prepareAll(starts []start) (ready []start, err error) {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	slots := make(chan struct{}, s.o.OpenWorkers)
	for _, st := range starts {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(s.ctx, s.o.BucketCallTimeout)
			defer cancel()
			err := st.p.prepare(ctx, st.a.Epoch)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			ready = append(ready, st)
		})
	}
	wg.Wait()
	if len(errs) > 3 {
		errs = errs[:3] // one bucket outage is one line, not ten thousand
	}
	return ready, errors.Join(errs...)
}
