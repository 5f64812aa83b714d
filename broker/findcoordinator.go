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

// findCoordinator answers FindCoordinator, versions 0 to 6. This broker coordinates nothing: every key is answered
// with COORDINATOR_NOT_AVAILABLE, which clients retry until their own timeout ends it with a clear message.
func (b *Broker) findCoordinator(_ context.Context, c *call, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if c.Version >= 4 {
		resp.Coordinators = make([]kmsg.FindCoordinatorResponseCoordinator, len(req.CoordinatorKeys))
		for i, key := range req.CoordinatorKeys {
			a := &resp.Coordinators[i]
			a.Default()
			a.Key, a.NodeID, a.Port = key, -1, -1
			// Without the text: an answer of the smallest keys would be all text.
			a.ErrorCode, _ = b.coordinator(c, req.CoordinatorType)
		}
		return resp
	}
	resp.NodeID, resp.Port = -1, -1
	resp.ErrorCode, resp.ErrorMessage = b.coordinator(c, req.CoordinatorType)
	return resp
}

// Texts of the answers, shared by all of them.
var (
	noGroups    = "this broker has no group coordinator"
	noTxns      = "this broker has no transaction coordinator"
	noShares    = "this broker has no share coordinator"
	unknownKind = "unknown coordinator type"
)

func (b *Broker) coordinator(c *call, kind int8) (int16, *string) {
	switch {
	case kind == coordinatorGroup:
		return b.failed(c, kerr.CoordinatorNotAvailable.Code), &noGroups
	case kind == coordinatorTxn:
		return b.failed(c, kerr.CoordinatorNotAvailable.Code), &noTxns
	case kind == coordinatorShare && c.Version >= 6:
		return b.failed(c, kerr.CoordinatorNotAvailable.Code), &noShares
	}
	return b.failed(c, kerr.InvalidRequest.Code), &unknownKind
}
