package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerGroupDescribe answers ConsumerGroupDescribe, versions 0 and 1 (KIP-848).
func (b *Broker) consumerGroupDescribe(ctx context.Context, c *call, req *kmsg.ConsumerGroupDescribeRequest) kmsg.Response {
	out := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	names := unique(req.Groups)
	out.Groups = make([]kmsg.ConsumerGroupDescribeResponseGroup, len(names))
	b.askEach(ctx, c, names, func(of []int) kmsg.Request {
		part := kmsg.NewPtrConsumerGroupDescribeRequest()
		for _, i := range of {
			part.Groups = append(part.Groups, names[i])
		}
		return part
	}, func(of []int, resp kmsg.Response, err error) {
		var got []kmsg.ConsumerGroupDescribeResponseGroup
		if err == nil {
			got = resp.(*kmsg.ConsumerGroupDescribeResponse).Groups
			err = sameCount(len(of), len(got))
		}
		for n, i := range of {
			g := &out.Groups[i]
			if err != nil {
				g.Default()
				g.Group, g.ErrorCode = names[i], b.fail(c, names[i], err)
				_, g.ErrorMessage = codeAndText(err)
				continue
			}
			*g = got[n]
			b.failed(c, g.ErrorCode)
			if g.ErrorCode == 0 && req.IncludeAuthorizedOperations {
				g.AuthorizedOperations = groupOperations
			}
		}
	})
	return out
}
