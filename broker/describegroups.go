package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupOperations are all operations on a group: read, delete, describe, describe and alter configs.
const groupOperations = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

// describeGroups answers DescribeGroups, versions 0 to 6.
func (b *Broker) describeGroups(ctx context.Context, c *call, req *kmsg.DescribeGroupsRequest) kmsg.Response {
	out := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	names := unique(req.Groups)
	out.Groups = make([]kmsg.DescribeGroupsResponseGroup, len(names))
	b.askEach(ctx, c, names, func(of []int) kmsg.Request {
		part := kmsg.NewPtrDescribeGroupsRequest()
		for _, i := range of {
			part.Groups = append(part.Groups, names[i])
		}
		return part
	}, func(of []int, resp kmsg.Response, err error) {
		var got []kmsg.DescribeGroupsResponseGroup
		if err == nil {
			got = resp.(*kmsg.DescribeGroupsResponse).Groups
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
			if g.ErrorCode == 0 && req.IncludeAuthorizedOperations {
				g.AuthorizedOperations = groupOperations
			}
		}
	})
	return out
}
