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
	out.Groups = make([]kmsg.OffsetFetchResponseGroup, len(req.Groups))
	names := make([]string, len(req.Groups))
	for i := range req.Groups {
		names[i] = req.Groups[i].Group
	}
	b.askEach(ctx, c, names, func(of []int) kmsg.Request {
		part := kmsg.NewPtrOffsetFetchRequest()
		part.RequireStable = req.RequireStable
		for _, i := range of {
			part.Groups = append(part.Groups, req.Groups[i])
		}
		return part
	}, func(of []int, resp kmsg.Response, err error) {
		var got []kmsg.OffsetFetchResponseGroup
		if err == nil {
			got = resp.(*kmsg.OffsetFetchResponse).Groups
			err = sameCount(len(of), len(got))
		}
		for n, i := range of {
			g := &out.Groups[i]
			if err != nil {
				g.Default()
				g.Group, g.ErrorCode = names[i], b.fail(c, names[i], err)
				continue
			}
			*g = got[n]
			b.failed(c, g.ErrorCode)
		}
	})
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
