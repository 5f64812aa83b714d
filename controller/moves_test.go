package controller

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

const testNow = int64(100_000)

// movesWorld has three brokers and a topic of three partitions, each Writing and
// not Safe at the broker of its number plus one.
func movesWorld(t testing.TB) (*world, *cluster.Topic) {
	w := newWorld()
	for id := range int32(3) {
		w.broker(id+1, 1)
	}
	topic := w.topic(1, 3, false)
	w.apply(t, Plan(w, nil, 0))
	for p := range topic.Partitions {
		w.set(topic, p, func(a *cluster.Assignment) { a.State, a.Safe = cluster.Writing, false })
	}
	return w, topic
}

func (w *world) wish(topic *cluster.Topic, p, target int32, since int64, force bool) {
	id := frame.PartitionID{Topic: topic.ID, Partition: p}
	w.wishes[id] = cluster.MoveWish{ID: id, Target: target, Since: since, Force: force, Goal: "test"}
}

func to(target int32, since int64) func(*cluster.Assignment) {
	return func(a *cluster.Assignment) { a.Target, a.TargetSince = target, since }
}

func unready(target int32, at int64) func(*cluster.Assignment) {
	return func(a *cluster.Assignment) { a.Unready, a.UnreadyAt = target, at }
}

func state(s cluster.State) func(*cluster.Assignment) {
	return func(a *cluster.Assignment) { a.State = s }
}

