package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/admin"
)

// partitionLag is how far a group is behind in one partition. Numbers that aren't known are -1.
type partitionLag struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"` // -1: nothing is
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Records   int64  `json:"lag_records"`
	Bytes     int64  `json:"lag_bytes"`         // an estimate: the partition's mean record
	Ms        int64  `json:"lag_ms"`            // age of the first record that wasn't consumed
	InBucket  int64  `json:"records_in_bucket"` // of the lag: no local copy, a replay fetches them
	BytesIn   int64  `json:"bytes_in_bucket"`
	Lost      int64  `json:"records_deleted"` // between the commit and the start: retention was faster
	Member    string `json:"member,omitempty"`
}

// lags joins a group's commits with what the partitions hold. Partitions that are assigned and have no commit are in it too.
func (g *globals) lags(ctx context.Context, client *kadm.Client, info *groupInfo) ([]partitionLag, error) {
	committed, err := coordinated(ctx, func(ctx context.Context) (kadm.OffsetResponses, error) { return client.FetchOffsets(ctx, info.Group) })
	if err != nil {
		return nil, g.unreachable("fetch offsets", err)
	}
	type key struct {
		topic     string
		partition int32
	}
	rows := map[key]*partitionLag{}
	row := func(topic string, p int32) *partitionLag {
		k := key{topic, p}
		if rows[k] == nil {
			rows[k] = &partitionLag{Topic: topic, Partition: p, Committed: -1, Start: -1, End: -1, Records: -1, Bytes: -1, Ms: -1, InBucket: -1, BytesIn: -1}
		}
		return rows[k]
	}
	committed.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			row(o.Topic, o.Partition).Committed = o.At
		}
	})
	for _, m := range info.Members {
		for topic, ps := range m.Assigned {
			for _, p := range ps {
				row(topic, p).Member = m.ID
			}
		}
	}
	topics := map[string]bool{}
	for k := range rows {
		topics[k.topic] = true
	}
	for topic := range topics {
		if err := g.ends(ctx, client, topic, func(p int32, start, end int64) {
			if r := rows[key{topic, p}]; r != nil {
				r.Start, r.End = start, end
			}
		}); err != nil {
			return nil, err
		}
		detail, err := g.adminTopic(ctx, topic)
		for k, r := range rows {
			if k.topic == topic {
				r.count(detail, err == nil)
			}
		}
	}
	out := make([]partitionLag, 0, len(rows))
	for _, r := range rows {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b partitionLag) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}

// ends gives the start and end of each partition of a topic; a topic that is gone has none.
func (g *globals) ends(ctx context.Context, client *kadm.Client, topic string, fn func(p int32, start, end int64)) error {
	starts, err := client.ListStartOffsets(ctx, topic)
	if err != nil {
		return g.unreachable("find offsets of "+topic, err)
	}
	ends, err := client.ListEndOffsets(ctx, topic)
	if err != nil {
		return g.unreachable("find offsets of "+topic, err)
	}
	for p, e := range ends[topic] {
		if s, ok := starts.Lookup(topic, p); ok && s.Err == nil && e.Err == nil {
			fn(p, s.Offset, e.Offset)
		}
	}
	return nil
}

// count computes what follows from the offsets; detail is the admin API's view of the topic, if there is one.
func (r *partitionLag) count(detail *admin.TopicDetail, known bool) {
	if r.End < 0 {
		return
	}
	from := max(r.Committed, r.Start)
	r.Records = max(r.End-from, 0)
	if r.Committed >= 0 {
		r.Lost = max(r.Start-r.Committed, 0)
	}
	if !known {
		return
	}
	i := slices.IndexFunc(detail.PartitionList, func(p admin.Partition) bool { return p.Partition == r.Partition })
	if i < 0 {
		return
	}
	p := &detail.PartitionList[i]
	r.InBucket = min(max(p.LocalStart-from, 0), r.Records)
	r.BytesIn = share(p.ArchiveBytes, p.Tiered-p.Start, r.InBucket)
	r.Bytes = r.BytesIn + share(p.LocalBytes, p.End-p.LocalStart, r.Records-r.InBucket)
}

// share is the part of bytes that n of all records have, if all are alike.
func share(bytes, all, n int64) int64 {
	if all <= 0 || n <= 0 || bytes <= 0 {
		return 0
	}
	return int64(float64(bytes) * (float64(n) / float64(all)))
}

// ageWait bounds the reading of first records; an age that isn't known by then isn't shown.
const ageWait = 10 * time.Second

// ages reads the first record that wasn't consumed, of each partition that has one.
func (g *globals) ages(ctx context.Context, rows []partitionLag) error {
	offsets := map[string]map[int32]kgo.Offset{}
	left := 0
	for i := range rows {
		r := &rows[i]
		if r.Records <= 0 {
			continue
		}
		if offsets[r.Topic] == nil {
			offsets[r.Topic] = map[int32]kgo.Offset{}
		}
		offsets[r.Topic][r.Partition] = kgo.NewOffset().At(max(r.Committed, r.Start))
		left++
	}
	if left == 0 {
		return nil
	}
	client, err := g.kafka(kgo.ConsumePartitions(offsets), kgo.FetchMaxPartitionBytes(1), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, ageWait)
	defer cancel()
	now := time.Now()
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return ignoreDeadline(ctx.Err())
		}
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			if len(f.Records) == 0 {
				return
			}
			i := slices.IndexFunc(rows, func(r partitionLag) bool { return r.Topic == f.Topic && r.Partition == f.Partition })
			if rows[i].Ms < 0 {
				rows[i].Ms = max(now.Sub(f.Records[0].Timestamp).Milliseconds(), 0)
				left--
			}
			client.PauseFetchPartitions(map[string][]int32{f.Topic: {f.Partition}})
		})
		for _, e := range fetches.Errors() {
			return fmt.Errorf("read the first record of %s/%d behind the group: %w", e.Topic, e.Partition, e.Err)
		}
	}
	return nil
}

func ignoreDeadline(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
