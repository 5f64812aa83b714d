package controller

import (
	"fmt"

	"github.com/tierbroker/tierbroker/cluster"
)

// flapsMost is how often in a row a broker may restart before it serves a Safe
// partition that others can serve as well.
const flapsMost = 2

// decide handles one partition; true when it needs an owner.
func (p *planner) decide(w *partition) (place bool) {
	a := &w.old
	wish := p.wish(w)
	switch {
	case !w.had:
		w.kind, w.why, w.prefer = Place, "new partition", wish.target()
		return true
	case a.State == cluster.Unassigned:
		w.kind, w.why, w.prefer = Place, "released", wish.or(a.Target)
		return true
	}
	p.load.add(a.Owner, w.id)
	b := p.broker(a.Owner)
	switch {
	case b == nil:
		place = p.ownerDead(w, wish)
	case b.Incarnation != a.OwnerIncarnation:
		place = p.ownerRestarted(w, b, wish)
	default:
		p.ownerLives(w, b, wish)
	}
	if place {
		p.load.remove(a.Owner, w.id) // it is counted where it goes
	}
	return place
}

// ownerDead decides for a partition whose broker is not there.
func (p *planner) ownerDead(w *partition, wish *wanted) (place bool) {
	a := &w.old
	w.kind, w.why, w.prefer = Failover, fmt.Sprintf("broker %d is dead", a.Owner), wish.or(a.Target)
	switch {
	case w.topic.Deleting:
		w.why = "its topic is being deleted and its owner is dead"
		return true
	case a.Safe:
		// One that was not Writing may have killed its owner: it waits longer each time.
		return a.Failures == 0 || p.due(a)
	case wish != nil && wish.broker != nil && wish.Force:
		w.kind, w.why = Force, fmt.Sprintf("broker %d is dead and an operator gives up what only it may have", a.Owner)
		p.forced(w, wish)
		return false
	case wish != nil && !p.patient(wish):
		p.endWish(w, wish, false, fmt.Sprintf("broker %d is dead and may hold the only copy: only force moves it", a.Owner))
	}
	return false
}

// ownerRestarted decides for a partition whose broker is there as another run.
func (p *planner) ownerRestarted(w *partition, b *cluster.Broker, wish *wanted) (place bool) {
	a := &w.old
	flaps := unserved(a) && a.Failures >= flapsMost
	if a.Safe && (b.Draining || flaps) && p.load.others(w.topic, b.ID) {
		w.kind, w.why, w.prefer = Failover, fmt.Sprintf("broker %d restarted and is draining", b.ID), wish.or(a.Target)
		if !b.Draining {
			w.why, w.avoid = fmt.Sprintf("broker %d restarts again and again before it serves it", b.ID), b.ID
		}
		return true
	}
	w.kind, w.why = Restart, "broker restarted"
	p.start(w, b)
	return false
}

// ownerLives decides for a partition whose owner is there.
func (p *planner) ownerLives(w *partition, b *cluster.Broker, wish *wanted) {
	a := &w.old
	if wish != nil && a.Owner == wish.Target && a.State != cluster.Starting && a.State != cluster.Recovering {
		if wish.Keep && !a.Placed {
			next := *a
			next.Placed = true
			w.kind, w.why = Pin, "it is there, and an operator wants to keep it there"
			p.change(w, next)
			return // the wish ends when everybody can see that
		}
		p.endWish(w, wish, true, "it is there")
		wish = nil
	}
	switch a.State {
	case cluster.Failed:
		if wish != nil && wish.broker != nil && wish.Force {
			w.kind, w.why = Force, fmt.Sprintf("it failed at broker %d and an operator gives up what only that may have", a.Owner)
			p.forced(w, wish)
		} else if p.due(a) {
			w.kind, w.why = Retry, fmt.Sprintf("retry after failure %d", a.Failures)
			p.start(w, b)
		}
	case cluster.Deleted:
		if !w.topic.Deleting {
			w.kind, w.why = Retry, "reported Deleted but its topic is not"
			p.start(w, b)
		}
	case cluster.Starting, cluster.Recovering:
		p.moves.recovers(b.ID)
	case cluster.Writing, cluster.Draining:
		p.served(w, b, wish)
	case cluster.Unassigned:
	}
}

// forced takes a partition away from an owner that did not release it.
func (p *planner) forced(w *partition, wish *wanted) {
	p.load.remove(w.old.Owner, w.id)
	p.load.add(wish.Target, w.id)
	p.start(w, wish.broker)
}