func TestPlanMoves(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(w *world, topic *cluster.Topic)
		want string
	}{
		{"drain by operator", func(w *world, _ *cluster.Topic) { w.drains[1] = cluster.BrokerWish{Draining: true} },
			"0: begin_move to 2 (broker 1 is drained)\n"},
		{"removal drains", func(w *world, _ *cluster.Topic) { w.drains[2] = cluster.BrokerWish{Removed: true} },
			"1: begin_move to 1 (broker 2 is drained)\n"},
		{"shutdown drains", func(w *world, _ *cluster.Topic) { w.brokers[2].Draining = true },
			"2: begin_move to 1 (broker 3 is drained)\n"},
		{"drain of all moves nothing", func(w *world, _ *cluster.Topic) {
			for id := range int32(3) {
				w.drains[id+1] = cluster.BrokerWish{Draining: true}
			}
		}, ""},
		{"drain waits for recovery", func(w *world, topic *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.set(topic, 0, state(cluster.Recovering))
		}, ""},
		{"a move goes on", func(w *world, topic *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.set(topic, 0, to(2, testNow-1000))
		}, ""},
		{"drain is taken back", func(w *world, topic *cluster.Topic) { w.set(topic, 0, to(2, testNow-1000)) },
			"0: stop_move to -1 (nobody wants it any more)\n"},
		{"taken back too late", func(w *world, topic *cluster.Topic) {
			w.set(topic, 0, to(2, testNow-1000))
			w.set(topic, 0, state(cluster.Draining))
		}, ""},
		{"target dead", func(w *world, topic *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.set(topic, 0, to(2, testNow-1000))
			w.set(topic, 0, state(cluster.Draining))
			w.stop(2)
		}, "0: stop_move to -1 (broker 2, its target, is dead)\n"},
		{"target drains", func(w *world, topic *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.brokers[1].Draining = true
			w.set(topic, 0, to(2, testNow-1000))
		}, "0: stop_move to -1 (broker 2, its target, is being drained)\n1: begin_move to 3 (broker 2 is drained)\n"},
		{"stuck", func(w *world, topic *cluster.Topic) {
			w.wish(topic, 0, 2, testNow-70_000, false)
			w.set(topic, 0, to(2, testNow-60_000))
			w.set(topic, 0, state(cluster.Draining))
		}, "0: end wish for 2, done false (the move to broker 2 took longer than 60000 ms)\n" +
			"0: stop_move to -1 (the move to broker 2 took longer than 60000 ms)\n"},
		{"target is not ready yet", func(w *world, topic *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.set(topic, 0, to(2, testNow-4_999))
		}, ""},
		{"target is ready", func(w *world, topic *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.set(topic, 0, to(2, testNow-9_000))
			w.set(topic, 0, func(a *cluster.Assignment) { a.Warm = true })
		}, ""},
		{"target is never ready", func(w *world, topic *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.set(topic, 0, to(2, testNow-5_000))
		}, "0: stop_move to -1 (broker 2 was not ready for it within 5000 ms)\n"},
		{"another target is chosen", func(w *world, topic *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.set(topic, 0, unready(2, testNow))
		}, "0: begin_move to 3 (broker 1 is drained)\n"},
		{"there is no other target", func(w *world, topic *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.drains[3] = cluster.BrokerWish{Draining: true}
			w.set(topic, 0, unready(2, testNow-29_999))
			w.set(topic, 2, func(a *cluster.Assignment) { a.Owner, a.OwnerIncarnation = 2, w.alive(2).Incarnation })
		}, ""},
		{"there is no other target, after a rest", func(w *world, topic *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.drains[3] = cluster.BrokerWish{Draining: true}
			w.set(topic, 0, unready(2, testNow-30_000))
			w.set(topic, 2, func(a *cluster.Assignment) { a.Owner, a.OwnerIncarnation = 2, w.alive(2).Incarnation })
		}, "0: begin_move to 2 (broker 1 is drained)\n"},
		{"there is no other target and the broker stops", func(w *world, topic *cluster.Topic) {
			w.brokers[0].Draining = true
			w.drains[3] = cluster.BrokerWish{Draining: true}
			w.set(topic, 0, unready(2, testNow))
			w.set(topic, 2, func(a *cluster.Assignment) { a.Owner, a.OwnerIncarnation = 2, w.alive(2).Incarnation })
		}, "0: begin_move to 2 (broker 1 is drained)\n"},
		{"a wish waits for a target that was not ready", func(w *world, topic *cluster.Topic) {
			w.wish(topic, 0, 3, testNow, false)
			w.set(topic, 0, unready(3, testNow-10_000))
		}, ""},
		{"a wish ends when its target was not ready twice", func(w *world, topic *cluster.Topic) {
			w.wish(topic, 0, 3, testNow-50_000, false)
			w.set(topic, 0, unready(3, testNow-35_000))
			w.set(topic, 0, to(3, testNow-5_000))
		}, "0: end wish for 3, done false (broker 3 was not ready for it within 5000 ms)\n" +
			"0: stop_move to -1 (broker 3 was not ready for it within 5000 ms)\n"},
		{"owner dead while it drains, safe", func(w *world, topic *cluster.Topic) {
			w.set(topic, 0, func(a *cluster.Assignment) {
				a.State, a.Safe, a.Target, a.TargetSince = cluster.Draining, true, 3, testNow
			})
			w.stop(1)
		}, "0: broker 3 epoch 1 (broker 1 is dead)\n"},
		{"owner dead while it drains, not safe", func(w *world, topic *cluster.Topic) {
			w.set(topic, 0, func(a *cluster.Assignment) { a.State, a.Target, a.TargetSince = cluster.Draining, 3, testNow })
			w.stop(1)
		}, ""},
		{"wish", func(w *world, topic *cluster.Topic) { w.wish(topic, 0, 3, testNow, false) },
			"0: begin_move to 3 (wished by an operator: test)\n"},
		{"wish is fulfilled", func(w *world, topic *cluster.Topic) { w.wish(topic, 0, 1, testNow, false) },
			"0: end wish for 1, done true (it is there)\n"},
		{"wish is all but fulfilled", func(w *world, topic *cluster.Topic) {
			w.wish(topic, 0, 1, testNow, false)
			w.set(topic, 0, state(cluster.Recovering))
		}, ""},
		{"wish is replaced", func(w *world, topic *cluster.Topic) {
			w.wish(topic, 0, 3, testNow, false)
			w.set(topic, 0, to(2, testNow))
		}, "0: stop_move to -1 (broker 3 is wished instead)\n"},
		{"wish for a draining broker", func(w *world, topic *cluster.Topic) {
			w.wish(topic, 0, 2, testNow, false)
			w.drains[2] = cluster.BrokerWish{Draining: true}
		}, "0: end wish for 2, done false (broker 2 is being drained)\n1: begin_move to 1 (broker 2 is drained)\n"},
		{"wish for a dead broker waits", func(w *world, topic *cluster.Topic) { w.wish(topic, 0, 7, testNow-59_999, false) }, ""},
		{"wish for a dead broker ends", func(w *world, topic *cluster.Topic) { w.wish(topic, 0, 7, testNow-60_000, false) },
			"0: end wish for 7, done false (broker 7 is dead)\n"},
		{"wish for no partition", func(w *world, topic *cluster.Topic) { w.wish(topic, 3, 2, testNow, false) },
			"3: end wish for 2, done false (there is no such partition)\n"},
		{"wish, owner dead and not safe", func(w *world, topic *cluster.Topic) {
			w.wish(topic, 0, 2, testNow-60_000, false)
			w.stop(1)
		}, "0: end wish for 2, done false (broker 1 is dead and may hold the only copy: only force moves it)\n"},
		{"wish, owner dead and safe", func(w *world, topic *cluster.Topic) {
			w.wish(topic, 0, 3, testNow, false)
			w.set(topic, 0, func(a *cluster.Assignment) { a.Safe = true })
			w.stop(1)
		}, "0: broker 3 epoch 1 (broker 1 is dead)\n"},
		{"force, owner dead", func(w *world, topic *cluster.Topic) {
			w.wish(topic, 0, 3, testNow, true)
			w.stop(1)
		}, "0: broker 3 epoch 1 (broker 1 is dead and an operator gives up what only it may have)\n"},
		{"force, owner serves", func(w *world, topic *cluster.Topic) { w.wish(topic, 0, 3, testNow, true) },
			"0: begin_move to 3 (wished by an operator: test)\n"},
		{"force, owner failed", func(w *world, topic *cluster.Topic) {
			w.wish(topic, 0, 3, testNow, true)
			w.set(topic, 0, func(a *cluster.Assignment) { a.State, a.Failures, a.FailedAt = cluster.Failed, 9, testNow })
		}, "0: broker 3 epoch 1 (it failed at broker 1 and an operator gives up what only that may have)\n"},
		{"restarted while it drains, safe", func(w *world, topic *cluster.Topic) {
			w.set(topic, 0, func(a *cluster.Assignment) { a.Safe = true })
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.broker(1, 2)
		}, "0: broker 2 epoch 1 (broker 1 restarted and is draining)\n"},
		{"restarted while it drains, not safe", func(w *world, _ *cluster.Topic) {
			w.drains[1] = cluster.BrokerWish{Draining: true}
			w.broker(1, 2)
		}, "0: broker 1 epoch 1 (broker restarted)\n"},
		{"a topic that is deleted does not move", func(w *world, topic *cluster.Topic) {
			topic.Deleting = true
			w.wish(topic, 0, 3, testNow, false)
			w.set(topic, 1, to(3, testNow))
		}, "0: end wish for 3, done false (its topic is being deleted)\n1: stop_move to -1 (nobody wants it any more)\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, topic := movesWorld(t)
			tc.do(w, topic)
			changes := Plan(w, nil, testNow)
			require.Equal(t, tc.want, show(w, changes))
			w.apply(t, changes)
			for range 3 {
				w.apply(t, Plan(w, nil, testNow))
			}
			require.Empty(t, Plan(w, nil, testNow), "plans converge")
		})
	}
}

