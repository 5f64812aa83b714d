package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// idBlock is how many producer ids are taken from the cluster at a time.
const idBlock = 1000

// producerIDs hands out producer ids from blocks that nobody else has.
type producerIDs struct {
	cluster ClusterState
	lock    chan struct{} // a semaphore, so that waiting for a new block has a deadline
	next    int64
	end     int64
}

func (p *producerIDs) init(c ClusterState) { p.cluster, p.lock = c, make(chan struct{}, 1) }

// take returns an id that was never handed out. An id may be lost (a crash, a canceled call), never given twice.
func (p *producerIDs) take(ctx context.Context) (int64, error) {
	select {
	case p.lock <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	defer func() { <-p.lock }()
	if p.next == p.end {
		first, err := p.cluster.AllocateProducerIDs(ctx, idBlock)
		if err != nil {
			return 0, fmt.Errorf("allocate producer ids: %w", err)
		}
		p.next, p.end = first, first+idBlock
	}
	id := p.next
	p.next++
	return id, nil
}

// initProducerID answers InitProducerId, versions 0 to 5, for idempotent producers: always a fresh id with epoch 0,
// as Kafka does. A transactional id is refused for good, in a way that no client retries: there are no transactions.
func (b *Broker) initProducerID(ctx context.Context, c *call, req *kmsg.InitProducerIDRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	half := (req.ProducerID == -1) != (req.ProducerEpoch == -1)
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "", c.Version >= 3 && half:
		resp.ErrorCode = b.failed(c, kerr.InvalidRequest.Code)
		return resp
	case req.TransactionalID != nil:
		resp.ErrorCode = b.failed(c, kerr.UnsupportedVersion.Code)
		return resp
	}
	ctx, cancel := context.WithTimeout(ctx, b.o.ColdTimeout)
	defer cancel()
	id, err := b.ids.take(ctx)
	if err != nil {
		// Every failure here passes; this code is the one that all clients retry.
		b.log.Warn("no producer id", zap.Error(err))
		resp.ErrorCode = b.failed(c, kerr.CoordinatorNotAvailable.Code)
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	return resp
}
