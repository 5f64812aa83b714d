package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// world is a cluster in memory: what etcd would hold.
type world struct {
	topics  []*cluster.Topic // sorted by name
	brokers []cluster.Broker // sorted by id
	assign  map[frame.PartitionID]cluster.Assignment
	freed   []frame.TopicID
	drains  map[int32]cluster.BrokerWish
	wishes  map[frame.PartitionID]cluster.MoveWish
	limits  cluster.MoveSettings
}

func newWorld() *world {
	return &world{assign: map[frame.PartitionID]cluster.Assignment{}, drains: map[int32]cluster.BrokerWish{},
		wishes: map[frame.PartitionID]cluster.MoveWish{},
		limits: cluster.MoveSettings{Max: 40, MaxPerBroker: 20, Timeout: 60_000, Auto: true, Delay: 60_000, Threshold: 20}}
}

func (w *world) BrokerWishes() map[int32]cluster.BrokerWish { return w.drains }
func (w *world) MoveSettings() cluster.MoveSettings         { return w.limits }
func (w *world) Moves() []cluster.MoveWish {
	return slices.SortedFunc(maps.Values(w.wishes), func(a, b cluster.MoveWish) int { return a.ID.Compare(b.ID) })
}
func (w *world) Move(id frame.PartitionID) (cluster.MoveWish, bool) {
	m, ok := w.wishes[id]
	return m, ok
}

func (w *world) Topics() []*cluster.Topic  { return w.topics }
func (w *world) Brokers() []cluster.Broker { return w.brokers }
func (w *world) Assignment(id frame.PartitionID) (cluster.Assignment, bool) {
	a, ok := w.assign[id]
	return a, ok
}

func (w *world) topic(n int, partitions int32, internal bool) *cluster.Topic {
	t := &cluster.Topic{Name: fmt.Sprintf("t%05d", n), Partitions: partitions, Internal: internal}
	t.ID[0], t.ID[1], t.ID[15] = byte(n>>8), byte(n), 1
	w.topics = append(w.topics, t)
	slices.SortFunc(w.topics, func(a, b *cluster.Topic) int { return strings.Compare(a.Name, b.Name) })
	return t
}

func (w *world) broker(id int32, run int, labels ...string) {
	w.stop(id)
	w.brokers = append(w.brokers, cluster.Broker{ID: id, Incarnation: fmt.Sprintf("b%d-run%d", id, run), Labels: labels})
	slices.SortFunc(w.brokers, func(a, b cluster.Broker) int { return cmp.Compare(a.ID, b.ID) })
}

func (w *world) stop(id int32) {
	w.brokers = slices.DeleteFunc(w.brokers, func(b cluster.Broker) bool { return b.ID == id })
}

// apply makes changes as etcd would, checking what every change promises.
func (w *world) apply(t require.TestingT, changes []Change) {
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Kind == FreeName:
			w.freeName(c.ID.Topic)
		case c.Kind == EndWish:
			require.Equal(t, c.Wish, w.wishes[c.Wish.ID])
			delete(w.wishes, c.Wish.ID)
		default:
			w.assignAs(t, c)
		}
	}
}

func (w *world) freeName(id frame.TopicID) {
	w.freed = append(w.freed, id)
	w.topics = slices.DeleteFunc(w.topics, func(x *cluster.Topic) bool { return x.ID == id })
	for p := range w.assign {
		if p.Topic == id {
			delete(w.assign, p)
		}
	}
}

func (w *world) assignAs(t require.TestingT, c *Change) {
	// Plain comparisons: a test makes hundreds of thousands of them.
	old, had := w.assign[c.ID]
	if had != c.Exists || old != c.Old && had {
		require.FailNow(t, "planned on another assignment", "%+v, there is %+v", c, old)
	}
	if !had {
		old.Epoch = cluster.NoEpoch
	}
	if c.Kind == BeginMove || c.Kind == StopMove {
		same := c.New
		same.Target, same.TargetSince, same.Warm = old.Target, old.TargetSince, old.Warm
		if c.Kind == StopMove && same.Unready == old.Target {
			same.Unready, same.UnreadyAt = old.Unready, old.UnreadyAt
		}
		if same != old || c.New.Warm || (c.Kind == BeginMove) != (c.New.Target != cluster.NoBroker) || c.New.Target == old.Owner {
			require.FailNow(t, "a move changes the target only", "%+v", c)
		}
		if c.Kind == BeginMove && w.alive(c.New.Target) == nil {
			require.FailNow(t, "the target is not alive", "%+v", c)
		}
		w.assign[c.ID] = c.New
		return
	}
	if c.Kind == Pin {
		old.Placed = true
		require.Equal(t, old, c.New)
		w.assign[c.ID] = c.New
		return
	}
	if c.New.Epoch != old.Epoch+1 || c.New.State != cluster.Starting {
		require.FailNow(t, "every Starting raises the epoch by one", "%+v", c)
	}
	if b := w.alive(c.New.Owner); b == nil || b.Incarnation != c.New.OwnerIncarnation {
		require.FailNow(t, "the owner is not alive", "%+v", c)
	}
	if b := w.alive(old.Owner); had && b != nil && b.Incarnation == old.OwnerIncarnation &&
		(old.State == cluster.Starting || old.State == cluster.Recovering || old.State == cluster.Writing || old.State == cluster.Draining) {
		require.FailNow(t, "taken from an owner that serves", "%+v", c)
	}
	if had && old.State != cluster.Unassigned && old.Owner != c.New.Owner && !old.Safe && !c.New.Jump && w.deleting(c.ID.Topic) == nil {
		require.FailNow(t, "records may be lost and nobody is told", "%+v", c)
	}
	w.assign[c.ID] = c.New
}

