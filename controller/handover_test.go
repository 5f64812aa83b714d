package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// owner does in etcd what a broker does with its partitions, until ctx ends; what it
// loses it looks at again.
func (n *node) owner(ctx context.Context) error {
	img := n.client.Image()
	for {
		var ts []cluster.Transition
		var warm []cluster.Warmed
		for id, a := range img.Assignments() {
			if a.Target == n.broker.ID && !a.Warm {
				warm = append(warm, cluster.Warmed{ID: id, Owner: a.Owner, OwnerIncarnation: a.OwnerIncarnation, Epoch: a.Epoch})
			}
			if a.Owner != n.broker.ID || a.OwnerIncarnation != n.broker.Incarnation {
				continue
			}
			if t, ok := ownerStep(img, id, &a); ok {
				ts = append(ts, t)
			}
		}
		if err := n.client.MarkWarm(ctx, n.broker.ID, warm); err != nil {
			return err
		}
		if err := n.client.Transition(ctx, ts); err != nil && !errors.Is(err, cluster.ErrFenced) {
			return err
		}
		var err error
		if img, err = n.client.Wait(ctx, img.Revision()); err != nil {
			return err
		}
	}
}

// ownerStep returns the next transition of an owner, if there is one.
func ownerStep(img *cluster.Image, id frame.PartitionID, a *cluster.Assignment) (cluster.Transition, bool) {
	yes := true
	t := cluster.Transition{ID: id, Owner: a.Owner, OwnerIncarnation: a.OwnerIncarnation, Epoch: a.Epoch, From: a.State}
	switch {
	case a.State == cluster.Starting:
		t.To = cluster.Recovering
	case a.State == cluster.Recovering:
		t.To, t.Safe = cluster.Writing, &yes
	case a.State == cluster.Writing && a.Warm:
		t.To = cluster.Draining
	case a.State == cluster.Draining:
		b, alive := img.Broker(a.Target)
		if !alive {
			t.To = cluster.Writing
			break
		}
		t.To, t.HandOver, t.NewOwner, t.NewIncarnation, t.Safe = cluster.Starting, true, b.ID, b.Incarnation, &yes
	default:
		return t, false
	}
	return t, true
}

func served(by int32, partitions int) func(*cluster.Image) bool {
	return func(img *cluster.Image) bool {
		for _, b := range Look(img).Brokers {
			if b.ID == by {
				return b.Serving == partitions
			}
		}
		return partitions == 0
	}
}

// TestDrainFailoverAndReturn takes three nodes through what a cluster sees in a day:
// a drain, the death of a broker, and a move by wish.
func TestDrainFailoverAndReturn(t *testing.T) {
	etcd := startEtcd(t)
	ctx, cancel := context.WithCancel(t.Context())
	var nodes []*node
	ended := make(chan error, 3)
	for id := range int32(3) {
		n := startNode(t, etcd, id+1, 1, 3*time.Second)
		nodes = append(nodes, n)
		go func() { ended <- n.owner(ctx) }()
	}
	defer func() {
		cancel()
		for range nodes {
			require.Error(t, <-ended) // by ctx, or by a lease that a test ended
		}
	}()
	for _, n := range nodes {
		until(t, n.client, func(img *cluster.Image) bool { return len(img.Brokers()) == 3 })
	}
	client := nodes[0].client
	topic, err := client.CreateTopic(ctx, cluster.TopicSpec{Name: "t", Partitions: 30})
	require.NoError(t, err)
	for id := range int32(3) {
		until(t, client, served(id+1, 10))
	}

	require.NoError(t, client.SetBrokerWish(ctx, 3, cluster.BrokerWish{Draining: true}))
	img := until(t, client, func(img *cluster.Image) bool { return served(1, 15)(img) && served(2, 15)(img) })
	for id, a := range img.Assignments() {
		require.LessOrEqual(t, a.Epoch, int32(1), "%s moved once", id)
	}
	require.Eventually(t, func() bool {
		moves := int64(0)
		for _, n := range nodes {
			moves += n.controller.Stats().Moves
		}
		return moves == 10
	}, 30*time.Second, 10*time.Millisecond, "the leading controller has seen every hand-over")

	require.NoError(t, client.SetBrokerWish(ctx, 3, cluster.BrokerWish{}))
	id := frame.PartitionID{Topic: topic.ID, Partition: 0}
	a, _ := client.Image().Assignment(id)
	require.NoError(t, client.SetMoves(ctx, []cluster.MoveWish{{ID: id, Target: 3}}))
	img = until(t, client, func(img *cluster.Image) bool { return len(img.Moves()) == 0 })
	b, _ := img.Assignment(id)
	require.Equal(t, []any{int32(3), a.Epoch + 1, cluster.Writing}, []any{b.Owner, b.Epoch, b.State})

	// Broker 2 dies: nobody renews its lease any more.
	_ = nodes[1].stop() // its lease may end first
	require.NoError(t, nodes[1].session.Close())
	img = until(t, client, func(img *cluster.Image) bool { return Look(img).Serving == 30 && len(img.Brokers()) == 2 })
	for id, a := range img.Assignments() {
		require.NotEqual(t, int32(2), a.Owner, "%s", id)
	}
}
