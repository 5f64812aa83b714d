package bench

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/bench/raw"
	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// set is a broker's partitions without a network in front of them.
type set struct {
	*partition.Set
	b      *testing.B
	chunks *cache.Cache
	state  *assignments
	batch  []byte // what append writes
}

// setOptions say what a benchmark's set differs in.
type setOptions struct {
	bucket     bucket.Bucket
	fs         segment.FS
	partitions int
	topic      map[string]string
	batch      int
	cacheBytes int64
}

// newSet opens a set over a fresh directory whose partitions take writes.
func newSet(b *testing.B, o setOptions) *set {
	if o.bucket == nil {
		o.bucket = bucket.NewMemory()
	}
	chunks := cache.New(cache.Options{Bucket: o.bucket, Bytes: o.cacheBytes, ChunkBytes: 4 << 20})
	archive := tier.New(tier.Options{Heads: o.bucket, Cache: chunks, ClusterID: "bench", ClusterIncarnation: "one"})
	s := &set{b: b, chunks: chunks, state: &assignments{}, batch: raw.Batch(o.batch, 1000, time.Now().UnixMilli())}
	var err error
	s.Set, err = partition.OpenSet(partition.SetOptions{
		Dir: b.TempDir(), Archive: archive, Cluster: s.state, Broker: 1, Incarnation: "run", BootID: "boot",
		Log: segment.Options{FileBytes: 64 << 20, FS: o.fs},
	})
	require.NoError(b, err)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(b, s.Close(ctx))
		require.NoError(b, archive.Close())
		require.NoError(b, chunks.Close())
	})
	s.state.create(b, s.Set, int32(max(1, o.partitions)), o.topic)
	return s
}

// part returns a partition.
func (s *set) part(i int) *partition.Partition { return s.Get(partitionID(int32(i))) }

// append writes the set's batch to a partition; b is the caller's copy of it, which is stamped.
func (s *set) append(p *partition.Partition, b []byte) (partition.Ack, error) {
	ack, err := p.Append(b, partition.AppendOptions{Epoch: -1, Now: time.Now().UnixMilli()})
	if err != nil {
		return ack, err
	}
	return ack, ack.Written()
}

// fill writes about n bytes to a partition and waits until they are durable.
func (s *set) fill(p *partition.Partition, n int) {
	s.b.Helper()
	b := append([]byte(nil), s.batch...)
	var last partition.Ack
	for ; n > 0; n -= len(b) {
		copy(b, s.batch)
		var err error
		last, err = s.append(p, b)
		require.NoError(s.b, err)
	}
	require.NoError(s.b, last.Durable(s.b.Context()))
}

func partitionID(i int32) frame.PartitionID {
	id := frame.PartitionID{Partition: i}
	binary.BigEndian.PutUint64(id.Topic[8:], 1)
	return id
}

// assignments play the cluster's state: one topic, all of it ours.
type assignments struct {
	mu   sync.Mutex
	rev  int64
	spec cluster.ImageSpec
	set  *partition.Set
}

// create makes the topic and waits until its partitions take writes.
func (a *assignments) create(b *testing.B, s *partition.Set, n int32, overrides map[string]string) {
	cfg, err := cluster.ParseTopicConfig(overrides, nil)
	require.NoError(b, err)
	a.set = s
	a.spec = cluster.ImageSpec{ClusterID: "bench", Brokers: []cluster.Broker{{ID: 1, Incarnation: "run", Host: "localhost", Port: 1}},
		Topics:      []*cluster.Topic{{Name: "t", ID: partitionID(0).Topic, Partitions: n, Config: cfg, Overrides: overrides}},
		Assignments: map[frame.PartitionID]cluster.Assignment{}}
	for i := range n {
		a.spec.Assignments[partitionID(i)] = cluster.Assignment{Owner: 1, OwnerIncarnation: "run", State: cluster.Starting}
	}
	require.NoError(b, a.publish())
	for i := range n {
		require.Eventually(b, func() bool {
			p := s.Get(partitionID(i))
			return p != nil && p.State() == partition.Writing
		}, time.Minute, time.Millisecond)
	}
}

func (a *assignments) publish() error {
	a.rev++
	a.spec.Revision = a.rev
	img, err := a.spec.Build()
	if err != nil {
		return err
	}
	a.set.Apply(img)
	return nil
}

// Transition implements partition.Cluster.
func (a *assignments) Transition(_ context.Context, ts []cluster.Transition) error {
	if len(ts) == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range ts {
		x := a.spec.Assignments[t.ID]
		x.State = t.To
		a.spec.Assignments[t.ID] = x
	}
	return a.publish()
}

// MarkWarm implements partition.Cluster.
func (*assignments) MarkWarm(context.Context, int32, []cluster.Warmed) error { return nil }

// Lives implements partition.Cluster.
func (*assignments) Lives(context.Context, int32, string) (bool, error) { return true, nil }

// FinishDelete implements partition.Cluster.
func (a *assignments) FinishDelete(context.Context, frame.TopicID) error { return nil }
