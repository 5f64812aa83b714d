package controller

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

var (
	simFor  = flag.Duration("sim.for", 8*time.Second, "how long simulations of clusters with failures run")
	simSeed = flag.Uint64("sim.seed", 0, "seed of one simulation to run again; 0: new ones")
)

// sim is a cluster whose processes fail at random. A tick is a second. What etcd
// would refuse is refused here: a change of the controller that was planned on
// another assignment or under another term, a transition of another owner.
type sim struct {
	t       *testing.T
	rnd     *rand.Rand
	w       *world
	now     int64
	runs    map[int32]int
	expires map[int32]int64 // brokers that stopped: when their lease ends
	paused  map[int32]bool  // SIGSTOP: they go on where they were, perhaps as a run that is dead
	stale   *world          // what a slow controller still sees
	history map[simEpoch]string
	epochs  map[frame.PartitionID]int32
	did     [numKinds]int
	fault   bool // faults happen
	kills   int
}

type simEpoch struct {
	id    frame.PartitionID
	epoch int32
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), w: newWorld(), now: 1_000_000, runs: map[int32]int{},
		expires: map[int32]int64{}, paused: map[int32]bool{}, history: map[simEpoch]string{},
		epochs: map[frame.PartitionID]int32{}, fault: true}
	for id := range int32(3 + s.rnd.IntN(12)) {
		s.up(id + 1)
	}
	for n := range 1 + s.rnd.IntN(8) {
		s.w.topic(n, int32(1+s.rnd.IntN(30)), s.rnd.IntN(4) == 0)
	}
	return s
}

func (s *sim) chance(percent int) bool { return s.rnd.IntN(100) < percent }

// up starts a broker as a new run; one that lives is restarted.
func (s *sim) up(id int32) {
	s.runs[id]++
	delete(s.expires, id)
	delete(s.paused, id)
	var labels []string
	if id == 2 {
		labels = append(labels, cluster.LabelCoordinator)
	}
	s.w.broker(id, s.runs[id], labels...)
	b := s.w.alive(id)
	b.Rack, b.StartedAt = fmt.Sprint(id%3), s.now
}

// pick returns a broker that lives in etcd's eyes.
func (s *sim) pick() int32 { return s.w.brokers[s.rnd.IntN(len(s.w.brokers))].ID }

// faults makes something happen to brokers, operators and topics.
func (s *sim) faults() {
	for id, at := range s.expires {
		if at <= s.now {
			s.w.stop(id)
			delete(s.expires, id)
		}
	}
	if !s.fault {
		return
	}
	if s.chance(6) && len(s.w.brokers) > 1 {
		if id := s.pick(); s.expires[id] == 0 { // killed, or paused past its lease
			s.expires[id] = s.now + 9_000
			s.paused[id] = true
			s.kills++
		}
	}
	if s.chance(8) {
		s.up(1 + s.rnd.Int32N(int32(len(s.runs))))
	}
	if s.chance(3) {
		s.w.drains[1+s.rnd.Int32N(int32(len(s.runs)))] = cluster.BrokerWish{Draining: s.chance(70), Removed: s.chance(50)}
	}
	if s.chance(6) {
		clear(s.w.drains)
	}
	if s.chance(3) && len(s.w.brokers) > 1 {
		s.w.alive(s.pick()).Draining = true // it shuts down
	}
	if s.chance(10) && len(s.w.topics) > 0 {
		topic := s.w.topics[s.rnd.IntN(len(s.w.topics))]
		s.w.wish(topic, s.rnd.Int32N(topic.Partitions), 1+s.rnd.Int32N(int32(len(s.runs))), s.now, s.chance(30))
	}
	if s.chance(2) && len(s.w.topics) > 0 {
		s.w.topics[s.rnd.IntN(len(s.w.topics))].Deleting = true
	}
	if s.chance(2) {
		s.w.topic(1000+s.rnd.IntN(50_000), int32(1+s.rnd.IntN(9)), false)
	}
}

