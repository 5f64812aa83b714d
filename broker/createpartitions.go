package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// createPartitions answers CreatePartitions, versions 0 to 3.
func (b *Broker) createPartitions(ctx context.Context, c *call, req *kmsg.CreatePartitionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	ctx, cancel := b.timeout(ctx, req.TimeoutMillis)
	defer cancel()
	count := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		count[req.Topics[i].Topic]++
	}
	resp.Topics = make([]kmsg.CreatePartitionsResponseTopic, 0, len(req.Topics))
	room := b.o.MaxPartitions
	var grown []*cluster.Topic
	for i := range req.Topics {
		in := &req.Topics[i]
		if count[in.Topic] == 0 {
			continue // a repeated name was answered once
		}
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = in.Topic
		var err error
		if count[in.Topic] > 1 {
			err = refuse(kerr.InvalidRequest, "Duplicate topic name.")
		} else {
			var t *cluster.Topic
			if t, err = b.growTopic(ctx, in, req.ValidateOnly, &room); t != nil {
				grown = append(grown, t)
			}
		}
		count[in.Topic] = 0
		if err != nil {
			out.ErrorCode = b.fail(c, in.Topic, err)
			_, out.ErrorMessage = codeAndText(err)
		}
		resp.Topics = append(resp.Topics, out)
	}
	b.awaitReady(ctx, grown)
	return resp
}

// growTopic adds partitions to a topic and returns it as it is then, nil when the request was only to be checked.
func (b *Broker) growTopic(ctx context.Context, in *kmsg.CreatePartitionsRequestTopic, dry bool, room *int32) (*cluster.Topic, error) {
	img := b.o.Cluster.Image()
	t, unknown := findTopic(img, false, in.Topic, [16]byte{})
	if unknown != nil {
		return nil, unknown
	}
	more := in.Count - t.Partitions
	switch {
	case in.Count == t.Partitions:
		return nil, refuse(kerr.InvalidPartitions, fmt.Sprintf("Topic already has %d partition(s).", t.Partitions))
	case in.Count < t.Partitions:
		return nil, refuse(kerr.InvalidPartitions, fmt.Sprintf("The topic %s currently has %d partition(s); %d would not be an increase.", t.Name, t.Partitions, in.Count))
	case more > *room:
		return nil, refuse(kerr.InvalidPartitions, fmt.Sprintf("one request may create at most %d partitions", b.o.MaxPartitions))
	case in.Assignment != nil && len(in.Assignment) != int(more):
		return nil, refuse(kerr.InvalidReplicaAssignment, fmt.Sprintf("Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", more, len(in.Assignment)))
	}
	for i := range in.Assignment {
		if err := checkReplicas(img, in.Assignment[i].Replicas); err != nil {
			return nil, err
		}
	}
	*room -= more
	if dry {
		return nil, nil
	}
	first := t.Partitions
	grown, err := b.o.Admin.CreatePartitions(ctx, t.ID, in.Count)
	if err != nil {
		return nil, err
	}
	moves := make([]cluster.MoveWish, 0, len(in.Assignment))
	for i := range in.Assignment {
		moves = append(moves, cluster.MoveWish{ID: frame.PartitionID{Topic: t.ID, Partition: first + int32(i)}, Target: in.Assignment[i].Replicas[0], Keep: true, Goal: goalAssigned})
	}
	b.wishPlaces(ctx, grown, moves)
	return grown, nil
}
