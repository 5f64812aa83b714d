package cluster

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

// moveTest is a topic of one partition at broker 1 in state Writing.
type moveTest struct {
	t    *testing.T
	ctx  context.Context
	c    *Client
	term *Term
	id   frame.PartitionID
}

func newMoveTest(t *testing.T) *moveTest {
	ctx := testContext(t)
	c := startClient(t, startEtcd(t))
	term := lead(t, c, register(t, c, 1, "run-1"))
	topic, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 1})
	require.NoError(t, err)
	placeAt(t, term, topic, 1, "run-1")
	m := &moveTest{t, ctx, c, term, frame.PartitionID{Topic: topic.ID}}
	require.NoError(t, m.transition(Starting, Writing))
	return m
}

func (m *moveTest) assignment() Assignment {
	a, ok := m.c.Image().Assignment(m.id)
	require.True(m.t, ok)
	return a
}

func (m *moveTest) transition(from, to State, change ...func(*Transition)) error {
	t := Transition{ID: m.id, Owner: 1, OwnerIncarnation: "run-1", From: from, To: to}
	for _, f := range change {
		f(&t)
	}
	return m.c.Transition(m.ctx, []Transition{t})
}

func (m *moveTest) target(broker int32) error {
	old := m.assignment()
	next := old
	next.Target, next.TargetSince, next.Warm = broker, 5, false
	return m.term.Apply(m.ctx, []Change{{ID: m.id, Exists: true, Old: old, New: next}})
}

func safe(v bool) func(*Transition) { return func(t *Transition) { t.Safe = &v } }

func handOver(t *Transition) { t.HandOver, t.NewOwner, t.NewIncarnation = true, 2, "run-2" }

func TestSafeBelongsToTheOwner(t *testing.T) {
	m := newMoveTest(t)
	planned := m.assignment()
	require.NoError(t, m.transition(Writing, Writing, safe(true)))
	require.NoError(t, m.transition(Writing, Writing, safe(true)), "made already")
	require.True(t, m.assignment().Safe)
	require.Error(t, m.transition(Writing, Writing), "a change that changes nothing")
	require.ErrorIs(t, m.transition(Writing, Writing, safe(false), func(t *Transition) { t.Epoch = 1 }), ErrFenced)

	next := planned
	next.Target = 2
	require.ErrorIs(t, m.term.Apply(m.ctx, []Change{{ID: m.id, Exists: true, Old: planned, New: next}}), ErrFenced,
		"the controller must not undo what the owner wrote meanwhile")
	require.True(t, m.assignment().Safe)

	require.NoError(t, m.transition(Writing, Draining))
	require.True(t, m.assignment().Safe, "nil leaves it")
	require.NoError(t, m.transition(Draining, Writing, safe(false)))
	require.False(t, m.assignment().Safe)
	require.NoError(t, m.transition(Draining, Writing, safe(true)), "Writing already; Safe is the owner's latest word")
	require.True(t, m.assignment().Safe)
}

func TestWarmBelongsToTheTarget(t *testing.T) {
	m := newMoveTest(t)
	w := []Warmed{{ID: m.id, Owner: 1, OwnerIncarnation: "run-1"}, {ID: frame.PartitionID{Partition: 9}}}
	require.NoError(t, m.c.MarkWarm(m.ctx, 2, w), "losers are passed over")
	require.False(t, m.assignment().Warm)
	require.NoError(t, m.target(2))
	require.NoError(t, m.c.MarkWarm(m.ctx, 3, w))
	require.False(t, m.assignment().Warm, "another broker is the target")
	other := []Warmed{{ID: m.id, Owner: 1, OwnerIncarnation: "run-0"}, {ID: m.id, Owner: 1, OwnerIncarnation: "run-1", Epoch: 1}}
	require.NoError(t, m.c.MarkWarm(m.ctx, 2, other))
	require.False(t, m.assignment().Warm, "another ownership was looked at")
	require.NoError(t, m.c.MarkWarm(m.ctx, 2, w))
	require.NoError(t, m.c.MarkWarm(m.ctx, 2, w))
	a := m.assignment()
	require.True(t, a.Warm)
	require.Equal(t, Writing, a.State)
	require.NoError(t, m.target(3))
	require.False(t, m.assignment().Warm)
}

func TestHandOver(t *testing.T) {
	m := newMoveTest(t)
	require.NoError(t, m.target(2))
	require.Error(t, m.transition(Writing, Starting, handOver), "it has to drain first")
	require.NoError(t, m.transition(Writing, Draining))
	require.Error(t, m.transition(Draining, Starting), "Starting is the controller's but for a hand-over")
	require.Error(t, m.transition(Draining, Starting, handOver, func(t *Transition) { t.NewIncarnation = "" }))

	require.NoError(t, m.target(3))
	require.ErrorIs(t, m.transition(Draining, Starting, handOver), ErrFenced, "the target is another one by now")
	require.NoError(t, m.target(2))
	require.NoError(t, m.c.MarkWarm(m.ctx, 2, []Warmed{{ID: m.id, Owner: 1, OwnerIncarnation: "run-1"}}))
	require.NoError(t, m.transition(Draining, Starting, handOver, safe(true)))
	want := Assignment{Owner: 2, OwnerIncarnation: "run-2", Epoch: 1, State: Starting, Target: NoBroker, Safe: true}
	require.Equal(t, want, m.assignment())

	require.NoError(t, m.transition(Draining, Starting, handOver), "the retry of a lost answer")
	require.NoError(t, m.c.Transition(m.ctx, []Transition{{ID: m.id, Owner: 2, OwnerIncarnation: "run-2", Epoch: 1, From: Starting, To: Writing}}))
	require.NoError(t, m.transition(Draining, Starting, handOver), "also when the new owner is further on")
	require.ErrorIs(t, m.transition(Draining, Writing), ErrFenced, "the old owner owns nothing")
	require.Equal(t, Writing, m.assignment().State)
}
