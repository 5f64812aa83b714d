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
		if why, timeout := p.stop(w, owner, wish); why != "" {
			w.kind, w.why = StopMove, why
			if timeout && wish != nil {
				p.endWish(w, wish, false, why)
			}
			next := *a
			next.Target, next.TargetSince, next.Warm = cluster.NoBroker, 0, false
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

// stop says why a move under way must be taken back; empty: it goes on.
func (p *planner) stop(w *partition, owner *cluster.Broker, wish *wanted) (why string, timeout bool) {
	a := &w.old
	target, end := p.broker(a.Target), a.TargetSince+p.settings.Timeout
	switch {
	case target == nil:
		return fmt.Sprintf("broker %d, its target, is dead", a.Target), false
	case target.ID == owner.ID:
		return "its target owns it", false
	case target.Draining:
		return fmt.Sprintf("broker %d, its target, is being drained", a.Target), false
	case end <= p.now || a.TargetSince > p.now+p.settings.Timeout:
		return fmt.Sprintf("the move to broker %d took longer than %d ms", a.Target, p.settings.Timeout), true
	}
	p.next = min(p.next, end)
	if a.State == cluster.Draining {
		return "", false // too late to change one's mind: it ends soon
	}
	switch {
	case wish.target() != cluster.NoBroker && wish.Target != a.Target:
		return fmt.Sprintf("broker %d is wished instead", wish.Target), false
	case wish == nil && !owner.Draining || w.topic.Deleting:
		return "nobody wants it any more", false
	}
	return "", false
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
		if c.target == cluster.NoBroker {
			if of != c.topic {
				r, of = p.load.rank(c.topic, p.kept(c.topic, nil)), c.topic
			}
			if c.target = r.takeIf(p.load.of(c.id), func(id int32) bool { return !p.moves.fullTo(id) }); c.target == cluster.NoBroker {
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
