package controller

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

func TestLook(t *testing.T) {
	w := crooked(3, 1, 12, func(id frame.PartitionID) int32 { return id.Partition%3 + 1 })
	topic := w.topics[0]
	topic.Partitions = 13
	w.set(topic, 0, func(a *cluster.Assignment) { a.Safe = false })
	w.set(topic, 3, state(cluster.Recovering))
	w.set(topic, 1, to(3, 5))
	w.set(topic, 2, func(a *cluster.Assignment) {
		a.State, a.Owner, a.OwnerIncarnation = cluster.Unassigned, cluster.NoBroker, ""
	})
	w.wish(topic, 4, 3, 1, false)
	w.drains[7] = cluster.BrokerWish{Removed: true}
	w.drains[2] = cluster.BrokerWish{Draining: true}
	want := Survey{Partitions: 13, Unplaced: 2, Serving: 10, Moving: 1, Wishes: 1,
		States: map[cluster.State]int{cluster.Writing: 10, cluster.Recovering: 1, cluster.Unassigned: 1},
		Brokers: []BrokerSurvey{
			{ID: 1, Alive: true, Owned: 4, Serving: 3, Unsafe: 1},
			{ID: 2, Alive: true, Draining: true, Owned: 4, Serving: 4, Outgoing: 1},
			{ID: 3, Alive: true, Owned: 3, Serving: 3, Incoming: 1},
			{ID: 7, Draining: true, Removed: true},
		}}
	got := Look(w)
	require.Equal(t, want, got)
	require.False(t, got.Brokers[1].Drained())
	require.True(t, got.Brokers[3].Removable())

	w.stop(1)
	got = Look(w)
	require.Equal(t, []int{1, 3, 7}, []int{got.Waiting, got.Orphaned, got.Serving})
	w.broker(1, 2)
	require.Equal(t, 7, Look(w).Serving, "another run does not serve it")
}
