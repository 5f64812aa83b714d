package group

import (
	"cmp"
	"slices"
)

// The server-side assignors see members in the order of their instance or member ids, so that their result depends on the
// state alone.

// subscriber is a member as an assignor sees it.
type subscriber struct {
	id     string
	topics []int // indexes into assigning.topics, ascending
	has    []slot
}

// slot is a partition of a topic, the topic as an index into assigning.topics.
type slot struct {
	topic int
	part  int32
}

// assigning is the input of an assignor, and its result in the members' slots.
type assigning struct {
	topics  []Topic
	members []*subscriber
	subs    [][]*subscriber // by topic: who is subscribed
}

// runAssignor returns the new target of every member.
func (m *Machine) runAssignor(c *consumer) map[string]assignment {
	a := m.prepareAssigning(c)
	if c.assignor(m) == "range" {
		a.byRange()
	} else {
		a.uniform(c)
	}
	out := make(map[string]assignment, len(a.members))
	for _, s := range a.members {
		var got assignment
		slices.SortFunc(s.has, func(x, y slot) int { return cmp.Or(cmp.Compare(x.topic, y.topic), cmp.Compare(x.part, y.part)) })
		for _, p := range s.has {
			got = got.with(a.topics[p.topic].ID, p.part)
		}
		out[s.id] = got.normal()
	}
	return out
}

func (m *Machine) prepareAssigning(c *consumer) *assigning {
	a := &assigning{}
	index := map[string]int{}
	for _, mem := range c.members {
		c.eachTopic(mem, func(name string) { index[name] = -1 })
	}
	for _, name := range sortedKeys(index) {
		if t, ok := m.topics.ByName(name); ok && t.Partitions > 0 {
			index[name] = len(a.topics)
			a.topics = append(a.topics, t)
		}
	}
	a.subs = make([][]*subscriber, len(a.topics))
	ids := sortedKeys(c.members)
	slices.SortStableFunc(ids, func(x, y string) int { return cmp.Compare(c.members[x].rank(), c.members[y].rank()) })
	for _, id := range ids {
		s := &subscriber{id: id}
		c.eachTopic(c.members[id], func(name string) {
			if i := index[name]; i >= 0 {
				s.topics = append(s.topics, i)
			}
		})
		slices.Sort(s.topics)
		s.topics = slices.Compact(s.topics)
		for _, t := range s.topics {
			a.subs[t] = append(a.subs[t], s)
		}
		a.members = append(a.members, s)
	}
	return a
}

// rank is the name by which assignors order a member.
func (m *member) rank() string {
	if m.meta.instance != nil {
		return *m.meta.instance
	}
	return m.id
}

// byRange gives each subscriber of a topic a run of its partitions, the first ones one more if they don't divide evenly.
// Members of equal subscriptions get equal runs of all topics of a size.
func (a *assigning) byRange() {
	for i, t := range a.topics {
		n, next := int32(len(a.subs[i])), int32(0)
		for k, s := range a.subs[i] {
			size := t.Partitions / n
			if int32(k) < t.Partitions%n {
				size++
			}
			for range size {
				s.has = append(s.has, slot{i, next})
				next++
			}
		}
	}
}

// uniform gives all members as even a number of partitions as their subscriptions allow, and moves few: first everybody
// keeps what it has, up to its share, then the rest is handed out.
func (a *assigning) uniform(c *consumer) {
	taken := make([][]bool, len(a.topics))
	byID := map[[16]byte]int{}
	total := 0
	for i, t := range a.topics {
		taken[i] = make([]bool, t.Partitions)
		byID[t.ID] = i
		total += int(t.Partitions)
	}
	same := !slices.ContainsFunc(a.members, func(s *subscriber) bool { return len(s.topics) != len(a.topics) })
	share, extra := 0, 0
	if len(a.members) > 0 {
		share, extra = total/len(a.members), total%len(a.members)
	}
	for _, s := range a.members {
		quota := total
		if same {
			quota = share
		}
		spare := []slot(nil)
		c.members[s.id].want.each(func(topic [16]byte, p int32) {
			i, ok := byID[topic]
			if !ok || p < 0 || int(p) >= len(taken[i]) || taken[i][p] {
				return
			}
			if _, subscribed := slices.BinarySearch(s.topics, i); !subscribed {
				return
			}
			if len(s.has) >= quota {
				spare = append(spare, slot{i, p})
				return
			}
			taken[i][p] = true
			s.has = append(s.has, slot{i, p})
		})
		if same && extra > 0 && len(spare) > 0 {
			extra--
			taken[spare[0].topic][spare[0].part] = true
			s.has = append(s.has, spare[0])
		}
	}
	if same {
		a.fill(taken, share)
		return
	}
	a.spread(taken)
	a.level()
}

