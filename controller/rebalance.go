package controller

import (
	"cmp"
	"math"
	"slices"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// Goals say what a rebalance evens out.
type Goals struct {
	Labels   bool // internal topics on brokers labelled for them, others elsewhere
	Count    bool // partitions, by weight
	BytesIn  bool // bytes per second written, by weight; needs loads
	BytesOut bool // bytes per second read, by weight; needs loads
	// Keep leaves what operators have placed (cluster.Assignment.Placed) where it is.
	Keep bool
	// Tolerance is how far bytes of a broker may be off its share, as a part of it;
	// 0: a tenth. Counts are evened out to the last partition.
	Tolerance float64
}

// AllGoals evens out everything.
func AllGoals() Goals { return Goals{Labels: true, Count: true, BytesIn: true, BytesOut: true} }

// Names of goals in Move.Goal.
const (
	GoalLabels   = "labels"
	GoalCount    = "partitions"
	GoalBytesIn  = "bytes in"
	GoalBytesOut = "bytes out"
)

// Move is one move of a rebalance.
type Move struct {
	ID       frame.PartitionID
	Topic    string
	From, To int32
	Goal     string // the goal it serves first
}

// BrokerLoad is what a broker has, or would have.
type BrokerLoad struct {
	Broker     int32
	Rack       string
	Weight     float64
	Draining   bool // gets nothing; what it has is moved away without a rebalance
	Partitions int
	In, Out    float64 // bytes per second
}

// Rebalance is a plan, not yet made.
type Rebalance struct {
	Moves         []Move       // sorted by topic name and partition
	Before, After []BrokerLoad // living brokers, sorted by id
}

// Wishes returns the moves in the form of Client.SetMoves.
func (r *Rebalance) Wishes() []cluster.MoveWish {
	out := make([]cluster.MoveWish, len(r.Moves))
	for i, m := range r.Moves {
		out[i] = cluster.MoveWish{ID: m.ID, Target: m.To, Goal: "rebalance: " + m.Goal}
	}
	return out
}

// PlanRebalance returns the fewest moves it finds that serve the goals. Only
// partitions that are Writing at a living broker that does not drain are moved, and
// none that moves already or is wished elsewhere; those count where they go. Every
// partition moves at most once. loads may be nil: then only labels and counts are
// looked at. The result depends on the arguments only.
func PlanRebalance(img State, loads Loads, goals Goals) Rebalance {
	b := newBalance(img, loads, goals.Keep)
	r := Rebalance{Before: b.loads()}
	for pool := range b.pools {
		if b.pool = &b.pools[pool]; goals.Labels && len(b.pool.members) > 0 {
			b.misplaced(pool)
		}
	}
	for pool := range b.pools {
		if b.pool = &b.pools[pool]; goals.Count && len(b.pool.members) > 0 {
			b.evenCounts(pool)
		}
	}
	tolerance := goals.Tolerance
	if !(tolerance > 0) {
		tolerance = 0.1
	}
	for pool := range b.pools {
		b.pool = &b.pools[pool]
		if goals.BytesIn {
			b.evenBytes(GoalBytesIn, tolerance, func(l Load) float64 { return l.In })
		}
		if goals.BytesOut {
			b.evenBytes(GoalBytesOut, tolerance, func(l Load) float64 { return l.Out })
		}
	}
	r.Moves, r.After = b.moves(), b.loads()
	return r
}

// balance is the cluster as a rebalance changes it.
type balance struct {
	keep    bool      // what operators have placed
	members []*member // living brokers, sorted by id
	byID    map[int32]*member
	all     []*placed
	pools   [2]balancePool
	pool    *balancePool
}

// balancePool are the brokers that may have some topics.
type balancePool struct {
	members []*member
	weight  float64
	fixed   int // partitions that belong to this pool, here or elsewhere
}

type member struct {
	cluster.Broker
	rack   *rackCount
	share  float64 // weight
	count  int
	load   Load
	has    map[frame.TopicID]int
	placed []*placed // what may move; stale entries (now elsewhere) are skipped
	pool   [2]bool
}

// rackCount counts what the brokers of a rack have.
type rackCount struct {
	share float64
	has   map[frame.TopicID]int
}

// placed is a partition that may move.
type placed struct {
	id    frame.PartitionID
	topic *cluster.Topic
	load  Load
	from  *member // where it is
	at    *member // where it shall be
	goal  string
	order int
}

func newBalance(img State, loads Loads, keep bool) *balance {
	b := &balance{keep: keep, byID: map[int32]*member{}}
	p := newPlanner(img, loads, 0)
	racks := map[string]*rackCount{}
	for i := range p.brokers {
		m := &member{Broker: p.brokers[i], share: weight(&p.brokers[i]), has: map[frame.TopicID]int{}}
		if m.rack = racks[m.Rack]; m.rack == nil {
			m.rack = &rackCount{has: map[frame.TopicID]int{}}
			racks[m.Rack] = m.rack
		}
		if !m.Draining {
			m.rack.share += m.share
		}
		b.members = append(b.members, m)
		b.byID[m.ID] = m
	}
	for i := range b.pools {
		if p.load.pools[i].drain {
			continue
		}
		for _, x := range p.load.pools[i].brokers {
			m := b.byID[x.ID]
			m.pool[i] = true
			b.pools[i].members = append(b.pools[i].members, m)
			b.pools[i].weight += m.share
		}
	}
	for _, t := range img.Topics() {
		for n := range t.Partitions {
			b.count(img, t, frame.PartitionID{Topic: t.ID, Partition: n}, loads)
		}
	}
	return b
}

func poolOf(t *cluster.Topic) int {
	if t.Internal {
		return 1
	}
	return 0
}

// count adds a partition to the broker it is at, or goes to.
func (b *balance) count(img State, t *cluster.Topic, id frame.PartitionID, loads Loads) {
	a, ok := img.Assignment(id)
	if !ok || a.Owner == cluster.NoBroker {
		return
	}
	at, load := b.byID[a.Owner], loads[id]
	owner := at
	fixed := at == nil || at.Draining || a.State != cluster.Writing || at.Incarnation != a.OwnerIncarnation || t.Deleting ||
		b.keep && a.Placed
	if w, ok := img.Move(id); ok && b.byID[w.Target] != nil {
		at, fixed = b.byID[w.Target], true
	} else if a.Target != cluster.NoBroker && b.byID[a.Target] != nil {
		at, fixed = b.byID[a.Target], true
	}
	if at == nil {
		return
	}
	at.take(t, load)
	b.pools[poolOf(t)].fixed++
	if !fixed {
		x := &placed{id: id, topic: t, load: load, from: owner, at: owner, order: len(b.all)}
		b.all = append(b.all, x)
		owner.placed = append(owner.placed, x)
	}
}

func (m *member) take(t *cluster.Topic, l Load) {
	m.count++
	m.has[t.ID]++
	m.rack.has[t.ID]++
	m.load.In += clean(l.In)
	m.load.Out += clean(l.Out)
}

func (m *member) give(t *cluster.Topic, l Load) {
	m.count--
	m.has[t.ID]--
	m.rack.has[t.ID]--
	m.load.In -= clean(l.In)
	m.load.Out -= clean(l.Out)
}

// clean makes a reported number one to calculate with.
func clean(x float64) float64 {
	if x > 0 && !math.IsInf(x, 0) {
		return x
	}
	return 0
}

// move puts a partition elsewhere in the plan.
func (b *balance) move(x *placed, to *member, goal string) {
	x.at.give(x.topic, x.load)
	to.take(x.topic, x.load)
	x.at = to
	to.placed = append(to.placed, x)
	if x.goal == "" {
		x.goal = goal
	}
}

// moves lists what is elsewhere now, and forgets detours.
func (b *balance) moves() []Move {
	var out []Move
	for _, x := range b.all { // in the order of topics and partitions
		if x.at != x.from {
			out = append(out, Move{ID: x.id, Topic: x.topic.Name, From: x.from.ID, To: x.at.ID, Goal: x.goal})
		}
	}
	return out
}

func (b *balance) loads() []BrokerLoad {
	out := make([]BrokerLoad, len(b.members))
	for i, m := range b.members {
		out[i] = BrokerLoad{Broker: m.ID, Rack: m.Rack, Weight: m.share, Draining: m.Draining, Partitions: m.count,
			In: max(m.load.In, 0), Out: max(m.load.Out, 0)}
	}
	return out
}

// misplaced moves what is at a broker that is reserved for other topics.
func (b *balance) misplaced(pool int) {
	for _, x := range b.all {
		if poolOf(x.topic) == pool && !x.at.pool[pool] {
			b.move(x, emptiest(x, b.pool.members), GoalLabels)
		}
	}
}

// emptiest returns the member that a partition fits best: the rack, then the broker
// with the fewest of its topic for the weight, then the one with the fewest partitions.
func emptiest(x *placed, members []*member) *member {
	var best *member
	var least [3]float64
	for _, m := range members {
		key := [3]float64{float64(m.rack.has[x.topic.ID]) / m.rack.share, float64(m.has[x.topic.ID]) / m.share, float64(m.count) / m.share}
		if best == nil || slices.Compare(key[:], least[:]) < 0 { // in the order of ids
			best, least = m, key
		}
	}
	return best
}

// quotas divides the partitions that the pool's brokers have: each gets its share,
// rounded down or up so that the sum fits; the rest goes to those that have most, so
// that the fewest move.
func (b *balance) quotas() map[*member]int {
	total := 0
	for _, m := range b.pool.members {
		total += m.count
	}
	q, left := make(map[*member]int, len(b.pool.members)), total
	for _, m := range b.pool.members {
		q[m] = int(float64(total) * m.share / b.pool.weight)
		left -= q[m]
	}
	byMost := slices.Clone(b.pool.members)
	slices.SortStableFunc(byMost, func(x, y *member) int {
		return cmp.Or(cmp.Compare(y.count-q[y], x.count-q[x]), cmp.Compare(x.ID, y.ID))
	})
	for i := 0; left > 0; i, left = i+1, left-1 {
		q[byMost[i%len(byMost)]]++
	}
	return q
}

// evenCounts moves partitions from brokers above their share to those below.
func (b *balance) evenCounts(pool int) {
	q := b.quotas()
	full := func(m *member) bool { return m.count >= q[m] }
	below := slices.DeleteFunc(slices.Clone(b.pool.members), full)
	for _, from := range b.pool.members {
		if from.count <= q[from] {
			continue
		}
		// What the broker has most of goes first.
		list := slices.DeleteFunc(slices.Clone(from.placed), func(x *placed) bool { return x.at != from || poolOf(x.topic) != pool })
		slices.SortStableFunc(list, func(x, y *placed) int {
			return cmp.Or(cmp.Compare(from.has[y.topic.ID], from.has[x.topic.ID]), cmp.Compare(y.order, x.order))
		})
		for _, x := range spread(list) {
			if from.count <= q[from] {
				break
			}
			to := emptiest(x, below)
			if to == nil {
				return
			}
			b.move(x, to, GoalCount)
			if full(to) {
				below = slices.DeleteFunc(below, full)
			}
		}
	}
}

// spread takes from a list that is grouped by topic one of each topic in turn, so
// that no topic leaves a broker as a whole.
func spread(list []*placed) []*placed {
	var groups [][]*placed
	at := map[frame.TopicID]int{}
	for _, x := range list {
		i, ok := at[x.topic.ID]
		if !ok {
			i = len(groups)
			at[x.topic.ID] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], x)
	}
	out := make([]*placed, 0, len(list))
	for round := 0; len(out) < len(list); round++ {
		for _, g := range groups {
			if round < len(g) {
				out = append(out, g[round])
			}
		}
	}
	return out
}
