package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	randv2 "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// plane plays etcd and the controller for several brokers over one bucket. Tests say who owns what; the brokers'
// transitions follow the rules of package cluster.
type plane struct {
	t      testing.TB
	bucket bucket.Bucket
	now    atomic.Int64

	mu       sync.Mutex
	rev      int64
	runs     int
	topics   map[frame.TopicID]*cluster.Topic
	assigned map[frame.PartitionID]cluster.Assignment
	nodes    map[int32]*node

	keepTarget bool // a move that its owner gave up stays wished, as with the real controller
}

// node is one broker of a plane: its disk outlives its runs.
type node struct {
	pl          *plane
	id          int32
	dir         string
	mem         *vfs.MemFS
	files       *segment.FaultFS
	store       *bucket.Fault
	set         *Set
	arch        *tier.Archive
	cache       *cache.Cache
	incarnation string
	alive       bool // its registration is in the image
	events      []Event
	eventsMu    sync.Mutex
	tune        func(*SetOptions)
}

func newPlane(t testing.TB, brokers int32) *plane {
	pl := &plane{t: t, bucket: bucket.NewMemory(), topics: map[frame.TopicID]*cluster.Topic{},
		assigned: map[frame.PartitionID]cluster.Assignment{}, nodes: map[int32]*node{}}
	pl.now.Store(1_700_000_000_000)
	for id := int32(1); id <= brokers; id++ {
		pl.nodes[id] = &node{pl: pl, id: id, store: bucket.NewFault(pl.bucket, nil)}
		pl.nodes[id].wipe()
		pl.nodes[id].open()
	}
	t.Cleanup(func() {
		for _, n := range pl.nodes {
			n.stop()
		}
	})
	return pl
}

// wipe gives the broker a new disk.
func (n *node) wipe() {
	n.dir, n.mem, n.files = n.pl.t.TempDir(), vfs.NewCrashableMem(), segment.NewFaultFS(segment.OSFS{}, nil)
}

func (n *node) open() {
	pl := n.pl
	pl.mu.Lock()
	pl.runs++
	n.incarnation = fmt.Sprintf("run-%d", pl.runs)
	pl.mu.Unlock()
	n.cache = cache.New(cache.Options{Bucket: n.store, Bytes: 64 << 20, ChunkBytes: 64 << 10, Workers: 2})
	n.arch = tier.New(tier.Options{Heads: n.store, Cache: n.cache, ClusterID: "test", ClusterIncarnation: "one", BlockBytes: 4 << 10,
		RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond})
	o := SetOptions{
		Dir: n.dir, Archive: n.arch, Cluster: n, Broker: n.id, Incarnation: n.incarnation, BootID: "boot", Now: pl.now.Load, OnEvent: n.event,
		Log:          segment.Options{FileBytes: 256 << 10, SyncInterval: 5 * time.Millisecond, FS: n.files},
		Index:        index.Options{FS: n.mem, Dir: "index"},
		RollInterval: time.Hour, MaintainInterval: time.Hour, BucketCallTimeout: 20 * time.Second, RetryPause: 4 * time.Millisecond,
		StreamInterval: time.Millisecond, SwapDelay: time.Hour,
		WAL: &wal.Options{Bucket: n.store, Stream: wal.StreamID{Broker: n.id, Incarnation: n.incarnation}, ClusterID: "test", ClusterIncarnation: "one",
			Now: pl.now.Load, RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond},
	}
	if n.tune != nil {
		n.tune(&o)
	}
	set, err := OpenSet(o)
	require.NoError(pl.t, err)
	pl.mu.Lock()
	n.set, n.alive = set, true
	for id, a := range pl.assigned {
		if a.Owner == n.id {
			pl.assigned[id] = pl.started(a, n)
		}
	}
	pl.publish()
}