// An operator's place for a partition is remembered where it gets there, and as long as it stays there.
func TestPlacedByAnOperator(t *testing.T) {
	w, topic := movesWorld(t)
	id := frame.PartitionID{Topic: topic.ID}
	w.wishes[id] = cluster.MoveWish{ID: id, Target: 1, Since: testNow, Keep: true}
	require.Equal(t, "0: broker 1 epoch 0 (it is there, and an operator wants to keep it there)\n", show(w, Plan(w, nil, testNow)))
	w.apply(t, Plan(w, nil, testNow))
	require.True(t, w.assign[id].Placed)
	require.Contains(t, show(w, Plan(w, nil, testNow)), "0: end wish for 1, done true")
	w.apply(t, Plan(w, nil, testNow))
	require.Empty(t, Plan(w, nil, testNow))

	w.broker(1, 2)
	w.apply(t, Plan(w, nil, testNow))
	require.Equal(t, int32(1), w.assign[id].Owner)
	require.True(t, w.assign[id].Placed, "its broker restarted")
	w.set(topic, 0, func(a *cluster.Assignment) { a.State, a.Safe = cluster.Writing, true })
	w.stop(1)
	w.apply(t, Plan(w, nil, testNow))
	require.NotEqual(t, int32(1), w.assign[id].Owner)
	require.False(t, w.assign[id].Placed, "it is elsewhere")
}

