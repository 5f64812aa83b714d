package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

func TestBrokerWishes(t *testing.T) {
	ctx := testContext(t)
	c := startClient(t, startEtcd(t))
	require.NoError(t, c.SetBrokerWish(ctx, 7, BrokerWish{Draining: true, Why: strings.Repeat("w", 300)}), "it need not live")
	w, ok := c.Image().BrokerWish(7)
	require.True(t, ok)
	require.True(t, w.Drains())
	require.Len(t, w.Why, maxWishText)
	require.InDelta(t, time.Now().UnixMilli(), w.Since, 60_000)
	require.NoError(t, c.SetBrokerWish(ctx, 7, BrokerWish{Removed: true, Since: 5}))
	w, _ = c.Image().BrokerWish(7)
	require.Equal(t, BrokerWish{Removed: true, Since: 5}, w)
	require.NoError(t, c.SetBrokerWish(ctx, 7, BrokerWish{}))
	require.NoError(t, c.SetBrokerWish(ctx, 7, BrokerWish{}), "twice is fine")
	require.Empty(t, c.Image().BrokerWishes())
	require.Error(t, c.SetBrokerWish(ctx, -1, BrokerWish{Draining: true}))
}

func TestRemovedBrokerIsRefusedOnceItOwnsNothing(t *testing.T) {
	ctx := testContext(t)
	c := startClient(t, startEtcd(t))
	term := lead(t, c, register(t, c, 1, "run-1"))
	topic, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 1})
	require.NoError(t, err)
	placeAt(t, term, topic, 2, "run-2")
	require.NoError(t, c.SetBrokerWish(ctx, 2, BrokerWish{Removed: true}))
	s, err := c.Register(ctx, Broker{ID: 2, Incarnation: "run-3", Identity: "disk-2"}, 5*time.Second)
	require.NoError(t, err, "its disk may hold the only copy of what it owns")
	require.NoError(t, s.Close())

	id := frame.PartitionID{Topic: topic.ID}
	old, _ := c.Image().Assignment(id)
	next := old
	next.Owner, next.OwnerIncarnation, next.Epoch = 1, "run-1", 1
	require.NoError(t, term.Apply(ctx, []Change{{ID: id, Exists: true, Old: old, New: next}}))
	_, err = c.Register(ctx, Broker{ID: 2, Incarnation: "run-4", Identity: "disk-2"}, 5*time.Second)
	require.ErrorIs(t, err, ErrBrokerRemoved)
	require.NoError(t, c.SetBrokerWish(ctx, 2, BrokerWish{}))
	register(t, c, 2, "run-5")
}

func TestMoveWishes(t *testing.T) {
	ctx := testContext(t)
	c := startClient(t, startEtcd(t))
	s := register(t, c, 1, "run-1")
	term := lead(t, c, s)
	two := register(t, c, 2, "run-2")
	topic, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 250})
	require.NoError(t, err)
	at := func(p int32) frame.PartitionID { return frame.PartitionID{Topic: topic.ID, Partition: p} }
	for name, w := range map[string]MoveWish{
		"unknown topic":     {ID: frame.PartitionID{}, Target: 2},
		"unknown partition": {ID: at(250), Target: 2},
		"unknown broker":    {ID: at(0), Target: 3},
	} {
		require.ErrorIs(t, c.SetMoves(ctx, []MoveWish{{ID: at(1), Target: 2}, w}), ErrInvalidMove, name)
		require.Empty(t, c.Image().Moves(), "%s: all or nothing", name)
	}
	var moves []MoveWish
	var ids []frame.PartitionID
	for p := range topic.Partitions {
		moves = append(moves, MoveWish{ID: at(p), Target: 2, Since: 1, Goal: "count", Force: p == 7})
		ids = append(ids, at(p))
	}
	require.NoError(t, c.SetMoves(ctx, moves))
	got := c.Image().Moves()
	require.Len(t, got, len(moves))
	for i := range got {
		require.Positive(t, got[i].Revision)
		moves[i].Revision = got[i].Revision
	}
	require.Equal(t, moves, got, "sorted by partition")

	// The controller ends those that are done, but not one that was replaced meanwhile.
	require.NoError(t, c.SetMoves(ctx, []MoveWish{{ID: at(3), Target: 1, Since: 9}}))
	require.NoError(t, term.EndMoves(ctx, got[:120]))
	require.NoError(t, term.EndMoves(ctx, got[:120]), "twice is fine")
	left := c.Image().Moves()
	require.Len(t, left, 131)
	w, ok := c.Image().Move(at(3))
	require.True(t, ok)
	require.Equal(t, int64(9), w.Since)
	require.NoError(t, c.CancelMoves(ctx, ids))
	require.NoError(t, c.CancelMoves(ctx, ids), "those without a wish are fine")
	require.Empty(t, c.Image().Moves())

	// The controller's own moves give way to those of operators.
	require.NoError(t, c.SetMoves(ctx, []MoveWish{{ID: at(3), Target: 1, Since: 9}}))
	require.NoError(t, term.SetMoves(ctx, moves[:150]))
	require.NoError(t, term.SetMoves(ctx, moves[:150]), "twice is fine")
	require.Len(t, c.Image().Moves(), 150)
	w, _ = c.Image().Move(at(3))
	require.Equal(t, int64(9), w.Since)
	w, _ = c.Image().Move(at(149))
	require.Equal(t, int32(2), w.Target)
	require.NoError(t, c.CancelMoves(ctx, ids))

	require.NoError(t, c.SetBrokerWish(ctx, 2, BrokerWish{Draining: true}))
	require.ErrorIs(t, c.SetMoves(ctx, moves[:1]), ErrInvalidMove)
	require.NoError(t, c.SetBrokerWish(ctx, 2, BrokerWish{}))
	require.NoError(t, c.SetMoves(ctx, moves[:1]))
	require.NoError(t, two.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, term.EndMoves(ctx, c.Image().Moves()), ErrNotLeader)
	require.ErrorIs(t, term.SetMoves(ctx, moves[1:2]), ErrNotLeader)
}