// started is what the controller writes when it gives a partition to a broker.
func (pl *plane) started(a cluster.Assignment, n *node) cluster.Assignment {
	return cluster.Assignment{Owner: n.id, OwnerIncarnation: n.incarnation, Epoch: a.Epoch + 1, State: cluster.Starting, Target: cluster.NoBroker,
		Safe: a.Safe, Jump: a.Jump}
}

func (n *node) event(e Event) {
	n.eventsMu.Lock()
	n.events = append(n.events, e)
	n.eventsMu.Unlock()
}

// stop ends the run in order.
func (n *node) stop() {
	if n.set == nil {
		return
	}
	n.gone()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.set.Close(ctx); err != nil && n.set.Err() == nil {
		require.NoError(n.pl.t, err)
	}
	require.NoError(n.pl.t, n.arch.Close())
	require.NoError(n.pl.t, n.cache.Close())
	n.pl.mu.Lock()
	n.set = nil
	n.pl.mu.Unlock()
}

// gone takes the broker's registration away: its lease has ended.
func (n *node) gone() {
	n.pl.mu.Lock()
	n.alive = false
	n.pl.publish()
}

// kill ends the run as kill -9 does: what was synced stays on the disk.
func (n *node) kill(seed int64) {
	n.files.SetPlan(func(segment.Call) error { return segment.ErrCrash })
	n.store.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Crash: true, Before: bucket.ErrCrashed} })
	clone := n.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: randv2.New(randv2.NewPCG(uint64(seed), 1))})
	set := n.set
	n.pl.mu.Lock()
	n.set, n.alive = nil, false
	n.pl.publish()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = set.Close(ctx) // errors are the point
	_ = n.arch.Close()
	_ = n.cache.Close()
	n.mem = clone
	var rnd *rand.Rand
	require.NoError(n.pl.t, n.files.Restart(rnd, nil))
	n.store.Revive(nil)
}

// publish hands the state to all living sets. It is called with mu held and releases it.
func (pl *plane) publish() {
	pl.rev++
	spec := cluster.ImageSpec{Revision: pl.rev, ClusterID: "test", Assignments: map[frame.PartitionID]cluster.Assignment{}}
	for _, t := range pl.topics {
		spec.Topics = append(spec.Topics, t)
	}
	for id, a := range pl.assigned {
		spec.Assignments[id] = a
	}
	var sets []*Set
	for _, n := range pl.nodes {
		if n.alive {
			spec.Brokers = append(spec.Brokers, cluster.Broker{ID: n.id, Incarnation: n.incarnation, Host: "localhost", Port: 9092})
		}
		if n.set != nil && (n.alive || !n.cutOff()) {
			sets = append(sets, n.set)
		}
	}
	pl.mu.Unlock()
	img, err := spec.Build()
	if err != nil {
		panic(err)
	}
	for _, s := range sets {
		s.Apply(img)
	}
}

// cutOff says whether the broker sees no images: a zombie.
func (n *node) cutOff() bool { return !n.alive }

func (pl *plane) topic(name string, owner int32, overrides map[string]string) frame.PartitionID {
	cfg := topicConfig(pl.t, overrides)
	pl.mu.Lock()
	var id frame.PartitionID
	binary.BigEndian.PutUint64(id.Topic[8:], uint64(len(pl.topics)+1))
	pl.topics[id.Topic] = &cluster.Topic{Name: name, ID: id.Topic, Partitions: 1, Config: cfg, Overrides: overrides}
	n := pl.nodes[owner]
	pl.assigned[id] = cluster.Assignment{Owner: owner, OwnerIncarnation: n.incarnation, State: cluster.Starting, Target: cluster.NoBroker, Safe: true}
	pl.publish()
	return id
}

// alter changes the topic's settings.
func (pl *plane) alter(id frame.PartitionID, overrides map[string]string) {
	cfg := topicConfig(pl.t, overrides)
	pl.mu.Lock()
	t := *pl.topics[id.Topic]
	t.Config, t.Overrides = cfg, overrides
	pl.topics[id.Topic] = &t
	pl.publish()
}

