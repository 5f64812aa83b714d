package broker

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/tierbroker/tierbroker/kafka"
)

// What a request of very many elements (topics, partitions) takes in memory is a multiple of its bytes, and nothing but
// the answers before it limits for how long: a client that reads no answers can have as many requests pending as a
// connection may have, and open many connections. So:
//
//   - small requests need nothing: most of them are;
//   - from ownTurn bytes (of a body that kmsg decodes) or wideElements (Produce, Fetch) on, a request goes on when
//     everything before it on its connection is answered: a connection has at most one such request;
//   - from freeDecode bytes or wideElements on, it also takes part in a budget that all connections share. Nobody who
//     holds a part of it waits for an earlier answer, so parts come back.

const (
	// ownTurn is the size from which a body that kmsg decodes waits for its turn.
	ownTurn = 2 << 10
	// freeDecode is the size up to which a body is decoded without asking the budget.
	freeDecode = 64 << 10
	// wideElements is how many elements Produce and Fetch may have for nothing.
	wideElements = 512
	// elementBytes is what an element of Produce or Fetch takes with its share of the answer.
	elementBytes = 512
)

// admitBody lets a body of n bytes be decoded; done gives its part of the budget back.
func (b *Broker) admitBody(ctx context.Context, c *call) (done func(), err error) {
	n := len(c.Body)
	if n <= ownTurn {
		return func() {}, nil
	}
	return b.admit(ctx, c, b.decoding, b.o.MaxDecodeBytes, int64(n), n > freeDecode)
}

// admitElements lets a decoded request of n elements go on; done is nil when it needs no budget.
func (b *Broker) admitElements(ctx context.Context, c *call, n int) (done func(), err error) {
	if n <= wideElements {
		return nil, nil
	}
	return b.admit(ctx, c, b.wide, b.o.MaxWideBytes, int64(n)*elementBytes, true)
}

func (b *Broker) admit(ctx context.Context, c *call, budget *semaphore.Weighted, all, n int64, shared bool) (func(), error) {
	if c.Conn != nil {
		if err := c.Conn.AwaitTurn(ctx); err != nil {
			return nil, err
		}
	}
	if !shared {
		return func() {}, nil
	}
	n = min(n, all)
	ctx, cancel := context.WithTimeout(ctx, b.o.ColdTimeout)
	defer cancel()
	if err := budget.Acquire(ctx, n); err != nil {
		return nil, fmt.Errorf("no room for %s of %d bytes: %w", c.api.name, len(c.Body), err)
	}
	return func() { budget.Release(n) }, nil
}

func produceElements(r *kafka.ProduceRequest) int {
	n := len(r.Topics)
	for i := range r.Topics {
		n += len(r.Topics[i].Partitions)
	}
	return n
}

func fetchElements(r *kafka.FetchRequest) int {
	n := len(r.Topics) + len(r.Forgotten)
	for i := range r.Topics {
		n += len(r.Topics[i].Partitions)
	}
	for i := range r.Forgotten {
		n += len(r.Forgotten[i].Partitions)
	}
	return n
}
