package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
)

// runKafkaGo uses the library's ConsumerGroup: its Reader does the same and tells nobody what it owns.
func runKafkaGo(ctx context.Context, o order) error {
	balancers := map[string]kafka.GroupBalancer{"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{}}
	g, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: o.group, Brokers: []string{o.bootstrap}, Topics: []string{o.topic}, StartOffset: kafka.FirstOffset,
		Dialer:            &kafka.Dialer{ClientID: o.id, Timeout: 10 * time.Second},
		GroupBalancers:    []kafka.GroupBalancer{balancers[o.strategy]},
		HeartbeatInterval: 300 * time.Millisecond, SessionTimeout: o.session, RebalanceTimeout: 20 * time.Second,
		JoinGroupBackoff: 200 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	for {
		gen, err := g.Next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			note("join: %v", err)
			continue
		}
		var ps []int32
		for _, a := range gen.Assignments[o.topic] {
			ps = append(ps, int32(a.ID))
		}
		assigned(ps)
		left := atomic.Int64{}
		left.Store(int64(len(ps)))
		for _, a := range gen.Assignments[o.topic] {
			gen.Start(func(ctx context.Context) {
				readKafkaGo(ctx, o, gen, a)
				if left.Add(-1) == 0 { // the library joins again when all have returned
					revoked(ps)
				}
			})
		}
	}
	return g.Close()
}

// readKafkaGo processes one partition until the generation ends.
func readKafkaGo(ctx context.Context, o order, gen *kafka.Generation, a kafka.PartitionAssignment) {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{o.bootstrap}, Topic: o.topic, Partition: a.ID, MaxWait: 300 * time.Millisecond, MinBytes: 1, MaxBytes: 1 << 20,
	})
	defer r.Close()
	if err := r.SetOffset(a.Offset); err != nil {
		note("partition %d: %v", a.ID, err)
		return
	}
	for {
		first, err := r.FetchMessage(ctx)
		if err != nil {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, kafka.ErrGenerationEnded) {
				note("partition %d: %v", a.ID, err)
			}
			if ctx.Err() != nil {
				return
			}
			continue
		}
		processed(int32(a.ID), first.Offset, first.Offset, 1)
		if err := gen.CommitOffsets(map[string]map[int]int64{o.topic: {a.ID: first.Offset + 1}}); err != nil {
			note("partition %d: commit: %v", a.ID, err)
		}
	}
}