func (w *world) deleting(id frame.TopicID) *cluster.Topic {
	i := slices.IndexFunc(w.topics, func(x *cluster.Topic) bool { return x.ID == id && x.Deleting })
	if i < 0 {
		return nil
	}
	return w.topics[i]
}

func (w *world) alive(id int32) *cluster.Broker {
	i, ok := slices.BinarySearchFunc(w.brokers, id, func(b cluster.Broker, id int32) int { return cmp.Compare(b.ID, id) })
	if !ok {
		return nil
	}
	return &w.brokers[i]
}

func (w *world) owned() map[int32]int {
	n := map[int32]int{}
	for _, a := range w.assign {
		n[a.Owner]++
	}
	return n
}

func (w *world) set(t *cluster.Topic, p int32, change func(*cluster.Assignment)) {
	id := frame.PartitionID{Topic: t.ID, Partition: p}
	a := w.assign[id]
	change(&a)
	w.assign[id] = a
}

// show prints changes one a line.
func show(w *world, changes []Change) string {
	var b strings.Builder
	for _, c := range changes {
		switch c.Kind {
		case FreeName:
			fmt.Fprintf(&b, "free name\n")
		case EndWish:
			fmt.Fprintf(&b, "%d: end wish for %d, done %v (%s)\n", c.ID.Partition, c.Wish.Target, c.Done, c.Why)
		case BeginMove, StopMove:
			fmt.Fprintf(&b, "%d: %s to %d (%s)\n", c.ID.Partition, c.Kind, c.New.Target, c.Why)
		default:
			fmt.Fprintf(&b, "%d: broker %d epoch %d (%s)\n", c.ID.Partition, c.New.Owner, c.New.Epoch, c.Why)
		}
	}
	return b.String()
}

