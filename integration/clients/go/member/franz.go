package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func runFranz(ctx context.Context, o order) error {
	inner := context.Background()
	if o.protocol == "consumer" {
		// The library's switch for the protocol of KIP-848.
		inner = context.WithValue(inner, "opt_in_kafka_next_gen_balancer_beta", true) //nolint:staticcheck // the key is the library's
	}
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(), "cooperative": kgo.CooperativeStickyBalancer(),
	}
	opts := []kgo.Opt{
		kgo.WithContext(inner), kgo.SeedBrokers(o.bootstrap), kgo.ConsumerGroup(o.group), kgo.ConsumeTopics(o.topic), kgo.ClientID(o.id),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(o.session), kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.RebalanceTimeout(20 * time.Second), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(300 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { assigned(m[o.topic]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { revoked(m[o.topic]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { lost(m[o.topic]) }),
	}
	// Without a strategy, the library's own: cooperative-sticky, or what the protocol of KIP-848 has.
	if b := balancers[o.strategy]; b != nil {
		opts = append(opts, kgo.Balancers(b))
	}
	if o.instance != "" {
		opts = append(opts, kgo.InstanceID(o.instance))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	defer cl.AllowRebalance()
	for ctx.Err() == nil {
		fetched := cl.PollRecords(ctx, batchRecords)
		fetched.EachPartition(func(p kgo.FetchTopicPartition) {
			if n := len(p.Records); n > 0 {
				processed(p.Partition, p.Records[0].Offset, p.Records[n-1].Offset, n)
			}
			if p.Err != nil && ctx.Err() == nil {
				note("fetch %d: %v", p.Partition, p.Err)
			}
		})
		if len(cl.UncommittedOffsets()) > 0 { // also what a rebalance refused
			if err := cl.CommitUncommittedOffsets(context.Background()); err != nil {
				note("commit: %v", err)
			}
		}
		cl.AllowRebalance()
	}
	return nil
}
