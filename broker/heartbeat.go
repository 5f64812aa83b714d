package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// heartbeat answers Heartbeat, versions 0 to 4.
func (b *Broker) heartbeat(ctx context.Context, c *call, req *kmsg.HeartbeatRequest) kmsg.Response {
	resp, err := b.ask(ctx, c, req.Group, req)
	if err != nil {
		out := req.ResponseKind().(*kmsg.HeartbeatResponse)
		out.ErrorCode = b.fail(c, req.Group, err)
		return out
	}
	out := resp.(*kmsg.HeartbeatResponse)
	b.failed(c, out.ErrorCode)
	return out
}