// fill hands out what nobody has, among members with the same subscription: first everybody up to the share, then one
// more each as long as there is any.
func (a *assigning) fill(taken [][]bool, share int) {
	var rest []slot
	for i := range taken {
		for p, t := range taken[i] {
			if !t {
				rest = append(rest, slot{i, int32(p)})
			}
		}
	}
	for _, s := range a.members {
		n := min(max(share-len(s.has), 0), len(rest))
		s.has = append(s.has, rest[:n]...)
		rest = rest[n:]
	}
	for _, s := range a.members {
		if len(rest) > 0 && len(s.has) == share {
			s.has = append(s.has, rest[0])
			rest = rest[1:]
		}
	}
}

// spread hands out what nobody has, each to the subscriber with the least. Topics with few subscribers come first: they
// have the least choice.
func (a *assigning) spread(taken [][]bool) {
	order := make([]int, len(a.topics))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(len(a.subs[x]), len(a.subs[y])) })
	for _, i := range order {
		h := newLoads(a.subs[i])
		for p, t := range taken[i] {
			if !t {
				h.least().has = append(h.least().has, slot{i, int32(p)})
				h.fix()
			}
		}
	}
}

// maxLevel bounds the moves of level: the result may be uneven in a huge group with different subscriptions, not wrong.
const maxLevel = 100_000

// level moves partitions from members with more to subscribers with at least two less.
func (a *assigning) level() {
	moves := 0
	for moved := true; moved && moves < maxLevel; {
		moved = false
		for i := range a.topics {
			n := a.levelTopic(i, maxLevel-moves)
			moves += n
			moved = moved || n > 0
		}
	}
}

// levelTopic evens out one topic among its subscribers and returns how many partitions it moved.
func (a *assigning) levelTopic(topic, limit int) int {
	subs := slices.Clone(a.subs[topic])
	slices.SortStableFunc(subs, func(x, y *subscriber) int { return cmp.Compare(len(y.has), len(x.has)) })
	h := newLoads(a.subs[topic])
	moves := 0
	for _, from := range subs {
		for k := len(from.has) - 1; k >= 0 && moves < limit; k-- {
			to := h.least()
			if len(from.has)-len(to.has) < 2 {
				break
			}
			if p := from.has[k]; p.topic == topic {
				from.has = slices.Delete(from.has, k, k+1)
				to.has = append(to.has, p)
				h.fix()
				moves++
			}
		}
	}
	return moves
}

// loads is a heap of subscribers by how much they have; the least can only grow, which fix takes care of.
type loads []*subscriber

func newLoads(in []*subscriber) loads {
	h := loads(slices.Clone(in))
	slices.SortStableFunc(h, func(x, y *subscriber) int { return cmp.Compare(len(x.has), len(y.has)) })
	return h
}

func (h loads) least() *subscriber { return h[0] }

func (h loads) fix() {
	for i := 0; ; {
		k := 2*i + 1
		if k >= len(h) {
			return
		}
		if k+1 < len(h) && len(h[k+1].has) < len(h[k].has) {
			k++
		}
		if len(h[i].has) <= len(h[k].has) {
			return
		}
		h[i], h[k] = h[k], h[i]
		i = k
	}
}
