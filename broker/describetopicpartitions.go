package broker

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// maxDescribed is the most partitions in one answer, Kafka's max.request.partition.size.limit.
const maxDescribed = 2000

// describeTopicPartitions answers DescribeTopicPartitions, version 0: topics in the order of their names, cut after so
// many partitions, with a cursor to go on from.
func (b *Broker) describeTopicPartitions(_ context.Context, c *call, req *kmsg.DescribeTopicPartitionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	img := b.o.Cluster.Image()
	room := int32(maxDescribed)
	if req.ResponsePartitionLimit > 0 {
		room = min(room, req.ResponsePartitionLimit)
	}
	names, from := namesToDescribe(img, req)
	for _, name := range names {
		first := int32(0)
		if req.Cursor != nil && name == req.Cursor.Topic {
			first = max(from, 0)
		}
		if room <= 0 {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: first}
			return resp
		}
		t, unknown := findTopic(img, false, name, [16]byte{})
		if unknown != nil {
			a := kmsg.NewDescribeTopicPartitionsResponseTopic()
			a.Topic = ptr(name)
			a.ErrorCode = unknown.Code
			if cluster.ValidTopicName(name) != nil {
				a.ErrorCode = kerr.InvalidTopicException.Code
			}
			a.AuthorizedOperations = notAsked
			b.failed(c, a.ErrorCode)
			resp.Topics = append(resp.Topics, a)
			continue
		}
		n := min(max(t.Partitions-first, 0), room)
		resp.Topics = append(resp.Topics, describePartitions(img, t, first, n))
		room -= n
		if first+n < t.Partitions {
			resp.NextCursor = &kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: name, Partition: first + n}
			return resp
		}
	}
	return resp
}

// namesToDescribe lists the topics from the cursor on, sorted, each once. An empty request means all topics.
func namesToDescribe(img *cluster.Image, req *kmsg.DescribeTopicPartitionsRequest) (names []string, from int32) {
	if len(req.Topics) == 0 {
		for _, t := range img.Topics() {
			if !t.Deleting {
				names = append(names, t.Name)
			}
		}
	} else {
		for i := range req.Topics {
			names = append(names, req.Topics[i].Topic)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if req.Cursor == nil {
		return names, 0
	}
	i, _ := slices.BinarySearchFunc(names, req.Cursor.Topic, cmp.Compare[string])
	return names[i:], req.Cursor.Partition
}

func describePartitions(img *cluster.Image, t *cluster.Topic, first, n int32) kmsg.DescribeTopicPartitionsResponseTopic {
	a := kmsg.NewDescribeTopicPartitionsResponseTopic()
	a.Topic, a.TopicID, a.IsInternal, a.AuthorizedOperations = ptr(t.Name), t.ID, t.Internal, topicOperations
	a.Partitions = make([]kmsg.DescribeTopicPartitionsResponseTopicPartition, n)
	for i := range a.Partitions {
		p := &a.Partitions[i]
		p.Default()
		p.Partition = first + int32(i)
		v := viewPartition(img, frame.PartitionID{Topic: t.ID, Partition: p.Partition}, nil)
		p.ErrorCode, p.LeaderID, p.LeaderEpoch = v.err, v.leader, v.epoch
		p.Replicas, p.ISR, p.OfflineReplicas = v.replicas, v.isr, v.offline
		// Never null: the Java admin client fails on null.
		p.EligibleLeaderReplicas, p.LastKnownELR = none, none
	}
	return a
}