// owners lets brokers that run do what they do with their partitions.
func (s *sim) owners() {
	for _, id := range slices.SortedFunc(maps.Keys(s.w.assign), frame.PartitionID.Compare) {
		a := s.w.assign[id]
		if b := s.w.alive(a.Target); b != nil && !s.paused[a.Target] && a.Target != cluster.NoBroker && s.chance(60) {
			a.Warm = true
			s.w.assign[id] = a
		}
		b := s.w.alive(a.Owner)
		if b == nil || b.Incarnation != a.OwnerIncarnation || s.paused[a.Owner] || s.chance(30) {
			continue
		}
		s.w.assign[id] = s.owner(id, a)
	}
}

// owner returns what the owner of a partition makes of it.
func (s *sim) owner(id frame.PartitionID, a cluster.Assignment) cluster.Assignment {
	deleting := s.w.deleting(id.Topic) != nil
	switch {
	case deleting && a.State != cluster.Deleted && a.State != cluster.Unassigned:
		a.State = cluster.Deleted
	case s.fault && s.chance(3) && cluster.OwnerMay(a.State, cluster.Failed):
		a.State, a.Failures, a.FailedAt = cluster.Failed, a.Failures+1, s.now
	case a.State == cluster.Starting:
		a.State = cluster.Recovering
	case a.State == cluster.Recovering:
		a.State, a.Jump, a.Failures, a.FailedAt = cluster.Writing, false, 0, 0
		a.Safe = id.Partition%2 == 0 // object topics
	case a.State == cluster.Writing && a.Target != cluster.NoBroker && (a.Warm || s.w.alive(a.Owner).Draining && s.chance(30)):
		a.State = cluster.Draining
	case a.State == cluster.Draining && a.Target == cluster.NoBroker:
		a.State = cluster.Writing
	case a.State == cluster.Draining && (!s.fault || s.chance(80)): // else it hangs
		if t := s.w.alive(a.Target); t != nil {
			a = cluster.Assignment{Owner: t.ID, OwnerIncarnation: t.Incarnation, Epoch: a.Epoch + 1, State: cluster.Starting,
				Target: cluster.NoBroker, Safe: true, Jump: a.Jump}
		}
	}
	return a
}

// control runs a controller: one that is slow, dies in the middle, or loses answers.
func (s *sim) control() {
	view := s.w
	if s.fault && s.stale != nil && s.chance(40) {
		view = s.stale
	}
	changes := Plan(view, nil, s.now)
	if s.fault && s.chance(20) {
		changes = changes[:s.rnd.IntN(len(changes)+1)] // it died there; the next one plans anew
	}
	for i := range changes {
		s.commit(&changes[i])
	}
	if r, _ := PlanAuto(s.w, s.now); len(r.Moves) > 0 && s.chance(50) {
		for _, m := range r.Wishes() {
			m.Since = s.now
			s.w.wishes[m.ID] = m
		}
	}
	if s.stale == nil || s.chance(50) {
		s.stale = s.w.copy()
	}
}

// commit makes a change as etcd does: only if what it compares still holds.
func (s *sim) commit(c *Change) {
	switch old, had := s.w.assign[c.ID]; {
	case c.Kind == FreeName:
		for id, a := range s.w.assign {
			if id.Topic == c.ID.Topic && !a.Gone() {
				return
			}
		}
	case c.Kind == EndWish:
		if s.w.wishes[c.Wish.ID] != c.Wish {
			return
		}
	case had != c.Exists || had && old != c.Old:
		return
	case !had && !s.w.has(c.ID.Topic):
		return
	}
	s.did[c.Kind]++
	if c.assigns() && c.Kind < BeginMove && s.w.alive(c.New.Owner) == nil || c.Kind == BeginMove && s.w.alive(c.New.Target) == nil {
		s.w.assign[c.ID] = c.New // planned before it died; the next plan repairs it
		return
	}
	if b := s.w.alive(c.New.Owner); c.Kind < BeginMove && b.Incarnation != c.New.OwnerIncarnation {
		s.w.assign[c.ID] = c.New
		return
	}
	s.w.apply(s.t, []Change{*c})
}

