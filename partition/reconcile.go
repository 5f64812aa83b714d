package partition

import (
	"errors"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// Apply hands the set a newer image of the cluster. It returns at once; the reconcile loop moves the partitions.
func (s *Set) Apply(img *cluster.Image) {
	for {
		old := s.image.Load()
		if old != nil && old.Revision() > img.Revision() {
			return // it comes late: what it says is over
		}
		if s.image.CompareAndSwap(old, img) {
			break
		}
	}
	s.kickReconcile()
}

// kickReconcile makes the reconcile loop look at the image again.
func (s *Set) kickReconcile() {
	select {
	case s.images <- struct{}{}:
	default:
	}
}

// reconcileLoop makes this broker's partitions follow the image: Starting ones are recovered and enter Writing, lost
// ones are closed, deleted ones leave the bucket. One pass handles all partitions together, so that ten thousand of
// them cost a few transactions; what takes time happens in jobs, whose outcome a later pass tells the cluster.
func (s *Set) reconcileLoop() {
	var retry <-chan time.Time
	failing := false // one line when it begins and one when it ends
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.images:
		case <-retry:
		}
		retry, s.later = nil, false
		done, failed, err := s.jobs.take()
		if err = errors.Join(err, s.tellDone(done), s.reconcile(s.image.Load())); s.ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			s.event(Warn, nil, "partitions could not follow the cluster state yet; trying again", err)
		}
		if err != nil || failed {
			failing, retry = true, time.After(s.o.RetryPause)
		} else if failing && !s.jobs.resting() {
			failing = false
			s.event(Info, nil, "all partitions follow the cluster state again", nil)
		} else if failing {
			retry = time.After(s.o.RetryPause)
		}
		if s.later && retry == nil {
			retry = time.After(s.o.RetryPause)
		}
	}
}

// plan is what one pass has to do.
type plan struct {
	settings []settings
	starting []start
	deleting []start
	failed   []start // here, and the cluster doesn't know yet

	draining     []start // to be moved to another broker
	undraining   []start // the move came to nothing
	rollingAhead []start // to be moved, and a hand-over would take long
	reclassing   []start // their topic's durability has changed to or from object
	later        bool    // something waits for time to pass
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
	s.leaveOthers(img, mine)
	s.warmAll(img)
	if err := s.takeSettings(&pl); err != nil {
		return err
	}
	for _, st := range pl.deleting {
		s.offer(job{start: st, kind: jobDelete})
	}
	for _, st := range pl.reclassing {
		s.offer(job{start: st, kind: jobReclass})
	}
	for _, st := range pl.rollingAhead {
		s.offer(job{start: st, kind: jobRollAhead})
	}
	for _, st := range pl.undraining {
		s.offer(job{start: st, kind: jobStay})
	}
	s.later = pl.later
	return errors.Join(s.failAll(pl.failed), s.startAll(pl.starting), s.drainAll(pl.draining))
}

// follow decides what one assignment of this broker asks for.
func (s *Set) follow(pl *plan, id frame.PartitionID, a cluster.Assignment, t *cluster.Topic) {
	p := s.ensure(id, t.Name)
	if *p.cfg.Load() != t.Config || p.Topic() != t.Name {
		pl.settings = append(pl.settings, settings{p, t})
	}
	if t.Deleting {
		if a.State != cluster.Deleted {
			pl.deleting = append(pl.deleting, start{p, a})
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	current := p.epoch == a.Epoch
	switch a.State {
	case cluster.Starting, cluster.Recovering:
		// Otherwise this image is older than our own transition.
		if !current || p.state != Writing && p.state != Failed && !p.resume {
			pl.starting = append(pl.starting, start{p, a})
		}
	case cluster.Writing:
		switch {
		case current && p.state == Recovering && p.prepared:
			p.state, p.prepared = Writing, false // the transaction's answer was lost, its effect wasn't
			p.wake()
		case current && p.state == Failed:
			pl.failed = append(pl.failed, start{p, a})
		}
		if current {
			s.followMove(pl, p, a)
			s.followClass(pl, p, a, t.Config.Durability)
		}
	case cluster.Draining:
		if current && p.state == Failed {
			pl.failed = append(pl.failed, start{p, a})
		} else if current {
			s.followMove(pl, p, a)
		}
	case cluster.Unassigned, cluster.Failed, cluster.Deleted:
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
		c.p.mu.Lock()
		c.p.cfg.Store(&cfg)
		c.p.asyncNext = false
		c.p.mu.Unlock()
		c.p.setTopic(c.t.Name)
		s.markDirty(c.p)
	}
	return nil
}

// closeOthers stops serving what this broker doesn't own. The local remains stay until reclaim finds that the bucket
// covers them; what no image knows is reported, never deleted.
func (s *Set) closeOthers(img *cluster.Image, mine map[frame.PartitionID]bool) {
	s.jobs.forgetOthers(mine)
	for _, p := range s.All() {
		if mine[p.id] {
			continue
		}
		a, assigned := img.Assignment(p.id)
		p.mu.Lock()
		was := p.state
		if was != Failed {
			p.state = Closed
		}
		p.resume = false
		if assigned && a.Owner != s.o.Broker && a.Owner != cluster.NoBroker {
			p.headKnown = false // the other one changes the head
			s.markDirty(p)
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

// startAll has partitions prepared, and tells the cluster meanwhile that they are Recovering. That transition protects
// nothing: a claim under an epoch that is over loses to the head, and Writing is entered by a transition of its own.
func (s *Set) startAll(starts []start) error {
	var entering []cluster.Transition
	for _, st := range starts {
		if st.a.State == cluster.Starting {
			entering = append(entering, s.transition(st, cluster.Recovering, ""))
		}
		s.offer(job{start: st})
	}
	return ignoreFenced(s.o.Cluster.Transition(s.ctx, entering))
}

// failAll tells the cluster of partitions that failed while they were served, so that they are started again.
func (s *Set) failAll(failed []start) error {
	var moves []cluster.Transition
	for _, st := range failed {
		reason, _ := st.p.failure()
		moves = append(moves, s.transition(st, cluster.Failed, reason))
	}
	return ignoreFenced(s.o.Cluster.Transition(s.ctx, moves))
}

func ignoreFenced(err error) error {
	if errors.Is(err, cluster.ErrFenced) {
		return nil
	}
	return err
}

func (s *Set) transition(st start, to cluster.State, reason string) cluster.Transition {
	return cluster.Transition{ID: st.p.id, Owner: st.a.Owner, OwnerIncarnation: st.a.OwnerIncarnation, Epoch: st.a.Epoch,
		From: st.a.State, To: to, Reason: reason, At: s.o.Now()}
}