func TestPlanCases(t *testing.T) {
	writing := func(a *cluster.Assignment) { a.State = cluster.Writing }
	unsafe := func(a *cluster.Assignment) { a.State, a.Safe = cluster.Writing, false }
	for _, tc := range []struct {
		name string
		do   func(w *world, topic *cluster.Topic)
		want string
	}{
		{"new topic spreads", func(w *world, _ *cluster.Topic) { clear(w.assign) },
			"0: broker 1 epoch 0 (new partition)\n1: broker 2 epoch 0 (new partition)\n2: broker 1 epoch 0 (new partition)\n"},
		{"all is well", func(w *world, topic *cluster.Topic) { w.set(topic, 0, writing) }, ""},
		{"no broker, new topic", func(w *world, _ *cluster.Topic) { clear(w.assign); w.brokers = nil }, ""},
		{"broker restarted", func(w *world, _ *cluster.Topic) { w.broker(1, 2) },
			"0: broker 1 epoch 1 (broker restarted)\n2: broker 1 epoch 1 (broker restarted)\n"},
		{"broker dead, safe", func(w *world, _ *cluster.Topic) { w.stop(1) },
			"0: broker 2 epoch 1 (broker 1 is dead)\n2: broker 2 epoch 1 (broker 1 is dead)\n"},
		{"broker dead, one is not safe", func(w *world, topic *cluster.Topic) { w.stop(1); w.set(topic, 0, unsafe) },
			"2: broker 2 epoch 1 (broker 1 is dead)\n"},
		{"broker dead, no other", func(w *world, _ *cluster.Topic) { w.stop(1); w.stop(2) }, ""},
		{"more partitions", func(w *world, topic *cluster.Topic) { topic.Partitions = 5 },
			"3: broker 2 epoch 0 (new partition)\n4: broker 1 epoch 0 (new partition)\n"},
		{"released", func(w *world, topic *cluster.Topic) {
			w.set(topic, 1, func(a *cluster.Assignment) {
				a.State, a.Owner, a.OwnerIncarnation = cluster.Unassigned, cluster.NoBroker, ""
			})
		}, "1: broker 2 epoch 1 (released)\n"},
		{"released to a target", func(w *world, topic *cluster.Topic) {
			w.set(topic, 1, func(a *cluster.Assignment) {
				a.State, a.Owner, a.OwnerIncarnation, a.Target = cluster.Unassigned, cluster.NoBroker, "", 1
			})
		}, "1: broker 1 epoch 1 (released)\n"},
		{"released to a dead target", func(w *world, topic *cluster.Topic) {
			w.set(topic, 1, func(a *cluster.Assignment) {
				a.State, a.Owner, a.OwnerIncarnation, a.Target = cluster.Unassigned, cluster.NoBroker, "", 9
			})
		}, "1: broker 2 epoch 1 (released)\n"},
		{"failed, due", func(w *world, topic *cluster.Topic) {
			w.set(topic, 1, func(a *cluster.Assignment) { a.State, a.Failures, a.FailedAt = cluster.Failed, 3, 100_000-4000 })
		}, "1: broker 2 epoch 1 (retry after failure 3)\n"},
		{"failed, not due", func(w *world, topic *cluster.Topic) {
			w.set(topic, 1, func(a *cluster.Assignment) { a.State, a.Failures, a.FailedAt = cluster.Failed, 3, 100_000-3999 })
		}, ""},
		{"failed, clock went back", func(w *world, topic *cluster.Topic) {
			w.set(topic, 1, func(a *cluster.Assignment) { a.State, a.Failures, a.FailedAt = cluster.Failed, 1, 1e12 })
		}, "1: broker 2 epoch 1 (retry after failure 1)\n"},
		{"deleting, owners work", func(w *world, topic *cluster.Topic) { topic.Deleting = true }, ""},
		{"deleting, owner dead", func(w *world, topic *cluster.Topic) { topic.Deleting = true; w.stop(1) },
			"0: broker 2 epoch 1 (its topic is being deleted and its owner is dead)\n2: broker 2 epoch 1 (its topic is being deleted and its owner is dead)\n"},
		{"deleting, never placed", func(w *world, topic *cluster.Topic) { topic.Deleting = true; clear(w.assign) }, "free name\n"},
		{"deleting, done", func(w *world, topic *cluster.Topic) {
			topic.Deleting = true
			for p := range topic.Partitions {
				w.set(topic, p, func(a *cluster.Assignment) { a.State = cluster.Deleted })
			}
			w.stop(1)
		}, "free name\n"},
		{"deleting, released before", func(w *world, topic *cluster.Topic) {
			topic.Deleting = true
			for p := range topic.Partitions {
				w.set(topic, p, func(a *cluster.Assignment) { a.State = cluster.Deleted })
			}
			w.set(topic, 1, func(a *cluster.Assignment) {
				a.State, a.Owner, a.OwnerIncarnation = cluster.Unassigned, cluster.NoBroker, ""
			})
		}, "1: broker 2 epoch 1 (released)\n"},
		{"coordinator is reserved", func(w *world, topic *cluster.Topic) { clear(w.assign); w.broker(2, 1, cluster.LabelCoordinator) },
			"0: broker 1 epoch 0 (new partition)\n1: broker 1 epoch 0 (new partition)\n2: broker 1 epoch 0 (new partition)\n"},
		{"internal goes to coordinators", func(w *world, topic *cluster.Topic) {
			clear(w.assign)
			topic.Internal = true
			w.broker(2, 1, cluster.LabelCoordinator)
		}, "0: broker 2 epoch 0 (new partition)\n1: broker 2 epoch 0 (new partition)\n2: broker 2 epoch 0 (new partition)\n"},
		{"draining gets nothing", func(w *world, topic *cluster.Topic) { clear(w.assign); w.brokers[0].Draining = true },
			"0: broker 2 epoch 0 (new partition)\n1: broker 2 epoch 0 (new partition)\n2: broker 2 epoch 0 (new partition)\n"},
		{"controllers get nothing", func(w *world, topic *cluster.Topic) {
			clear(w.assign)
			w.brokers[0].Roles = []string{"controller"}
			w.brokers[1].Roles = []string{"broker", "controller"}
		}, "0: broker 2 epoch 0 (new partition)\n1: broker 2 epoch 0 (new partition)\n2: broker 2 epoch 0 (new partition)\n"},
		{"weight counts", func(w *world, topic *cluster.Topic) { clear(w.assign); topic.Partitions = 4; w.brokers[1].Weight = 3 },
			"0: broker 1 epoch 0 (new partition)\n1: broker 2 epoch 0 (new partition)\n2: broker 2 epoch 0 (new partition)\n3: broker 2 epoch 0 (new partition)\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.broker(1, 1)
			w.broker(2, 1)
			topic := w.topic(1, 3, false)
			w.apply(t, Plan(w, nil, 0))
			tc.do(w, topic)
			changes := Plan(w, nil, 100_000)
			require.Equal(t, tc.want, show(w, changes))
			w.apply(t, changes)
			require.Empty(t, Plan(w, nil, 100_000), "no change is due twice")
		})
	}
}

