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
	q := manyGroups[kmsg.DescribeGroupsResponseGroup]{
		names: names,
		part: func(of []int) kmsg.Request {
			part := kmsg.NewPtrDescribeGroupsRequest()
			part.Groups = pick(names, of)
			return part
		},
		taken: func(resp kmsg.Response) []kmsg.DescribeGroupsResponseGroup {
			return resp.(*kmsg.DescribeGroupsResponse).Groups
		},
		code: func(g *kmsg.DescribeGroupsResponseGroup) int16 { return g.ErrorCode },
		fail: func(g *kmsg.DescribeGroupsResponseGroup, name string, code int16, _ error) {
			g.Default()
			g.Group, g.ErrorCode = name, code
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
