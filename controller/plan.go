package controller

import (
	"slices"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// Back-off of failed partitions, in ms.
const (
	retryFirst = 1_000
	retryMost  = 60_000
)

// NeverDue is the time of a wake-up that is not needed.
const NeverDue = int64(1<<63 - 1)

// State is what Plan looks at; *cluster.Image is one.
type State interface {
	Topics() []*cluster.Topic
	Assignment(frame.PartitionID) (cluster.Assignment, bool)
	Brokers() []cluster.Broker
	BrokerWishes() map[int32]cluster.BrokerWish
	Moves() []cluster.MoveWish
	Move(frame.PartitionID) (cluster.MoveWish, bool)
	MoveSettings() cluster.MoveSettings
}

// Plan returns the changes that are due at a time (ms since 1970), in the order
// of topic name and partition. It changes nothing and depends on nothing else.
// loads may be nil.
func Plan(img State, loads Loads, now int64) []Change {
	changes, _ := planAt(img, loads, now)
	return changes
}

// planAt returns also when the next change is due if nothing happens before.
func planAt(img State, loads Loads, now int64) (changes []Change, next int64) {
	p := newPlanner(img, loads, now)
	// What stays where it is has to be counted before anything is placed.
	var open []*unplaced
	for _, t := range img.Topics() {
		if u := p.topic(t); len(u.list) > 0 {
			open = append(open, u)
		}
	}
	for _, u := range open {
		p.place(u)
	}
	p.orphanWishes()
	p.beginMoves()
	slices.SortStableFunc(p.changes, func(a, b ordered) int { return a.order - b.order })
	out := make([]Change, len(p.changes))
	for i := range p.changes {
		out[i] = p.changes[i].Change
	}
	return out, p.next
}

type planner struct {
	img      State
	now      int64
	next     int64
	settings cluster.MoveSettings
	wishes   bool             // operators wish for moves
	brokers  []cluster.Broker // alive and able to own partitions, sorted by id
	load     *loads
	moves    moveLimits
	begin    []candidate // moves that may begin
	changes  []ordered
	order    int
}

func newPlanner(img State, known Loads, now int64) *planner {
	p := &planner{img: img, now: now, next: NeverDue, settings: img.MoveSettings(), wishes: len(img.Moves()) > 0}
	drains := img.BrokerWishes()
	for _, b := range img.Brokers() {
		if b.OwnsPartitions() {
			b.Draining = b.Draining || drains[b.ID].Drains()
			p.brokers = append(p.brokers, b)
		}
	}
	p.load = newLoads(p.brokers, known)
	p.moves = newMoveLimits(p.settings)
	return p
}

// unplaced are the partitions of a topic that need an owner.
type unplaced struct {
	topic *cluster.Topic
	list  []partition
}

// partition is one that is looked at.
type partition struct {
	id    frame.PartitionID
	topic *cluster.Topic
	old   cluster.Assignment
	had   bool
	order int
	why   string
	kind  Kind
	// prefer gets it if it may have it; NoBroker: no preference.
	prefer int32
	avoid  int32 // does not get it unless nobody else can; NoBroker: none
}

// topic decides for all partitions of a topic and returns those to place.
func (p *planner) topic(t *cluster.Topic) *unplaced {
	u := &unplaced{topic: t}
	left := 0 // partitions of a deleted topic that are not done
	for n := range t.Partitions {
		p.order++
		id := frame.PartitionID{Topic: t.ID, Partition: n}
		a, had := p.img.Assignment(id)
		if t.Deleting && (!had || a.Gone()) {
			continue
		}
		left++
		w := partition{id: id, topic: t, old: a, had: had, order: p.order, prefer: cluster.NoBroker, avoid: cluster.NoBroker}
		if p.decide(&w) {
			u.list = append(u.list, w)
		}
	}
	if t.Deleting && left == 0 {
		p.order++
		p.changes = append(p.changes, ordered{Change{Kind: FreeName, Topic: t.Name,
			Change: cluster.Change{ID: frame.PartitionID{Topic: t.ID}, Why: "its topic is deleted everywhere"}}, p.order})
	}
	return u
}

func backoff(failures int32) int64 {
	d := int64(retryFirst)
	for i := int32(1); i < failures && d < retryMost; i++ {
		d *= 2
	}
	return min(d, retryMost)
}

// due reports whether a failed partition may be tried again, and else notes when.
func (p *planner) due(a *cluster.Assignment) bool {
	at := a.FailedAt + backoff(a.Failures)
	// A clock that went back must not keep the partition down.
	if at <= p.now || a.FailedAt > p.now+retryMost {
		return true
	}
	p.next = min(p.next, at)
	return false
}

func (p *planner) broker(id int32) *cluster.Broker {
	i, ok := slices.BinarySearchFunc(p.brokers, id, func(b cluster.Broker, id int32) int { return int(int64(b.ID) - int64(id)) })
	if !ok {
		return nil
	}
	return &p.brokers[i]
}

// place chooses owners; without any broker the partitions wait.
func (p *planner) place(u *unplaced) {
	open := make(map[int32]bool, len(u.list))
	for i := range u.list {
		open[u.list[i].id.Partition] = true
	}
	r := p.load.rank(u.topic, p.kept(u.topic, open))
	for i := range u.list {
		w := &u.list[i]
		id := cluster.NoBroker
		if w.avoid != cluster.NoBroker {
			id = r.takeIf(p.load.of(w.id), func(id int32) bool { return id != w.avoid })
		}
		if id == cluster.NoBroker {
			id = r.take(w.prefer, p.load.of(w.id))
		}
		if b := p.broker(id); b != nil {
			p.start(w, b)
		}
	}
}

// kept counts the partitions of a topic by owner, but for those that are open.
func (p *planner) kept(t *cluster.Topic, open map[int32]bool) map[int32]int {
	kept := map[int32]int{}
	for n := range t.Partitions {
		if open[n] {
			continue
		}
		a, had := p.img.Assignment(frame.PartitionID{Topic: t.ID, Partition: n})
		switch {
		case !had || a.Owner == cluster.NoBroker:
		case a.Target != cluster.NoBroker:
			kept[a.Target]++ // as good as there
		default:
			kept[a.Owner]++
		}
	}
	return kept
}

// start writes the change to Starting with the next epoch.
func (p *planner) start(w *partition, b *cluster.Broker) {
	a := cluster.Assignment{Owner: b.ID, OwnerIncarnation: b.Incarnation, State: cluster.Starting, Target: cluster.NoBroker,
		Safe: true} // nothing of a new partition was acknowledged yet
	if w.had {
		a.Epoch = w.old.Epoch + 1
		a.Safe, a.Jump = w.old.Safe, w.old.Jump
		a.Placed = w.old.Placed && w.old.Owner == b.ID
		a.Failures, a.FailedAt, a.Reason = w.old.Failures, w.old.FailedAt, w.old.Reason
	}
	switch {
	case w.kind == Force && !w.old.Safe:
		// What only the old owner has is given up; from here on all there is is in the bucket.
		a.Safe, a.Jump = true, true
	case (w.kind == Failover || w.kind == Restart) && unserved(&w.old):
		a.Failures, a.FailedAt = min(a.Failures, 1<<30)+1, p.now
	}
	p.moves.recovers(b.ID)
	p.change(w, a)
}

// unserved reports whether an owner that is gone had not come to Writing.
func unserved(a *cluster.Assignment) bool {
	return a.State == cluster.Starting || a.State == cluster.Recovering
}

func (p *planner) change(w *partition, a cluster.Assignment) {
	p.changes = append(p.changes, ordered{Change{Kind: w.kind, Topic: w.topic.Name,
		Change: cluster.Change{ID: w.id, Exists: w.had, Old: w.old, New: a, Why: w.why}}, w.order})
}
