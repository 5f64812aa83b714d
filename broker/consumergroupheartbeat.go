package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerGroupHeartbeat answers ConsumerGroupHeartbeat, versions 0 and 1 (KIP-848).
func (b *Broker) consumerGroupHeartbeat(ctx context.Context, c *call, req *kmsg.ConsumerGroupHeartbeatRequest) kmsg.Response {
	resp, err := b.ask(ctx, c, req.Group, req)
	if err != nil {
		out := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
		out.ErrorCode = b.fail(c, req.Group, err)
		_, out.ErrorMessage = codeAndText(err)
		return out
	}
	out := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
	b.failed(c, out.ErrorCode)
	return out
}
