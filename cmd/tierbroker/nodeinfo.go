package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/admin"
	"github.com/tierbroker/tierbroker/controller"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
	"github.com/tierbroker/tierbroker/peer"
)

// nodeInfo gives the admin server lease, controller, WAL stream and the loads of the cluster.
type nodeInfo struct{ d *daemon }

// Lease tells of the lease of the current incarnation.
func (i nodeInfo) Lease() (admin.LeaseInfo, bool) {
	n := i.d.current.node.Load()
	if n == nil || n.session == nil {
		return admin.LeaseInfo{}, false
	}
	return admin.LeaseInfo{Valid: n.session.ValidFor(time.Now()), TTL: n.session.TTL(), Since: n.since}, true
}

// Controller tells what this incarnation has done as the controller.
func (i nodeInfo) Controller() (controller.Stats, bool) {
	n := i.d.current.node.Load()
	if n == nil || n.controller == nil {
		return controller.Stats{}, false
	}
	return n.controller.Stats(), true
}

// Stream tells of the WAL stream of this incarnation.
func (i nodeInfo) Stream() (partition.StreamStats, bool) {
	n := i.d.current.node.Load()
	if n == nil || n.set == nil {
		return partition.StreamStats{}, false
	}
	return n.set.Stream()
}

// callKnownLoads asks the leading controller for what all brokers have reported.
const callKnownLoads = "known-loads"

// knownLoadsAnswer are the loads of all partitions that move something.
type knownLoadsAnswer struct {
	Topics []peer.TopicLoad `json:"topics,omitempty"`
}

// tellLoads answers another node when this one leads.
func (d *daemon) tellLoads(context.Context, struct{}) (knownLoadsAnswer, error) {
	if !d.leads() {
		return knownLoadsAnswer{}, fmt.Errorf("%w: this node does not lead", peer.ErrRefused)
	}
	var a knownLoadsAnswer
	at := map[frame.TopicID]int{}
	for id, l := range d.peers.loads.All(time.Now()) {
		i, ok := at[id.Topic]
		if !ok {
			i = len(a.Topics)
			at[id.Topic] = i
			a.Topics = append(a.Topics, peer.TopicLoad{ID: id.Topic})
		}
		a.Topics[i].Loads = append(a.Topics[i].Loads, peer.PartitionLoad{float64(id.Partition), l[0], l[1]})
	}
	return a, nil
}

func (d *daemon) leads() bool {
	n := d.current.node.Load()
	return n != nil && n.controller != nil && n.controller.Leading()
}

// Loads returns what brokers have reported to the leading controller.
func (i nodeInfo) Loads(ctx context.Context) (controller.Loads, error) {
	if i.d.leads() {
		return i.d.knownLoads(), nil
	}
	leader, ok := i.d.cluster.Image().LeadingController()
	switch {
	case !ok:
		return nil, fmt.Errorf("no controller leads")
	case leader.PeerURL == "":
		return nil, fmt.Errorf("controller %d has no peer-listen", leader.ID)
	}
	var a knownLoadsAnswer
	if err := i.d.peers.client.Do(ctx, leader.PeerURL, callKnownLoads, struct{}{}, &a); err != nil {
		return nil, fmt.Errorf("ask controller %d for loads: %w", leader.ID, err)
	}
	known := controller.Loads{}
	for _, t := range a.Topics {
		for _, l := range t.Loads {
			known[frame.PartitionID{Topic: t.ID, Partition: int32(l[0])}] = controller.Load{In: l[1], Out: l[2]}
		}
	}
	return known, nil
}
