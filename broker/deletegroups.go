package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteGroups answers DeleteGroups, versions 0 to 2.
func (b *Broker) deleteGroups(ctx context.Context, c *call, req *kmsg.DeleteGroupsRequest) kmsg.Response {
	out := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	names := unique(req.Groups)
	q := manyGroups[kmsg.DeleteGroupsResponseGroup]{
		names: names,
		part: func(of []int) kmsg.Request {
			part := kmsg.NewPtrDeleteGroupsRequest()
			part.Groups = pick(names, of)
			return part
		},
		taken: func(resp kmsg.Response) []kmsg.DeleteGroupsResponseGroup {
			return resp.(*kmsg.DeleteGroupsResponse).Groups
		},
		code: func(g *kmsg.DeleteGroupsResponseGroup) int16 { return g.ErrorCode },
		fail: func(g *kmsg.DeleteGroupsResponseGroup, name string, code int16, _ error) {
			g.Default()
			g.Group, g.ErrorCode = name, code
		},
	}
	out.Groups = q.ask(ctx, b, c)
	return out
}
