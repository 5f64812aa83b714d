package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// listPartitionReassignments answers ListPartitionReassignments, version 0: moves under way and moves that wait, whoever asked
// for them. Null topics mean all.
func (b *Broker) listPartitionReassignments(_ context.Context, _ *call, req *kmsg.ListPartitionReassignmentsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	img := b.o.Cluster.Image()
	if req.Topics == nil {
		for _, t := range img.Topics() {
			resp.Topics = addReassigned(resp.Topics, img, t, nil)
		}
		return resp
	}
	for i := range req.Topics {
		if t, _ := findTopic(img, false, req.Topics[i].Topic, [16]byte{}); t != nil {
			resp.Topics = addReassigned(resp.Topics, img, t, req.Topics[i].Partitions)
		}
	}
	return resp
}

// addReassigned adds the partitions of a topic that are being moved; nil looks at all of them.
func addReassigned(list []kmsg.ListPartitionReassignmentsResponseTopic, img *cluster.Image, t *cluster.Topic, only []int32) []kmsg.ListPartitionReassignmentsResponseTopic {
	if t.Deleting {
		return list
	}
	out := kmsg.NewListPartitionReassignmentsResponseTopic()
	out.Topic = t.Name
	look := func(n int32) {
		id := frame.PartitionID{Topic: t.ID, Partition: n}
		from, to := moveOf(img, id)
		if to == cluster.NoBroker {
			return
		}
		p := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas = n, []int32{to}, []int32{to}, none
		if from != cluster.NoBroker {
			p.Replicas, p.RemovingReplicas = []int32{to, from}, []int32{from}
		}
		out.Partitions = append(out.Partitions, p)
	}
	if only == nil {
		for n := range t.Partitions {
			look(n)
		}
	} else {
		for _, n := range only {
			if n >= 0 && n < t.Partitions {
				look(n)
			}
		}
	}
	if len(out.Partitions) == 0 {
		return list
	}
	return append(list, out)
}

// moveOf says from where to where a partition is being moved or is to be moved; the target is NoBroker when it stays.
func moveOf(img *cluster.Image, id frame.PartitionID) (from, to int32) {
	a, placed := img.Assignment(id)
	if !placed {
		a.Owner, a.Target = cluster.NoBroker, cluster.NoBroker
	}
	to = a.Target
	w, wished := img.Move(id)
	switch {
	case !wished || to != cluster.NoBroker:
	case w.Target != a.Owner:
		to = w.Target
	case a.State == cluster.Starting || a.State == cluster.Recovering:
		return cluster.NoBroker, w.Target // handed over, and not served yet
	}
	return a.Owner, to
}