// check holds the cluster against what must be true at every moment.
func (s *sim) check() {
	for id, a := range s.w.assign {
		require.GreaterOrEqual(s.t, a.Epoch, s.epochs[id], "an epoch never falls")
		s.epochs[id] = a.Epoch
		if a.Owner == cluster.NoBroker {
			continue
		}
		k, owner := simEpoch{id, a.Epoch}, a.OwnerIncarnation
		if was, ok := s.history[k]; ok {
			require.Equal(s.t, was, owner, "%s has two owners in epoch %d", id, a.Epoch)
		}
		s.history[k] = owner
	}
}

func (s *sim) tick() {
	s.now += 1000
	s.faults()
	s.owners()
	s.control()
	s.check()
}

func (w *world) has(id frame.TopicID) bool {
	return slices.ContainsFunc(w.topics, func(t *cluster.Topic) bool { return t.ID == id })
}

func (w *world) copy() *world {
	c := *w
	c.brokers = slices.Clone(w.brokers)
	c.topics = make([]*cluster.Topic, len(w.topics))
	for i, t := range w.topics {
		topic := *t
		c.topics[i] = &topic
	}
	c.assign, c.drains, c.wishes = maps.Clone(w.assign), maps.Clone(w.drains), maps.Clone(w.wishes)
	return &c
}

// settle ends all faults and expects everything to be well soon.
func (s *sim) settle() {
	s.fault, s.stale = false, nil
	for id := range int32(len(s.runs)) {
		if s.paused[id+1] || s.w.alive(id+1) == nil || s.w.alive(id+1).Draining {
			s.up(id + 1)
		}
	}
	rounds := 0
	for ; rounds < 400; rounds++ {
		s.tick()
		if s.well() && len(Plan(s.w, nil, s.now)) == 0 {
			if r, next := PlanAuto(s.w, s.now); len(r.Moves) == 0 && next == NeverDue {
				break
			}
		}
	}
	require.True(s.t, s.well(), "not well after %d ticks: %+v", rounds, Look(s.w))
	require.Empty(s.t, Plan(s.w, nil, s.now))
	before := s.did
	for range 200 {
		s.tick()
	}
	require.Equal(s.t, before, s.did, "nothing moves when all is well")
}

func (s *sim) well() bool {
	l := Look(s.w)
	if l.Serving != l.Partitions || l.Wishes > 0 || l.Moving > 0 {
		return false
	}
	for _, b := range l.Brokers {
		if b.Draining && b.Owned > 0 && len(s.w.drains) < len(s.runs) && s.hasOther() {
			return false
		}
	}
	return true
}

// hasOther reports whether some broker does not drain: else nothing can leave.
func (s *sim) hasOther() bool {
	return slices.ContainsFunc(s.w.brokers, func(b cluster.Broker) bool { return !s.w.drains[b.ID].Drains() })
}

// TestSimulation runs clusters through failures of brokers and controllers and
// expects that no partition ever has two owners in one epoch, that all is well soon
// after the last failure, and that nothing moves without a reason.
func TestSimulation(t *testing.T) {
	end := time.Now().Add(*simFor)
	var did [numKinds]int
	kills, n := 0, 0
	for ; n == 0 || time.Now().Before(end) && *simSeed == 0; n++ {
		seed := *simSeed
		if seed == 0 {
			seed = uint64(time.Now().UnixNano())
		}
		if !t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s := newSim(t, seed)
			for range 150 {
				s.tick()
			}
			s.settle()
			for k := range did {
				did[k] += s.did[k]
			}
			kills += s.kills
		}) {
			t.Fatalf("run it again with -sim.seed=%d", seed)
		}
	}
	t.Logf("%d simulations, %d brokers lost", n, kills)
	for k, n := range did {
		t.Logf("%-10s %d", Kind(k), n)
	}
}
