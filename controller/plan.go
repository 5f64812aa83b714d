package controller

import (
	"fmt"
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

// Change is one thing the controller does: it writes an assignment, or frees the
// name of a deleted topic (then only FreeName is set).
type Change struct {
	cluster.Change
	FreeName frame.TopicID
}

// State is what Plan looks at; *cluster.Image is one.
type State interface {
	Topics() []*cluster.Topic
	Assignment(frame.PartitionID) (cluster.Assignment, bool)
	Brokers() []cluster.Broker
}

// Plan returns the changes that are due at a time (ms since 1970), in the order
// of topic name and partition. It changes nothing and depends on nothing else.
func Plan(img State, now int64) []Change {
	changes, _ := planAt(img, now)
	return changes
}

// planAt returns also when the next change is due if nothing happens before.
func planAt(img State, now int64) (changes []Change, next int64) {
	p := planner{img: img, now: now, next: NeverDue}
	for _, b := range img.Brokers() {
		if isBroker(&b) {
			p.brokers = append(p.brokers, b)
		}
	}
	p.load = newLoads(p.brokers)
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
	slices.SortStableFunc(p.changes, func(a, b ordered) int { return a.order - b.order })
	out := make([]Change, len(p.changes))
	for i := range p.changes {
		out[i] = p.changes[i].Change
	}
	return out, p.next
}

func isBroker(b *cluster.Broker) bool {
	return len(b.Roles) == 0 || slices.Contains(b.Roles, "broker")
}

type planner struct {
	img     State
	now     int64
	next    int64
	brokers []cluster.Broker // sorted by id
	load    *loads
	changes []ordered
	order   int
}

// ordered keeps changes in the order of topics and partitions although placing
// comes last.
type ordered struct {
	Change
	order int
}

// unplaced are the partitions of a topic that need an owner.
type unplaced struct {
	topic *cluster.Topic
	list  []partition
}

// partition is one that is looked at.
type partition struct {
	id    frame.PartitionID
	old   cluster.Assignment
	had   bool
	order int
	why   string
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
		w := partition{id: id, old: a, had: had, order: p.order}
		if p.decide(t, &w) {
			u.list = append(u.list, w)
		}
	}
	if t.Deleting && left == 0 {
		p.order++
		p.changes = append(p.changes, ordered{Change{FreeName: t.ID}, p.order})
	}
	return u
}

// decide handles one partition; true when it needs an owner.
func (p *planner) decide(t *cluster.Topic, w *partition) (place bool) {
	a := &w.old
	if !w.had {
		w.why = "new partition"
		return true
	}
	if a.State == cluster.Unassigned {
		w.why = "released"
		return true
	}
	b := p.broker(a.Owner)
	switch {
	case b == nil && t.Deleting:
		w.why = "its topic is being deleted and its owner is dead"
		return true
	case b == nil:
		// The owner is dead; its log may hold the only copy, so it keeps its place.
		p.load.total[a.Owner]++
		return false
	}
	p.load.total[a.Owner]++
	switch {
	case b.Incarnation != a.OwnerIncarnation:
		p.start(w, b, "broker restarted")
	case a.State == cluster.Failed:
		due := a.FailedAt + backoff(a.Failures)
		// A clock that went back must not keep the partition down.
		if due <= p.now || a.FailedAt > p.now+retryMost {
			p.start(w, b, fmt.Sprintf("retry after failure %d", a.Failures))
		} else {
			p.next = min(p.next, due)
		}
	case a.State == cluster.Deleted && !t.Deleting:
		p.start(w, b, "reported Deleted but its topic is not")
	}
	return false
}

func backoff(failures int32) int64 {
	d := int64(retryFirst)
	for i := int32(1); i < failures && d < retryMost; i++ {
		d *= 2
	}
	return min(d, retryMost)
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
	kept := map[int32]int{}
	for n := range u.topic.Partitions {
		if open[n] {
			continue
		}
		if a, had := p.img.Assignment(frame.PartitionID{Topic: u.topic.ID, Partition: n}); had && a.Owner != cluster.NoBroker {
			kept[a.Owner]++
		}
	}
	r := p.load.rank(u.topic, kept)
	for i := range u.list {
		w := &u.list[i]
		target := cluster.NoBroker
		if w.had {
			target = w.old.Target
		}
		if b := p.broker(r.take(target)); b != nil {
			p.start(w, b, w.why)
		}
	}
}

// start writes the change to Starting with the next epoch.
func (p *planner) start(w *partition, b *cluster.Broker, why string) {
	c := cluster.Change{ID: w.id, Exists: w.had, Old: w.old, Why: why, New: cluster.Assignment{
		Owner: b.ID, OwnerIncarnation: b.Incarnation, State: cluster.Starting, Target: cluster.NoBroker,
	}}
	if w.had {
		c.New.Epoch = w.old.Epoch + 1
		c.New.Safe, c.New.Jump = w.old.Safe, w.old.Jump
		c.New.Failures, c.New.FailedAt, c.New.Reason = w.old.Failures, w.old.FailedAt, w.old.Reason
	} else {
		c.New.Safe = true // nothing was acknowledged yet
	}
	p.changes = append(p.changes, ordered{Change{Change: c}, w.order})
}
