package broker

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/partition"
)

// Timestamps with a meaning of their own.
const (
	latest         = -1
	earliest       = -2
	maxTimestamp   = -3 // version 7
	earliestLocal  = -4 // version 8, KIP-405
	latestTiered   = -5 // version 9, KIP-1005
	earliestToTier = -6 // version 11, KIP-1023
)

// since is the version from which on a special timestamp is understood.
var since = map[int64]int16{latest: 0, earliest: 0, maxTimestamp: 7, earliestLocal: 8, latestTiered: 9, earliestToTier: 11}

// listOffsets answers ListOffsets, versions 1 to 11. Lookups by time may need the bucket: they run in parallel, on
// the share of the broker that cold lookups have.
func (b *Broker) listOffsets(ctx context.Context, c *call, req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	limit := req.TimeoutMillis
	if c.Version < 10 || limit <= 0 {
		limit = int32(b.o.ColdTimeout.Milliseconds())
	}
	ctx, cancel := b.timeout(ctx, limit)
	defer cancel()
	img := b.o.Cluster.Image()
	twice := repeated(req.Topics)
	var lookups sync.WaitGroup
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Default()
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(in.Partitions))
		t, unknown := findTopic(img, false, in.Topic, [16]byte{})
		for j := range in.Partitions {
			q, a := &in.Partitions[j], &out.Partitions[j]
			a.Default()
			a.Partition, a.Offset, a.Timestamp, a.LeaderEpoch = q.Partition, -1, -1, -1
			if twice[topicPartition{in.Topic, q.Partition}] {
				a.ErrorCode = b.failed(c, kerr.InvalidRequest.Code)
				continue
			}
			if unknown != nil {
				a.ErrorCode = b.failed(c, unknown.Code)
				continue
			}
			p, missing := b.find(t, q.Partition)
			if missing != nil {
				a.ErrorCode = b.failed(c, missing.Code)
				continue
			}
			if !b.listNow(c, p, q, a) {
				b.lookup(ctx, &lookups, c, p, q, a)
			}
		}
	}
	lookups.Wait()
	return resp
}

type topicPartition struct {
	topic     string
	partition int32
}

// repeated finds partitions that a request names more than once.
func repeated(topics []kmsg.ListOffsetsRequestTopic) map[topicPartition]bool {
	n := 0
	for i := range topics {
		n += len(topics[i].Partitions)
	}
	if n < 2 {
		return nil
	}
	seen := make(map[topicPartition]bool, n)
	for i := range topics {
		for j := range topics[i].Partitions {
			k := topicPartition{topics[i].Topic, topics[i].Partitions[j].Partition}
			_, again := seen[k]
			seen[k] = again
		}
	}
	return seen
}

// listNow answers what needs no lookup; false for what does.
func (b *Broker) listNow(c *call, p Partition, q *kmsg.ListOffsetsRequestTopicPartition, a *kmsg.ListOffsetsResponseTopicPartition) bool {
	if err := p.CheckEpoch(q.CurrentLeaderEpoch); err != nil {
		a.ErrorCode = b.fail(c, "partition", err)
		return true
	}
	if from, special := since[q.Timestamp]; q.Timestamp < 0 && (!special || c.Version < from) {
		a.ErrorCode = b.failed(c, kerr.UnsupportedVersion.Code)
		return true
	}
	o := p.Offsets()
	switch q.Timestamp {
	case latest:
		// Without transactions the last stable offset is the high watermark: the isolation level changes nothing.
		a.Offset, a.LeaderEpoch = o.Durable, o.Epoch
	case earliest:
		a.Offset, a.LeaderEpoch = o.Start, epochFrom(p, o, o.Start)
	case earliestLocal:
		a.Offset, a.LeaderEpoch = o.LocalStart, epochFrom(p, o, o.LocalStart)
	case latestTiered:
		if last := o.Tiered - 1; last >= o.Start {
			a.Offset, a.LeaderEpoch = last, epochFrom(p, o, last)
		}
	case earliestToTier:
		a.Offset, a.LeaderEpoch = max(o.Tiered, o.Start), epochFrom(p, o, o.Tiered)
	default:
		return false
	}
	return true
}

// epochFrom is the epoch of the record at offset, or the partition's where there is no record yet.
func epochFrom(p Partition, o partition.Offsets, offset int64) int32 {
	if offset >= o.Durable {
		return o.Epoch
	}
	return p.EpochAt(offset)
}

// lookup finds an offset by time on a goroutine of its own once there is room.
func (b *Broker) lookup(ctx context.Context, wg *sync.WaitGroup, c *call, p Partition, q *kmsg.ListOffsetsRequestTopicPartition, a *kmsg.ListOffsetsResponseTopicPartition) {
	if err := b.lookups.Acquire(ctx, 1); err != nil {
		a.ErrorCode = b.failed(c, kerr.RequestTimedOut.Code)
		return
	}
	wg.Go(func() {
		defer b.lookups.Release(1)
		var r partition.TimeResult
		var err error
		if q.Timestamp == maxTimestamp {
			r, err = p.MaxTimestamp(ctx)
		} else {
			r, err = p.OffsetForTime(ctx, q.Timestamp)
		}
		if err != nil {
			a.ErrorCode = b.fail(c, "lookup", err)
			return
		}
		if r.Found {
			a.Offset, a.Timestamp, a.LeaderEpoch = r.Offset, r.Timestamp, r.Epoch
		}
	})
}
