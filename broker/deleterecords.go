package broker

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
)

// deleteRecords answers DeleteRecords, versions 0 to 2, when the new start offset is in the partition's head. Several
// partitions are served in parallel: each is a write to the bucket.
func (b *Broker) deleteRecords(ctx context.Context, c *call, req *kmsg.DeleteRecordsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	ctx, cancel := b.timeout(ctx, req.TimeoutMillis)
	defer cancel()
	img := b.o.Cluster.Image()
	var calls sync.WaitGroup
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(in.Partitions))
		t, unknown := findTopic(img, false, in.Topic, [16]byte{})
		for j := range in.Partitions {
			q, a := &in.Partitions[j], &out.Partitions[j]
			a.Default()
			a.Partition, a.LowWatermark = q.Partition, -1
			if unknown != nil {
				a.ErrorCode = b.failed(c, unknown.Code)
				continue
			}
			p, err := b.partitionToCut(t, q)
			if err == nil {
				err = b.lookups.Acquire(ctx, 1)
			}
			if err != nil {
				a.ErrorCode = b.fail(c, in.Topic, err)
				continue
			}
			calls.Go(func() {
				defer b.lookups.Release(1)
				low, err := b.cut(ctx, p, q.Offset)
				if err != nil {
					a.ErrorCode = b.fail(c, in.Topic, err)
					return
				}
				a.LowWatermark = low
			})
		}
	}
	calls.Wait()
	return resp
}

func (b *Broker) partitionToCut(t *cluster.Topic, q *kmsg.DeleteRecordsRequestTopicPartition) (Partition, error) {
	switch {
	case t.Internal:
		return nil, kerr.InvalidTopicException
	case !t.Config.CleanupDelete:
		return nil, kerr.PolicyViolation // a topic that is only compacted loses nothing but what is overwritten
	}
	p, missing := b.find(t, q.Partition)
	if missing != nil {
		return nil, missing
	}
	if err := p.CheckEpoch(-1); err != nil {
		return nil, err
	}
	return p, nil
}

// cut deletes before an offset, -1 for everything that consumers see, and returns the new start offset.
func (b *Broker) cut(ctx context.Context, p Partition, before int64) (int64, error) {
	o := p.Offsets()
	if before == -1 {
		before = o.Durable
	}
	if before < 0 || before > o.Durable {
		return 0, kerr.OffsetOutOfRange
	}
	if before <= o.Start {
		return o.Start, nil
	}
	return p.DeleteRecords(ctx, before)
}
