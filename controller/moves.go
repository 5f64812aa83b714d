package controller

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tierbroker/tierbroker/cluster"
)

// wishPatience is how long a wish waits for a target, or for the owner of a
// partition that is not Safe, that is dead when it was made or dies soon after: a
// restart should not undo what an operator asked for.
const wishPatience = 60_000

const (
	// warmPatience is how long a target may take to say that it is warm, in ms.
	warmPatience = 5_000
	// unreadyRest is how long a broker that did not is no target of the partition again, in ms.
	unreadyRest = 30_000
)

// endedPerPlan bounds how many wishes one plan removes.
const endedPerPlan = 1000

// moveLimits counts the moves under way.
type moveLimits struct {
	most, perBroker int
	total           int
	from, to        map[int32]int
	ended           int
}

func newMoveLimits(s cluster.MoveSettings) moveLimits {
	return moveLimits{most: s.Max, perBroker: s.MaxPerBroker, from: map[int32]int{}, to: map[int32]int{}}
}

func (m *moveLimits) add(from, to int32) {
	m.total++
	m.from[from]++
	m.to[to]++
}

// recovers counts what a broker has to recover against the moves to it.
func (m *moveLimits) recovers(broker int32) { m.to[broker]++ }

func (m *moveLimits) full() bool                 { return m.total >= m.most }
func (m *moveLimits) fullFrom(broker int32) bool { return m.from[broker] >= m.perBroker }
func (m *moveLimits) fullTo(broker int32) bool   { return m.to[broker] >= m.perBroker }

// wanted is a wish for a partition that can be carried out or waits.
type wanted struct {
	cluster.MoveWish
	broker *cluster.Broker // the target, nil while it is dead
}

// target returns the wish's broker if it lives.
func (w *wanted) target() int32 { return w.or(cluster.NoBroker) }

func (w *wanted) or(target int32) int32 {
	if w != nil && w.broker != nil {
		return w.Target
	}
	return target
}

// wish returns what is wished for a partition, nil when nothing, and removes what
// has become impossible.
func (p *planner) wish(w *partition) *wanted {
	if !p.wishes {
		return nil
	}
	m, ok := p.img.Move(w.id)
	if !ok {
		return nil
	}
	wish := &wanted{m, p.broker(m.Target)}
	switch {
	case w.topic.Deleting:
		p.endWish(w, wish, false, "its topic is being deleted")
	case wish.broker == nil && !p.patient(wish):
		p.endWish(w, wish, false, fmt.Sprintf("broker %d is dead", m.Target))
	case wish.broker != nil && wish.broker.Draining && w.old.Owner != m.Target:
		p.endWish(w, wish, false, fmt.Sprintf("broker %d is being drained", m.Target))
	default:
		return wish
	}
	return nil
}

// patient reports whether a wish is young enough to wait for a broker.
func (p *planner) patient(w *wanted) bool {
	end := w.Since + wishPatience
	if end <= p.now || w.Since > p.now+wishPatience {
		return false
	}
	p.next = min(p.next, end)
	return true
}

func (p *planner) endWish(w *partition, wish *wanted, done bool, why string) {
	if p.moves.ended++; p.moves.ended > endedPerPlan {
		return
	}
	c := Change{Kind: EndWish, Wish: wish.MoveWish, Done: done, Change: cluster.Change{ID: wish.ID, Why: why}}
	if w.topic != nil {
		c.Topic = w.topic.Name
	}
	p.changes = append(p.changes, ordered{c, w.order})
}

// orphanWishes removes wishes for partitions that do not exist.
func (p *planner) orphanWishes() {
	if !p.wishes {
		return
	}
	sizes := map[[16]byte]int32{}
	for _, t := range p.img.Topics() {
		sizes[t.ID] = t.Partitions
	}
	for _, m := range p.img.Moves() {
		if m.ID.Partition >= sizes[m.ID.Topic] {
			p.order++
			p.endWish(&partition{id: m.ID, order: p.order}, &wanted{MoveWish: m}, false, "there is no such partition")
		}
	}
}

// served looks after the move of a partition that is Writing or Draining: goes on,
// stops, or may begin.
func (p *planner) served(w *partition, owner *cluster.Broker, wish *wanted) {
	a := &w.old
	if a.Target != cluster.NoBroker {
		if stop := p.stop(w, owner, wish); stop.why != "" {
			w.kind, w.why = StopMove, stop.why
			if stop.endsWish && wish != nil {
				p.endWish(w, wish, false, stop.why)
			}
			next := *a
			next.Target, next.TargetSince, next.Warm = cluster.NoBroker, 0, false
			if stop.unready {
				next.Unready, next.UnreadyAt = a.Target, p.now
			}
			p.change(w, next)
			return
		}
		p.moves.add(a.Owner, a.Target)
		p.load.remove(a.Owner, w.id) // it is as good as there
		p.load.add(a.Target, w.id)
		return
	}
	if a.State != cluster.Writing || w.topic.Deleting {
		return // it drains by its owner's own will
	}
	c := candidate{partition: *w, target: wish.target()}
	switch {
	case c.target != cluster.NoBroker:
		c.rank, c.since, c.why = rankWish, wish.Since, "wished by an operator: "+wish.Goal
		if wish.Goal == "" {
			c.why = "wished by an operator"
		}
	case owner.Draining:
		c.rank, c.why = rankDrain, fmt.Sprintf("broker %d is drained", owner.ID)
	default:
		return
	}
	if owner.Draining && !p.img.BrokerWishes()[owner.ID].Drains() {
		c.rank = rankShutdown
	}
	p.begin = append(p.begin, c)
}