func topicConfig(t testing.TB, overrides map[string]string) cluster.TopicConfig {
	cfg, err := cluster.ParseTopicConfig(overrides, nil)
	require.NoError(t, err)
	return cfg
}

// give makes another broker the owner, as the controller does at a failover; jump: the old one did not let go.
func (pl *plane) give(id frame.PartitionID, to int32, jump bool) {
	pl.mu.Lock()
	a := pl.started(pl.assigned[id], pl.nodes[to])
	a.Jump = a.Jump || jump
	pl.assigned[id] = a
	pl.publish()
}

// target begins a planned move.
func (pl *plane) target(id frame.PartitionID, to int32) {
	pl.mu.Lock()
	a := pl.assigned[id]
	a.Target, a.Warm = to, false
	pl.assigned[id] = a
	pl.publish()
}

func (pl *plane) assignment(id frame.PartitionID) cluster.Assignment {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.assigned[id]
}

// await waits until a broker serves the partition.
func (pl *plane) await(id frame.PartitionID, at int32) *Partition {
	pl.t.Helper()
	n := pl.nodes[at]
	var p *Partition
	eventually(pl.t, func() bool { p = n.set.Get(id); return p != nil && p.State() == Writing }, func() string {
		n.eventsMu.Lock()
		defer n.eventsMu.Unlock()
		return fmt.Sprintf("%+v; events of broker %d: %+v", pl.assignment(id), at, n.events)
	})
	return p
}

// Transition implements Cluster.
func (n *node) Transition(_ context.Context, ts []cluster.Transition) error {
	if len(ts) == 0 {
		return nil
	}
	pl := n.pl
	pl.mu.Lock()
	if !n.alive {
		pl.mu.Unlock()
		return errors.New("etcd does not answer")
	}
	lost := &cluster.FencedError{}
	for _, t := range ts {
		a := pl.assigned[t.ID]
		if a.Epoch == t.Epoch && a.OwnerIncarnation == t.OwnerIncarnation && a.State == t.To && t.Safe == nil {
			continue // made already
		}
		if a.Epoch != t.Epoch || a.OwnerIncarnation != t.OwnerIncarnation || a.State != t.From || t.HandOver && a.Target != t.NewOwner {
			lost.Lost = append(lost.Lost, t.ID)
			continue
		}
		a.State, a.Reason = t.To, t.Reason
		if t.Safe != nil {
			a.Safe = *t.Safe
		}
		switch {
		case t.HandOver:
			a.Owner, a.OwnerIncarnation, a.Epoch, a.Target, a.Warm = t.NewOwner, t.NewIncarnation, a.Epoch+1, cluster.NoBroker, false
		case t.To == cluster.Writing:
			a.Jump = false
			if t.From == cluster.Draining && !pl.keepTarget {
				a.Target, a.Warm = cluster.NoBroker, false
			}
		}
		pl.assigned[t.ID] = a
	}
	pl.publish()
	if len(lost.Lost) > 0 {
		return lost
	}
	return nil
}

// MarkWarm implements Cluster.
func (n *node) MarkWarm(_ context.Context, target int32, ws []cluster.Warmed) error {
	pl := n.pl
	pl.mu.Lock()
	for _, w := range ws {
		if a := pl.assigned[w.ID]; a.Target == target && a.Epoch == w.Epoch && a.Owner == w.Owner {
			a.Warm = true
			pl.assigned[w.ID] = a
		}
	}
	pl.publish()
	return nil
}

// Lives implements Cluster.
func (n *node) Lives(_ context.Context, broker int32, incarnation string) (bool, error) {
	n.pl.mu.Lock()
	defer n.pl.mu.Unlock()
	if !n.alive {
		return false, errors.New("etcd does not answer")
	}
	b := n.pl.nodes[broker]
	return b != nil && b.alive && b.incarnation == incarnation, nil
}

// FinishDelete implements Cluster.
func (n *node) FinishDelete(context.Context, frame.TopicID) error { return nil }
