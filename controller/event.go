package controller

import (
	"sync/atomic"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// EventKind says what happened.
type EventKind uint8

// What a Controller reports.
const (
	Elected     EventKind = iota // this node leads
	Deposed                      // the term has ended
	Changed                      // changes were made
	Observed                     // owners or targets changed assignments
	PlanFailed                   // changes could not be made; they are tried again
	CatalogFail                  // the bucket's copy is not kept current
	Rebalanced                   // an automatic rebalance has begun
)

// Event is something an operator may want to read.
type Event struct {
	Kind    EventKind
	Changes []Change // Changed
	Steps   []Step   // Observed
	Err     error
	// Rebalance is what Rebalanced is about.
	Rebalance *Rebalance
}

// Step is a change of an assignment that the controller has seen and not made.
type Step struct {
	ID       frame.PartitionID
	Topic    string // name, empty when the topic is gone
	Old, New cluster.Assignment
	// MovedIn is how long a move took from its Target to the hand-over, in ms; 0 for
	// other steps.
	MovedIn int64
}

// HandOver reports whether an owner handed its partition over to the target.
func (s *Step) HandOver() bool {
	return s.Old.State == cluster.Draining && s.New.State != cluster.Draining && s.New.Epoch == s.Old.Epoch+1 &&
		s.Old.Target == s.New.Owner && s.Old.Target != cluster.NoBroker
}

// Stats counts what this node has done as the controller since it was started.
type Stats struct {
	Leading bool
	Terms   int64          // elections won
	Changes map[Kind]int64 // made, by kind
	Lost    int64          // changes that were planned on an old image
	Failed  int64          // plans that could not be made
	// Rebalances counts automatic rebalances that were begun.
	Rebalances int64
	Moves      int64         // hand-overs from an owner to its target
	MoveTime   time.Duration // sum over Moves, from the choice of the target to the hand-over
	Plans      int64
	PlanTime   time.Duration // sum over Plans
	LastPlan   time.Duration
}

type counters struct {
	terms, lost, failed, rebalances, moves, moveMs, plans, planNs, lastPlan atomic.Int64
	changes                                                                 [numKinds]atomic.Int64
}

func (c *counters) planned(d time.Duration) {
	c.plans.Add(1)
	c.planNs.Add(int64(d))
	c.lastPlan.Store(int64(d))
}

// Stats returns the counters.
func (c *Controller) Stats() Stats {
	s := Stats{
		Leading: c.Leading(), Terms: c.stats.terms.Load(), Changes: make(map[Kind]int64, numKinds), Lost: c.stats.lost.Load(),
		Failed: c.stats.failed.Load(), Rebalances: c.stats.rebalances.Load(), Moves: c.stats.moves.Load(), MoveTime: time.Duration(c.stats.moveMs.Load()) * time.Millisecond,
		Plans: c.stats.plans.Load(), PlanTime: time.Duration(c.stats.planNs.Load()), LastPlan: time.Duration(c.stats.lastPlan.Load()),
	}
	for k := range c.stats.changes {
		s.Changes[Kind(k)] = c.stats.changes[k].Load()
	}
	return s
}

// observe tells what owners and targets have written between two images. What the
// controller itself has written is told by Changed: a Starting that is no hand-over,
// and a target that came or went.
func (c *Controller) observe(prev, img *cluster.Image) {
	if prev == nil {
		return
	}
	var steps []Step
	for id := range img.ChangedPartitions(prev) {
		before, had := prev.Assignment(id)
		after, has := img.Assignment(id)
		if !had || !has {
			continue
		}
		s := Step{ID: id, Old: before, New: after}
		hand := s.HandOver()
		if !hand && (after.Epoch != before.Epoch || after.State == before.State && after.Safe == before.Safe && after.Warm == before.Warm) {
			continue
		}
		if t := img.TopicByID(id.Topic); t != nil {
			s.Topic = t.Name
		}
		if hand {
			s.MovedIn = max(c.o.Now()-before.TargetSince, 1)
			c.stats.moves.Add(1)
			c.stats.moveMs.Add(s.MovedIn)
		}
		steps = append(steps, s)
	}
	if len(steps) > 0 {
		c.o.OnEvent(Event{Kind: Observed, Steps: steps})
	}
}
