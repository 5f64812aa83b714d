package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tierbroker/tierbroker/admin"
	"github.com/tierbroker/tierbroker/broker"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
)

// current is the incarnation that serves now; nil between two of them.
type current struct {
	node atomic.Pointer[node]
	// between answers while there is none: with errors that clients try again on.
	between atomic.Pointer[broker.Broker]
}

// Handle gives a request to the broker of the current incarnation.
func (c *current) Handle(ctx context.Context, r *kafka.Request) kafka.Pending {
	if n := c.node.Load(); n != nil && n.broker != nil {
		return n.broker.Handle(ctx, r)
	}
	if b := c.between.Load(); b != nil {
		return b.Handle(ctx, r)
	}
	return kafka.Done{None: true, Close: fmt.Errorf("the broker is starting")}
}

// nowhere is a broker without partitions.
type nowhere struct{}

// Get finds nothing.
func (nowhere) Get(frame.PartitionID) broker.Partition { return nil }

// Stats gives the admin server every partition of this broker.
func (c *current) Stats(yield func(partition.Stats) bool) {
	n := c.node.Load()
	if n == nil || n.set == nil {
		return
	}
	for _, p := range n.set.All() {
		if !yield(p.Stats()) {
			return
		}
	}
}

func (c *current) find(id frame.PartitionID) (*partition.Partition, error) {
	if n := c.node.Load(); n != nil && n.set != nil {
		if p := n.set.Get(id); p != nil {
			return p, nil
		}
	}
	return nil, partition.ErrNotOwner
}

// Roll brings a partition into the bucket.
func (c *current) Roll(ctx context.Context, id frame.PartitionID) error {
	p, err := c.find(id)
	if err != nil {
		return err
	}
	return p.Roll(ctx)
}

// Evict drops a partition's local copies that the bucket covers.
func (c *current) Evict(ctx context.Context, id frame.PartitionID) error {
	p, err := c.find(id)
	if err != nil {
		return err
	}
	return p.Evict(ctx)
}

// localInfo gives the admin server disk, cache and connections.
type localInfo struct {
	*current
	d *daemon
}

func (l localInfo) Files() []admin.LogFile {
	n := l.node.Load()
	if n == nil || n.set == nil {
		return nil
	}
	var files []admin.LogFile
	for _, f := range n.set.Log().Files() {
		files = append(files, admin.LogFile{Base: f.Base, End: f.End, Bytes: f.Bytes, Active: f.Active, Readers: f.Refs})
	}
	return files
}

func (l localInfo) Disk() admin.DiskUsage {
	u := admin.DiskUsage{Budget: int64(l.d.config.DiskBudget)}
	if _, free, err := diskSpace(l.d.dir.path); err == nil {
		u.Free = free
	}
	if n := l.node.Load(); n != nil && n.set != nil {
		u.Used, u.Budget = n.set.Log().DiskBytes(), n.set.DiskBudget()
	}
	return u
}

func (l localInfo) Cache() admin.CacheStats {
	n := l.node.Load()
	if n == nil || n.cache == nil {
		return admin.CacheStats{}
	}
	s := n.cache.Stats()
	return admin.CacheStats{Hits: s.Hits, Misses: s.Misses, Evictions: s.Evictions, Bytes: s.Bytes, Inflight: s.InFlight}
}

func (l localInfo) Groups() admin.GroupStats {
	n := l.node.Load()
	if n == nil || n.broker == nil {
		return admin.GroupStats{}
	}
	return admin.GroupStats(n.broker.GroupStats())
}

func (l localInfo) GroupLag() admin.GroupLag {
	n := l.node.Load()
	if n == nil || n.broker == nil {
		return admin.GroupLag{}
	}
	lag := n.broker.GroupLag()
	out := admin.GroupLag{Unlisted: lag.Unlisted, UnlistedRecords: lag.UnlistedRecords, Unknown: lag.Unknown}
	if !lag.At.IsZero() {
		out.At = lag.At.UnixMilli()
	}
	for _, p := range lag.Pairs {
		out.Pairs = append(out.Pairs, admin.PairLag(p))
	}
	return out
}

func (l localInfo) Connections() int { return int(l.d.kafka.Stats().Conns) }

// traffic gives the admin server what the broker has counted.
type traffic struct{ *broker.Counters }

func (t traffic) Bounds() []time.Duration { return broker.LatencyBounds() }

func (t traffic) APIs(fn func(admin.APIStats)) {
	t.Counters.APIs(func(s broker.APIStats) { fn(admin.APIStats(s)) })
}

func (t traffic) Topics(fn func(admin.TopicStats)) {
	t.Counters.Topics(func(s broker.TopicStats) { fn(admin.TopicStats(s)) })
}