// stopped says why a move under way must be taken back.
type stopped struct {
	why      string // empty: it goes on
	endsWish bool   // it is not begun again
	unready  bool   // the target is no good for now
}

// stop looks whether a move under way must be taken back.
func (p *planner) stop(w *partition, owner *cluster.Broker, wish *wanted) stopped {
	a := &w.old
	target, end := p.broker(a.Target), a.TargetSince+p.settings.Timeout
	switch {
	case target == nil:
		return stopped{why: fmt.Sprintf("broker %d, its target, is dead", a.Target)}
	case target.ID == owner.ID:
		return stopped{why: "its target owns it"}
	case target.Draining:
		return stopped{why: fmt.Sprintf("broker %d, its target, is being drained", a.Target)}
	case end <= p.now || a.TargetSince > p.now+p.settings.Timeout:
		return stopped{why: fmt.Sprintf("the move to broker %d took longer than %d ms", a.Target, p.settings.Timeout), endsWish: true}
	}
	p.next = min(p.next, end)
	if a.State == cluster.Draining {
		return stopped{} // too late to change one's mind: it ends soon
	}
	switch {
	case wish.target() != cluster.NoBroker && wish.Target != a.Target:
		return stopped{why: fmt.Sprintf("broker %d is wished instead", wish.Target)}
	case wish == nil && !owner.Draining || w.topic.Deleting:
		return stopped{why: "nobody wants it any more"}
	case a.Warm:
		return stopped{}
	}
	if warm := a.TargetSince + warmPatience; warm > p.now {
		p.next = min(p.next, warm)
		return stopped{}
	}
	again := a.UnreadyAt != 0 && a.Unready == a.Target && a.UnreadyAt+3*unreadyRest > p.now
	return stopped{why: fmt.Sprintf("broker %d was not ready for it within %d ms", a.Target, warmPatience), endsWish: again, unready: true}
}

// shuns says until when a broker is no target of a partition because it was not ready for it a moment ago; 0: it may be.
func (p *planner) shuns(a *cluster.Assignment, id int32) (until int64) {
	if end := a.UnreadyAt + unreadyRest; a.UnreadyAt != 0 && a.Unready == id && end > p.now && a.UnreadyAt <= p.now {
		return end
	}
	return 0
}

// Order in which moves begin.
const (
	rankShutdown = iota // a broker that shuts down waits for it, with a deadline
	rankDrain
	rankWish
)

// candidate is a move that may begin.
type candidate struct {
	partition
	rank   int
	since  int64
	target int32 // NoBroker: any
}

// beginMoves begins as many moves as the limits allow.
func (p *planner) beginMoves() {
	slices.SortStableFunc(p.begin, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.since, b.since))
	})
	var r *ranking
	var of *cluster.Topic
	for i := range p.begin {
		c := &p.begin[i]
		if p.moves.full() {
			return
		}
		if p.moves.fullFrom(c.old.Owner) || c.target != cluster.NoBroker && p.moves.fullTo(c.target) {
			continue
		}
		if until := p.shuns(&c.old, c.target); until != 0 {
			p.next = min(p.next, until)
			continue
		}
		if c.target == cluster.NoBroker {
			if of != c.topic {
				r, of = p.load.rank(c.topic, p.kept(c.topic, nil)), c.topic
			}
			if c.target = p.choose(c, r); c.target == cluster.NoBroker {
				continue
			}
		}
		p.moves.add(c.old.Owner, c.target)
		c.kind = BeginMove
		next := c.old
		next.Target, next.TargetSince, next.Warm = c.target, p.now, false
		p.change(&c.partition, next)
	}
}

// choose finds a target for a partition that only has to leave its broker. One that was not ready a moment ago gets it
// after its rest, or when its broker, which is about to stop, has no other.
func (p *planner) choose(c *candidate, r *ranking) int32 {
	var rest int64
	bytes := p.load.of(c.id)
	id := r.takeIf(bytes, func(id int32) bool {
		until := p.shuns(&c.old, id)
		rest = max(rest, until)
		return until == 0 && !p.moves.fullTo(id)
	})
	switch {
	case id != cluster.NoBroker || rest == 0:
		return id
	case c.rank == rankShutdown:
		return r.takeIf(bytes, func(id int32) bool { return !p.moves.fullTo(id) })
	}
	p.next = min(p.next, rest)
	return cluster.NoBroker
}