func TestPlanTellsWhenTheNextRetryIsDue(t *testing.T) {
	w := newWorld()
	w.broker(1, 1)
	topic := w.topic(1, 2, false)
	w.apply(t, Plan(w, nil, 0))
	_, next := planAt(w, nil, 0)
	require.Equal(t, NeverDue, next)
	for p, failures := range []int32{1, 4} {
		w.set(topic, int32(p), func(a *cluster.Assignment) { a.State, a.Failures, a.FailedAt = cluster.Failed, failures, 5000 })
	}
	changes, next := planAt(w, nil, 5999)
	require.Empty(t, changes)
	require.Equal(t, int64(6000), next)
	changes, next = planAt(w, nil, next)
	require.Len(t, changes, 1)
	require.Equal(t, int64(13000), next)
	require.Equal(t, int64(60000), backoff(1<<30))
}

// TestPlanSimulation drives a cluster through random failures, moves and deletions
// and checks that plans converge and keep the rules at every step.
func TestPlanSimulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, now := newWorld(), int64(1_000_000)
		runs := map[int32]int{}
		up := func(id int32) {
			runs[id]++
			labels := []string{}
			if id == 1 {
				labels = append(labels, cluster.LabelCoordinator)
			}
			w.broker(id, runs[id], labels...)
		}
		up(1)
		epochs := map[frame.PartitionID]int32{}
		for step := range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				up(rapid.Int32Range(1, 6).Draw(t, "up"))
			case 1:
				w.stop(rapid.Int32Range(1, 6).Draw(t, "down"))
			case 2:
				w.topic(1000+step, rapid.Int32Range(1, 12).Draw(t, "partitions"), rapid.Bool().Draw(t, "internal"))
			case 3:
				if len(w.topics) > 0 {
					rapid.SampledFrom(w.topics).Draw(t, "deleted").Deleting = true
				}
			case 4:
				if len(w.topics) > 0 {
					rapid.SampledFrom(w.topics).Draw(t, "grown").Partitions++
				}
			case 5:
				now += rapid.Int64Range(0, 30_000).Draw(t, "wait")
			}
			owners(t, w, now)
			plan := Plan(w, nil, now)
			require.Equal(t, plan, Plan(w, nil, now), "a plan depends on its arguments only")
			w.apply(t, plan)
			require.Empty(t, Plan(w, nil, now), "plans converge in one step")
			for id, a := range w.assign {
				require.GreaterOrEqual(t, a.Epoch, epochs[id], "an epoch never falls")
				epochs[id] = a.Epoch
			}
		}
	})
}

// owners lets live owners do one random thing to each of their partitions.
func owners(t *rapid.T, w *world, now int64) {
	ids := make([]frame.PartitionID, 0, len(w.assign))
	for id := range w.assign {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, frame.PartitionID.Compare)
	for _, id := range ids {
		a := w.assign[id]
		if i := slices.IndexFunc(w.brokers, func(b cluster.Broker) bool {
			return b.ID == a.Owner && b.Incarnation == a.OwnerIncarnation
		}); i < 0 {
			continue
		}
		topic := w.topics[slices.IndexFunc(w.topics, func(x *cluster.Topic) bool { return x.ID == id.Topic })]
		to := rapid.SampledFrom([]cluster.State{cluster.Recovering, cluster.Writing, cluster.Draining, cluster.Unassigned, cluster.Failed}).Draw(t, "to")
		if topic.Deleting {
			to = cluster.Deleted
		}
		if !cluster.OwnerMay(a.State, to) || to == cluster.Starting {
			continue
		}
		a.State = to
		switch to {
		case cluster.Failed:
			a.Failures, a.FailedAt = a.Failures+1, now
		case cluster.Unassigned:
			a.Owner, a.OwnerIncarnation = cluster.NoBroker, ""
		}
		w.assign[id] = a
	}
}
