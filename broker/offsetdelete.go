package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetDelete answers OffsetDelete, version 0.
func (b *Broker) offsetDelete(ctx context.Context, c *call, req *kmsg.OffsetDeleteRequest) kmsg.Response {
	resp, err := b.ask(ctx, c, req.Group, req)
	if err != nil {
		out := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
		out.ErrorCode = b.fail(c, req.Group, err)
		return out
	}
	out := resp.(*kmsg.OffsetDeleteResponse)
	b.failed(c, out.ErrorCode)
	return out
}
