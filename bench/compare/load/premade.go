package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/bench/raw"
)

// Premade is a driver that can send requests whose bytes were made beforehand. That costs a client next to nothing, so the broker
// alone decides how fast it goes; with a client library, what is compared is often the library.
type Premade interface {
	// Pump sends batches of about batchBytes to the partitions round and round, several requests under way, until ctx ends. acked tells of each answer
	// how many records it acknowledged.
	Pump(ctx context.Context, t Topic, partitions []int32, record, batchBytes, acks int, acked func(records int64)) error
}

// What a producer of premade requests has under way, and how many batches are in each request.
const (
	pumpInflight   = 5
	pumpPerRequest = 4
)

// leaderTime is how long the leaders of a new topic may be known to clients and not to themselves.
const leaderTime = 30 * time.Second

func (k *kafka) Pump(ctx context.Context, t Topic, partitions []int32, record, batchBytes, acks int, acked func(records int64)) error {
	for began := time.Now(); ; {
		err := k.pump(ctx, t, partitions, record, batchBytes, acks, acked)
		if !errors.Is(err, kerr.NotLeaderForPartition) || time.Since(began) > leaderTime {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func (k *kafka) pump(ctx context.Context, t Topic, partitions []int32, record, batchBytes, acks int, acked func(records int64)) (err error) {
	b := raw.Batch(batchBytes, record, time.Now().UnixMilli())
	h, err := batch.ParseHeader(b)
	if err != nil {
		return err
	}
	var reqs []*raw.Produce
	for left := partitions; len(left) > 0; {
		n := min(pumpPerRequest, len(left))
		reqs = append(reqs, raw.NewProduce(t.Name, left[:n], b, int16(acks)))
		left = left[n:]
	}
	c, err := raw.Dial(ctx, k.address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return raw.Pump(ctx, c, reqs, pumpInflight, func(p *raw.Produce) {
		acked(int64(p.Bytes()) / int64(len(b)) * int64(h.RecordCount))
	})
}

// premade is the loop of a producer whose requests are made beforehand.
func (p *producer) premade(ctx context.Context) error {
	d, ok := p.driver.(Premade)
	if !ok {
		return fmt.Errorf("no requests can be made beforehand for %q", p.Protocol)
	}
	size := int64(p.Produce.Record)
	err := d.Pump(ctx, p.Topic, p.partitions, p.Produce.Record, p.Produce.Options.BatchBytes, p.Produce.Options.Acks, func(records int64) {
		p.produced.add(records, records*size)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