func TestForcedStartJumps(t *testing.T) {
	w, topic := movesWorld(t)
	w.wish(topic, 0, 3, testNow, true)
	w.stop(1)
	w.apply(t, Plan(w, nil, testNow))
	id := frame.PartitionID{Topic: topic.ID}
	a := w.assign[id]
	require.True(t, a.Jump)
	require.True(t, a.Safe, "all there is from here on is in the bucket")
	w.broker(3, 2)
	w.apply(t, Plan(w, nil, testNow))
	require.True(t, w.assign[id].Jump, "kept until an owner is Writing")
	w.set(topic, 0, state(cluster.Writing))
	require.Contains(t, show(w, Plan(w, nil, testNow)), "0: end wish for 3, done true")

	// What was safe is not lost by force.
	w, topic = movesWorld(t)
	w.set(topic, 0, func(a *cluster.Assignment) { a.Safe = true })
	w.wish(topic, 0, 3, testNow, true)
	w.stop(1)
	w.apply(t, Plan(w, nil, testNow))
	require.False(t, w.assign[id].Jump)
	require.Equal(t, int32(3), w.assign[id].Owner)
}

func TestMovesAreBounded(t *testing.T) {
	w := newWorld()
	for id := range int32(6) {
		w.broker(id+1, 1)
	}
	topic := w.topic(1, 60, false)
	w.apply(t, Plan(w, nil, 0))
	for p := range topic.Partitions {
		w.set(topic, p, state(cluster.Writing))
	}
	w.limits.Max, w.limits.MaxPerBroker = 7, 3
	w.drains[1], w.drains[2] = cluster.BrokerWish{Draining: true}, cluster.BrokerWish{Draining: true}
	w.brokers[2].Draining = true
	w.wish(topic, 3, 5, testNow, false) // at broker 4
	moved := 0
	for w.owned()[1]+w.owned()[2]+w.owned()[3] > 0 || len(w.wishes) > 0 {
		w.apply(t, Plan(w, nil, testNow))
		require.Empty(t, Plan(w, nil, testNow))
		total, from, to := 0, map[int32]int{}, map[int32]int{}
		for _, a := range w.assign {
			if a.Target != cluster.NoBroker {
				total++
				from[a.Owner]++
				to[a.Target]++
			}
		}
		require.LessOrEqual(t, total, 7)
		for id := range int32(7) {
			require.LessOrEqual(t, from[id], 3)
			require.LessOrEqual(t, to[id], 3)
		}
		if w.owned()[3] > 0 {
			require.Equal(t, min(3, w.owned()[3]), from[3], "a broker that shuts down goes first")
		}
		for id, a := range w.assign {
			if a.Target != cluster.NoBroker {
				moved++
				b := w.alive(a.Target)
				w.assign[id] = cluster.Assignment{Owner: a.Target, OwnerIncarnation: b.Incarnation, Epoch: a.Epoch + 1,
					State: cluster.Writing, Target: cluster.NoBroker, Safe: true}
			}
		}
	}
	require.Equal(t, 31, moved, "each once")
	for id := range int32(3) {
		require.InDelta(t, 20, w.owned()[id+4], 1.5)
	}
}

