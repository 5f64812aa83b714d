package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kinds of coordinators.
const (
	coordinatorGroup = 0
	coordinatorTxn   = 1
	coordinatorShare = 2 // version 6
)

// findCoordinator answers FindCoordinator, versions 0 to 6. A group's coordinator is the owner of its partition of the
// offsets topic, which the first group brings into being. Transactions and share groups have none: they are answered
// with COORDINATOR_NOT_AVAILABLE, which clients retry until their own timeout ends it with a clear message.
func (b *Broker) findCoordinator(ctx context.Context, c *call, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if c.Version >= 4 {
		resp.Coordinators = make([]kmsg.FindCoordinatorResponseCoordinator, len(req.CoordinatorKeys))
		for i, key := range req.CoordinatorKeys {
			a := &resp.Coordinators[i]
			a.Default()
			at, err := b.coordinator(ctx, c, req.CoordinatorType, key)
			a.Key, a.NodeID, a.Host, a.Port = key, at.id, at.Host, at.Port
			// Without the text: an answer of the smallest keys would be all text.
			a.ErrorCode = b.failed(c, code(err))
		}
		return resp
	}
	at, err := b.coordinator(ctx, c, req.CoordinatorType, req.CoordinatorKey)
	resp.NodeID, resp.Host, resp.Port = at.id, at.Host, at.Port
	resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
	b.failed(c, resp.ErrorCode)
	return resp
}

// seat is where a coordinator is, id -1 for nowhere.
type seat struct {
	id int32
	Endpoint
}

var (
	errNoTxns      = refuse(kerr.CoordinatorNotAvailable, "this broker has no transaction coordinator")
	errNoShares    = refuse(kerr.CoordinatorNotAvailable, "this broker has no share coordinator")
	errUnknownKind = refuse(kerr.InvalidRequest, "unknown coordinator type")
)

func (b *Broker) coordinator(ctx context.Context, c *call, kind int8, key string) (seat, error) {
	nowhere := seat{-1, Endpoint{Port: -1}}
	switch {
	case kind == coordinatorGroup:
		o, err := b.groups.locate(ctx, key)
		if err != nil {
			return nowhere, err
		}
		return seat{o.ID, b.address(&o, c.listener())}, nil
	case kind == coordinatorTxn:
		return nowhere, errNoTxns
	case kind == coordinatorShare && c.Version >= 6:
		return nowhere, errNoShares
	}
	return nowhere, errUnknownKind
}
