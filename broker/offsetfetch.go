package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetFetch answers OffsetFetch, versions 1 to 10; from 8 on for many groups at once. What it returns is durable.
func (b *Broker) offsetFetch(ctx context.Context, c *call, req *kmsg.OffsetFetchRequest) kmsg.Response {
	if c.Version < 8 {
		return b.offsetFetchOne(ctx, c, req)
	}
	out := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	names := make([]string, len(req.Groups))
	for i := range req.Groups {
		names[i] = req.Groups[i].Group
	}
	q := manyGroups[kmsg.OffsetFetchResponseGroup]{
		names: names,
		part: func(of []int) kmsg.Request {
			part := kmsg.NewPtrOffsetFetchRequest()
			part.RequireStable, part.Groups = req.RequireStable, pick(req.Groups, of)
			return part
		},
		taken: func(resp kmsg.Response) []kmsg.OffsetFetchResponseGroup {
			return resp.(*kmsg.OffsetFetchResponse).Groups
		},
		code: func(g *kmsg.OffsetFetchResponseGroup) int16 { return g.ErrorCode },
		fail: func(g *kmsg.OffsetFetchResponseGroup, name string, code int16, _ error) {
			g.Default()
			g.Group, g.ErrorCode = name, code
		},
	}
	out.Groups = q.ask(ctx, b, c)
	return out
}

func (b *Broker) offsetFetchOne(ctx context.Context, c *call, req *kmsg.OffsetFetchRequest) kmsg.Response {
	resp, err := b.ask(ctx, c, req.Group, req)
	if err == nil {
		out := resp.(*kmsg.OffsetFetchResponse)
		b.failed(c, out.ErrorCode)
		return out
	}
	out := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	out.ErrorCode = b.fail(c, req.Group, err)
	if c.Version >= 2 {
		return out
	}
	// Version 1 has no place for it but the partitions.
	for i := range req.Topics {
		t := kmsg.NewOffsetFetchResponseTopic()
		t.Topic = req.Topics[i].Topic
		for _, n := range req.Topics[i].Partitions {
			p := kmsg.NewOffsetFetchResponseTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.ErrorCode = n, -1, -1, out.ErrorCode
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}
