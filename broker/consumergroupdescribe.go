package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerGroupDescribe answers ConsumerGroupDescribe, versions 0 and 1 (KIP-848).
func (b *Broker) consumerGroupDescribe(ctx context.Context, c *call, req *kmsg.ConsumerGroupDescribeRequest) kmsg.Response {
	out := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	names := unique(req.Groups)
	q := manyGroups[kmsg.ConsumerGroupDescribeResponseGroup]{
		names: names,
		part: func(of []int) kmsg.Request {
			part := kmsg.NewPtrConsumerGroupDescribeRequest()
			part.Groups = pick(names, of)
			return part
		},
		taken: func(resp kmsg.Response) []kmsg.ConsumerGroupDescribeResponseGroup {
			return resp.(*kmsg.ConsumerGroupDescribeResponse).Groups
		},
		code: func(g *kmsg.ConsumerGroupDescribeResponseGroup) int16 { return g.ErrorCode },
		fail: func(g *kmsg.ConsumerGroupDescribeResponseGroup, name string, code int16, err error) {
			g.Default()
			g.Group, g.ErrorCode = name, code
			_, g.ErrorMessage = codeAndText(err)
		},
	}
	out.Groups = q.ask(ctx, b, c)
	for i := range out.Groups {
		if g := &out.Groups[i]; g.ErrorCode == 0 && req.IncludeAuthorizedOperations {
			g.AuthorizedOperations = groupOperations
		}
	}
	return out
}
