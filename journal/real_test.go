package journal

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// realLog is a partition of a Set as the journal sees it.
type realLog struct{ *partition.Partition }

func (r realLog) Writing() (int32, bool) {
	return r.Offsets().Epoch, r.State() == partition.Writing
}

func (realLog) Written(a *partition.Ack) error { return a.Written() }

func (realLog) Durable(ctx context.Context, a *partition.Ack) error { return a.Durable(ctx) }

// realWorld is a broker's set of one partition, over a bucket in memory.
type realWorld struct {
	t       testing.TB
	dir     string
	bucket  *bucket.Memory
	mu      sync.Mutex
	rev     int64
	assign  cluster.Assignment
	set     *partition.Set
	archive *tier.Archive
	cache   *cache.Cache
}

var realID = frame.PartitionID{Topic: frame.TopicID{15: 1}}

func newRealWorld(t testing.TB) *realWorld {
	return &realWorld{t: t, dir: t.TempDir(), bucket: bucket.NewMemory(), assign: cluster.Assignment{Epoch: cluster.NoEpoch}}
}

func (w *realWorld) open() {
	w.cache = cache.New(cache.Options{Bucket: w.bucket, Bytes: 8 << 20, ChunkBytes: 64 << 10, Workers: 2})
	w.archive = tier.New(tier.Options{Heads: w.bucket, Cache: w.cache, ClusterID: "test", ClusterIncarnation: "one"})
	epoch := w.assign.Epoch + 1
	w.assign = cluster.Assignment{Owner: 1, OwnerIncarnation: fmt.Sprint("run-", epoch), Epoch: epoch, State: cluster.Starting, Target: cluster.NoBroker}
	var err error
	w.set, err = partition.OpenSet(partition.SetOptions{Dir: w.dir, Archive: w.archive, Cluster: w, Broker: 1, Incarnation: w.assign.OwnerIncarnation,
		BootID: "boot", Log: segment.Options{FileBytes: 1 << 20}, RollInterval: time.Hour, MaintainInterval: time.Hour})
	require.NoError(w.t, err)
	w.publish()
}

func (w *realWorld) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(w.t, w.set.Close(ctx))
	require.NoError(w.t, w.archive.Close())
	require.NoError(w.t, w.cache.Close())
}

func (w *realWorld) publish() {
	cfg, err := cluster.ParseTopicConfig(map[string]string{"cleanup.policy": "compact"}, nil)
	require.NoError(w.t, err)
	w.mu.Lock()
	w.rev++
	img, err := cluster.ImageSpec{Revision: w.rev, ClusterID: "test", Assignments: map[frame.PartitionID]cluster.Assignment{realID: w.assign},
		Topics:  []*cluster.Topic{{Name: "__consumer_offsets", ID: realID.Topic, Partitions: 1, Config: cfg, Internal: true}},
		Brokers: []cluster.Broker{{ID: 1, Incarnation: w.assign.OwnerIncarnation, Host: "localhost", Port: 9092}}}.Build()
	w.mu.Unlock()
	require.NoError(w.t, err)
	w.set.Apply(img)
}

// Transition implements partition.Cluster.
func (w *realWorld) Transition(_ context.Context, ts []cluster.Transition) error {
	for _, t := range ts {
		w.mu.Lock()
		w.assign.State = t.To
		w.mu.Unlock()
		w.publish()
	}
	return nil
}

// MarkWarm implements partition.Cluster.
func (*realWorld) MarkWarm(context.Context, int32, []cluster.Warmed) error { return nil }

// Lives implements partition.Cluster.
func (*realWorld) Lives(context.Context, int32, string) (bool, error) { return true, nil }

// FinishDelete implements partition.Cluster.
func (w *realWorld) FinishDelete(context.Context, frame.TopicID) error { return nil }

func (w *realWorld) partition(int32) Partition {
	if p := w.set.Get(realID); p != nil {
		return realLog{p}
	}
	return nil
}

// The journal over a real partition: many commits, snapshots that move the start, restarts, and a start from the bucket alone.
func TestOverARealPartition(t *testing.T) {
	w := newRealWorld(t)
	w.open()
	r := newRig(t)
	r.tune = func(o *Options[*mach]) { o.Partition, o.SnapshotBytes = w.partition, 64<<10 }
	r.open()
	r.await()
	want := map[string]int{}
	for round := range 3 {
		for i := range 2000 {
			k := fmt.Sprint("key-", i%500)
			want[k] = round*10_000 + i
			c, err := r.put(k, want[k])
			require.NoError(t, err)
			if i%200 == 199 {
				require.NoError(t, <-c)
			}
		}
		require.Equal(t, want, r.state())
		r.eventually(func() bool { return r.count(Trimmed) > round })
		require.Positive(t, w.partition(0).Offsets().Start)
		require.Less(t, w.partition(0).Offsets().Start, w.partition(0).Offsets().End)
		r.j.Close()
		w.close()
		w.open()
		r.open()
		r.await()
		require.Equal(t, want, r.state(), "round %d", round)
	}
	require.Zero(t, r.count(Damaged))
	// The machine's disk is lost after everything was rolled.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, w.set.Get(realID).Roll(ctx))
	r.j.Close()
	w.close()
	w.dir = t.TempDir()
	w.open()
	r.open()
	r.await()
	require.Equal(t, want, r.state())
	r.mustPut("more", 1)
	r.j.Close()
	w.close()
}

// BenchmarkDo measures operations of one record that 64 callers wait for.
func BenchmarkDo(b *testing.B) {
	w := newRealWorld(b)
	w.open()
	r := newRig(b)
	r.tune = func(o *Options[*mach]) { o.Partition = w.partition }
	r.open()
	r.await()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		c := make(chan error, 1)
		for pb.Next() {
			if err := r.j.Do(0, func(m *mach, _ time.Time) Step { return m.put("a-key-of-some-length", 1, func(err error) { c <- err }) }); err != nil {
				b.Error(err)
				return
			}
			if err := <-c; err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	r.j.Close()
	w.close()
}

// BenchmarkLoad measures the start of a shard behind a million operations on ten thousand keys.
func BenchmarkLoad(b *testing.B) {
	w := newRealWorld(b)
	w.open()
	r := newRig(b)
	r.tune = func(o *Options[*mach]) { o.Partition = w.partition }
	r.open()
	r.await()
	key := make([]byte, 40)
	for i := range 1_000_000 {
		binary.BigEndian.PutUint64(key, uint64(i%10_000))
		c, err := r.put(string(key), i)
		require.NoError(b, err)
		if i%1000 == 999 {
			require.NoError(b, <-c)
		}
	}
	r.eventually(func() bool { return r.count(Trimmed) > 0 })
	for b.Loop() {
		r.j.Close()
		r.open()
		r.await()
	}
	b.StopTimer()
	o := w.partition(0).Offsets()
	b.ReportMetric(float64(o.End), "records-written")
	b.ReportMetric(float64(o.End-o.Start), "records-read")
	r.j.Close()
	w.close()
}
