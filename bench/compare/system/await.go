package system

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/bench/process"
)

// readyEvery is how often a starting broker is asked; a start is measured no finer.
const readyEvery = 20 * time.Millisecond

// await asks a starting process until it answers, has ended, or ctx ends.
func await(ctx context.Context, child *process.Child, ready func(ctx context.Context) error) error {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-child.Exited():
			return child.Ended()
		case <-ctx.Done():
			return fmt.Errorf("the broker is not ready: %w: %w", context.Cause(ctx), err)
		}
	}
}

// awaitKafka waits until a node says that it is there and every partition that it knows has a leader.
func awaitKafka(ctx context.Context, child *process.Child, address string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.RequestRetries(0), kgo.MetadataMinAge(readyEvery))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	return await(ctx, child, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		m, err := admin.Metadata(ctx)
		if err != nil {
			return err
		}
		if len(m.Brokers) == 0 {
			return errors.New("no broker is registered")
		}
		for _, t := range m.Topics.Sorted() {
			if t.Err != nil {
				return t.Err
			}
			for _, p := range t.Partitions.Sorted() {
				if p.Err != nil {
					return p.Err
				}
			}
		}
		return nil
	})
}
