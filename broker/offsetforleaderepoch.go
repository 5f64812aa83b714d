package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetForLeaderEpoch answers OffsetForLeaderEpoch, versions 2 to 4: where an epoch ended, so that a client finds out
// whether what it has was truncated (KIP-320).
func (b *Broker) offsetForLeaderEpoch(_ context.Context, c *call, req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	img := b.o.Cluster.Image()
	resp.Topics = make([]kmsg.OffsetForLeaderEpochResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(in.Partitions))
		t, unknown := findTopic(img, false, in.Topic, [16]byte{})
		for j := range in.Partitions {
			q, a := &in.Partitions[j], &out.Partitions[j]
			a.Default()
			a.Partition, a.LeaderEpoch, a.EndOffset = q.Partition, -1, -1
			if unknown != nil {
				a.ErrorCode = b.failed(c, unknown.Code)
				continue
			}
			p, missing := b.find(t, q.Partition)
			if missing != nil {
				a.ErrorCode = b.failed(c, missing.Code)
				continue
			}
			if err := p.CheckEpoch(q.CurrentLeaderEpoch); err != nil {
				a.ErrorCode = b.fail(c, in.Topic, err)
				continue
			}
			a.LeaderEpoch, a.EndOffset = p.EpochEnd(q.LeaderEpoch)
		}
	}
	return resp
}
