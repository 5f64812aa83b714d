package main

import (
	"context"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/partition"
)

const (
	// takeUpPatience is how long the Kafka port stays shut at a start while partitions are being taken up. A client that gets
	// through earlier is told that they have no leader, and some ask again only after five seconds. Whoever has so many
	// partitions that it takes longer serves those that are ready.
	takeUpPatience = 3 * time.Second
	takeUpPoll     = 20 * time.Millisecond
)

// takeUp waits until this broker serves what is its own.
func (n *node) takeUp(ctx context.Context) {
	patience := time.NewTimer(takeUpPatience)
	defer patience.Stop()
	tick := time.NewTicker(takeUpPoll)
	defer tick.Stop()
	for !n.serving(n.d.cluster.Image()) {
		select {
		case <-tick.C:
		case <-patience.C:
			return
		case <-ctx.Done():
			return
		case <-n.run.Done():
			return
		case <-n.session.Done():
			return
		}
	}
}

// serving tells whether every partition that the cluster has given to this broker is served, as far as it can be.
func (n *node) serving(image *cluster.Image) bool {
	for id, a := range image.Assignments() {
		if a.Owner != n.d.config.BrokerID || a.State == cluster.Unassigned || a.State == cluster.Deleted || a.State == cluster.Failed {
			continue
		}
		if t := image.TopicByID(id.Topic); t == nil || t.Deleting {
			continue
		}
		if a.OwnerIncarnation != n.incarnation || a.State == cluster.Starting || a.State == cluster.Recovering {
			return false
		}
		p := n.set.Get(id)
		if p == nil {
			return false
		}
		switch p.Stats().State {
		case partition.Starting, partition.Recovering, partition.Closed:
			return false
		case partition.Writing, partition.Draining, partition.Failed:
		}
	}
	return true
}
