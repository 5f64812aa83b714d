package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaveGroup answers LeaveGroup, versions 0 to 5; from 3 on for many members at once.
func (b *Broker) leaveGroup(ctx context.Context, c *call, req *kmsg.LeaveGroupRequest) kmsg.Response {
	resp, err := b.ask(ctx, c, req.Group, req)
	if err != nil {
		out := req.ResponseKind().(*kmsg.LeaveGroupResponse)
		out.ErrorCode = b.fail(c, req.Group, err)
		return out
	}
	out := resp.(*kmsg.LeaveGroupResponse)
	b.failed(c, out.ErrorCode)
	return out
}