func TestPoisonedPartitionWandersSlowly(t *testing.T) {
	w := newWorld()
	for id := range int32(5) {
		w.broker(id+1, 1)
	}
	w.topic(1, 1, false)
	w.apply(t, Plan(w, nil, 0))
	now, deaths := testNow, 0
	for range 20 {
		var owner int32
		for _, a := range w.assign {
			owner = a.Owner
		}
		w.broker(owner, 99) // comes back at once, but the partition is gone from it
		w.stop(owner)
		deaths++
		changes, next := planAt(w, nil, now)
		if len(changes) == 0 {
			require.NotEqual(t, NeverDue, next)
			require.LessOrEqual(t, next-now, int64(retryMost))
			now = next
			changes, _ = planAt(w, nil, now)
		}
		require.Len(t, changes, 1)
		w.apply(t, changes)
		w.broker(owner, 100+deaths)
	}
	require.Greater(t, now-testNow, int64(10*retryMost), "it can not take one broker after the other along")
}

func TestRacksShareATopic(t *testing.T) {
	w := newWorld()
	for id := range int32(6) {
		w.broker(id+1, 1)
		w.brokers[id].Rack = "a"
		if id == 5 {
			w.brokers[id].Rack = "b"
		}
	}
	topic := w.topic(1, 12, false)
	w.apply(t, Plan(w, nil, 0))
	require.Equal(t, 2, w.owned()[6], "by weight: one of six brokers")
	w.brokers[5].Weight = 5
	clear(w.assign)
	w.apply(t, Plan(w, nil, 0))
	require.Equal(t, 6, w.owned()[6])
	_ = topic
}

func TestFailoverSpreadsByBytes(t *testing.T) {
	w, _ := movesWorld(t)
	extra := w.topic(2, 1, false)
	id := frame.PartitionID{Topic: extra.ID}
	loads := Loads{}
	for p, a := range w.assign {
		if a.Owner == 1 || a.Owner == 2 {
			loads[p] = Load{In: 1e6}
		}
	}
	require.Equal(t, "0: broker 3 epoch 0 (new partition)\n", show(w, Plan(w, loads, testNow)))
	loads = Loads{}
	for p, a := range w.assign {
		if a.Owner != 2 {
			loads[p] = Load{Out: 1e6}
		}
	}
	require.Equal(t, "0: broker 2 epoch 0 (new partition)\n", show(w, Plan(w, loads, testNow)))
	_ = id
}

func TestFlappingBrokerLosesWhatIsSafe(t *testing.T) {
	w, topic := movesWorld(t)
	id := frame.PartitionID{Topic: topic.ID}
	for _, safe := range []bool{true, false} {
		w.set(topic, 0, func(a *cluster.Assignment) {
			*a = cluster.Assignment{Owner: 1, OwnerIncarnation: w.alive(1).Incarnation, Epoch: a.Epoch + 1, State: cluster.Writing,
				Target: cluster.NoBroker, Safe: safe}
		})
		for run := range 4 { // it never comes to Writing
			w.broker(1, int(w.assign[id].Epoch)*10+run+10)
			w.apply(t, Plan(w, nil, testNow))
			a := w.assign[id]
			if safe && run == 3 {
				require.NotEqual(t, int32(1), a.Owner)
				break
			}
			require.Equal(t, int32(1), a.Owner, "run %d", run)
			require.Equal(t, int32(run), a.Failures)
		}
		w.set(topic, 0, state(cluster.Writing))
		require.Empty(t, Plan(w, nil, testNow))
	}
}
