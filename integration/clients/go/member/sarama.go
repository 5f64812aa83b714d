package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

func runSarama(ctx context.Context, o order) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.MaxVersion
	cfg.ClientID = o.id
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	cfg.Consumer.MaxWaitTime = 300 * time.Millisecond
	cfg.Consumer.Return.Errors = true
	cfg.Consumer.Group.Session.Timeout = o.session
	cfg.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	cfg.Consumer.Group.Rebalance.Timeout = 20 * time.Second
	cfg.Consumer.Group.InstanceId = o.instance
	cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	if o.strategy == "sticky" {
		cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	}
	g, err := sarama.NewConsumerGroup([]string{o.bootstrap}, o.group, cfg)
	if err != nil {
		return err
	}
	go func() {
		for err := range g.Errors() {
			note("%v", err)
		}
	}()
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{o.topic}, saramaMember{o.topic}); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
			note("consume: %v", err)
		}
	}
	return g.Close()
}

type saramaMember struct{ topic string }

func (m saramaMember) Setup(s sarama.ConsumerGroupSession) error {
	assigned(s.Claims()[m.topic])
	return nil
}

func (m saramaMember) Cleanup(s sarama.ConsumerGroupSession) error {
	revoked(s.Claims()[m.topic])
	return nil
}

// ConsumeClaim processes one partition until the session ends.
func (m saramaMember) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for first := range c.Messages() {
		last, n := first, 1
	batch:
		for n < batchRecords {
			select {
			case next, ok := <-c.Messages():
				if !ok {
					break batch
				}
				last, n = next, n+1
			default:
				break batch
			}
		}
		processed(c.Partition(), first.Offset, last.Offset, n)
		s.MarkMessage(last, "")
		s.Commit()
	}
	return nil
}
