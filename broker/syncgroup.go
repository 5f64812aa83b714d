package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// syncGroup answers SyncGroup, versions 0 to 5. It waits for the leader's assignment.
func (b *Broker) syncGroup(ctx context.Context, c *call, req *kmsg.SyncGroupRequest) kmsg.Response {
	ctx, cancel := context.WithTimeout(ctx, b.o.MaxRequestTime)
	defer cancel()
	c.taken = func() { req.GroupAssignment = nil }
	resp, err := b.askFor(ctx, c, req.Group, req)
	if err != nil {
		out := req.ResponseKind().(*kmsg.SyncGroupResponse)
		out.ErrorCode = b.fail(c, req.Group, err)
		return out
	}
	out := resp.(*kmsg.SyncGroupResponse)
	b.failed(c, out.ErrorCode)
	return out
}
