package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteGroups answers DeleteGroups, versions 0 to 2.
func (b *Broker) deleteGroups(ctx context.Context, c *call, req *kmsg.DeleteGroupsRequest) kmsg.Response {
	out := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	names := unique(req.Groups)
	out.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(names))
	b.askEach(ctx, c, names, func(of []int) kmsg.Request {
		part := kmsg.NewPtrDeleteGroupsRequest()
		for _, i := range of {
			part.Groups = append(part.Groups, names[i])
		}
		return part
	}, func(of []int, resp kmsg.Response, err error) {
		var got []kmsg.DeleteGroupsResponseGroup
		if err == nil {
			got = resp.(*kmsg.DeleteGroupsResponse).Groups
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
