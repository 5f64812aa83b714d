package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierbroker/tierbroker/admin"
	"github.com/tierbroker/tierbroker/broker"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
)

// current is the incarnation that serves now; nil between two of them.
type current struct{ node atomic.Pointer[node] }

// Handle gives a request to the broker of the current incarnation.
func (c *current) Handle(ctx context.Context, r *kafka.Request) kafka.Pending {
	n := c.node.Load()
	if n == nil || n.broker == nil {
		return kafka.Done{None: true, Close: fmt.Errorf("the broker is starting")}
	}
	return n.broker.Handle(ctx, r)
}

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
		u.Used = n.set.Log().DiskBytes()
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

// health collects what is wrong from those who know.
type health struct {
	d  *daemon
	mu sync.Mutex
	// problems by component, for what is found out once and not at each look.
	problems map[string]admin.Problem
}

func (h *health) set(component, message string, unready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems[component] = admin.Problem{Component: component, Message: message, Unready: unready}
}

func (h *health) clear(component string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.problems, component)
}

func (h *health) has(component string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.problems[component]
	return ok
}

// Check returns the problems of this moment.
func (h *health) Check() []admin.Problem {
	h.mu.Lock()
	list := make([]admin.Problem, 0, len(h.problems)+1)
	for _, p := range h.problems {
		list = append(list, p)
	}
	h.mu.Unlock()
	n := h.d.current.node.Load()
	if n == nil {
		return append(list, admin.Problem{Component: "process", Message: "starting, or joining the cluster again", Unready: true})
	}
	if n.set != nil {
		if wm := n.set.Log().Watermarks(); wm.Err != nil {
			list = append(list, admin.Problem{Component: "commitlog", Message: "refuses writes: " + wm.Err.Error(), Unready: true})
		}
		if err := n.set.Err(); err != nil {
			list = append(list, admin.Problem{Component: "commitlog", Message: err.Error(), Unready: true})
		}
	}
	if n.session.ValidFor(time.Now()) <= 0 {
		list = append(list, admin.Problem{Component: "cluster", Message: "the lease in etcd may have ended", Unready: true})
	}
	return list
}
