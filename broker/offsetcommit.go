package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetCommit answers OffsetCommit, versions 2 to 10, when the commit is durable. An error of the coordinator stands with
// every partition: the answer has no other place for it.
func (b *Broker) offsetCommit(ctx context.Context, c *call, req *kmsg.OffsetCommitRequest) kmsg.Response {
	resp, err := b.ask(ctx, c, req.Group, req)
	if err == nil {
		out := resp.(*kmsg.OffsetCommitResponse)
		for i := range out.Topics {
			for j := range out.Topics[i].Partitions {
				b.failed(c, out.Topics[i].Partitions[j].ErrorCode)
			}
		}
		return out
	}
	out := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	failure := b.fail(c, req.Group, err)
	for i := range req.Topics {
		t := kmsg.NewOffsetCommitResponseTopic()
		t.Topic, t.TopicID = req.Topics[i].Topic, req.Topics[i].TopicID
		for j := range req.Topics[i].Partitions {
			p := kmsg.NewOffsetCommitResponseTopicPartition()
			p.Partition, p.ErrorCode = req.Topics[i].Partitions[j].Partition, failure
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}
