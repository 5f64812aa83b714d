package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinGroup answers JoinGroup, versions 0 to 9. It waits until the group's members have come, which the group's
// rebalance timeout bounds.
func (b *Broker) joinGroup(ctx context.Context, c *call, req *kmsg.JoinGroupRequest) kmsg.Response {
	ctx, cancel := context.WithTimeout(ctx, b.o.MaxRequestTime)
	defer cancel()
	c.taken = func() { req.Protocols = nil }
	resp, err := b.askFor(ctx, c, req.Group, req)
	if err != nil {
		out := req.ResponseKind().(*kmsg.JoinGroupResponse)
		out.Generation, out.MemberID, out.ErrorCode = -1, req.MemberID, b.fail(c, req.Group, err)
		return out
	}
	out := resp.(*kmsg.JoinGroupResponse)
	b.failed(c, out.ErrorCode)
	return out
}
