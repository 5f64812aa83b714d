package partition

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// world is a broker's disk, bucket and cluster state, which outlive the Sets that a test opens and crashes.
type world struct {
	t      testing.TB
	dir    string
	fs     segment.FS
	ixfs   vfs.FS
	bucket bucket.Bucket
	state  *fakeCluster
	now    atomic.Int64
	boot   string
	set    *Set
	arch   *tier.Archive
	cache  *cache.Cache
	tune   func(*SetOptions)
	events chan Event
}

const testBroker = 1

func newWorld(t testing.TB) *world {
	w := &world{t: t, dir: t.TempDir(), bucket: bucket.NewMemory(), boot: "boot-1", events: make(chan Event, 4096)}
	w.now.Store(1_700_000_000_000)
	w.state = &fakeCluster{w: w, topics: map[frame.TopicID]*cluster.Topic{}, assigned: map[frame.PartitionID]cluster.Assignment{}}
	return w
}

// open starts a new run of the broker: a new incarnation, for which the controller raises every epoch.
func (w *world) open() *Set {
	w.t.Helper()
	s, err := w.tryOpen()
	require.NoError(w.t, err)
	return s
}

func (w *world) tryOpen() (*Set, error) {
	w.cache = cache.New(cache.Options{Bucket: w.bucket, Bytes: 64 << 20, ChunkBytes: 64 << 10, Workers: 2})
	w.arch = tier.New(tier.Options{Heads: w.bucket, Cache: w.cache, ClusterID: "test", ClusterIncarnation: "one", BlockBytes: 4 << 10,
		RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond})
	w.state.incarnation = fmt.Sprintf("run-%d", w.state.runs.Add(1))
	o := SetOptions{
		Dir: w.dir, Archive: w.arch, Cluster: w.state, Broker: testBroker, Incarnation: w.state.incarnation, BootID: w.boot,
		Now: w.now.Load, OnEvent: w.event,
		Log:   segment.Options{FileBytes: 256 << 10, SyncInterval: 5 * time.Millisecond, FS: w.fs},
		Index: index.Options{FS: w.ixfs},
		// Loops that a test doesn't drive by hand stay quiet.
		RollInterval: time.Hour, MaintainInterval: time.Hour, BucketCallTimeout: 20 * time.Second, RetryPause: 4 * time.Millisecond,
	}
	if w.ixfs != nil {
		o.Index.Dir = "index"
	}
	if w.tune != nil {
		w.tune(&o)
	}
	s, err := OpenSet(o)
	if err != nil {
		w.cache.Close()
		return nil, err
	}
	w.set = s
	w.state.restart()
	return s, nil
}

func (w *world) event(e Event) {
	select {
	case w.events <- e:
	default:
	}
}

func (w *world) close() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(w.t, w.set.Close(ctx))
	require.NoError(w.t, w.arch.Close())
	require.NoError(w.t, w.cache.Close())
}

// reopen is a clean restart.
func (w *world) reopen() *Set {
	w.close()
	return w.open()
}

func (w *world) removeIndex() { removeAll(w.t, filepath.Join(w.dir, "index")) }

// topic makes a topic of one partition and waits until it takes writes.
func (w *world) topic(name string, overrides map[string]string) *Partition {
	w.t.Helper()
	id := w.state.create(w.t, name, overrides)
	return w.await(id)
}

// await waits until the partition is Writing.
func (w *world) await(id frame.PartitionID) *Partition {
	w.t.Helper()
	eventually(w.t, func() bool { p := w.set.Get(id); return p != nil && p.State() == Writing }, func() string {
		if p := w.set.Get(id); p != nil {
			return fmt.Sprintf("%+v", p.Stats())
		}
		return "no such partition"
	})
	return w.set.Get(id)
}

func eventually(t testing.TB, ok func() bool, why func() string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not in time: %s", why())
		}
	}
}

// fakeCluster plays etcd and the controller for one broker.
type fakeCluster struct {
	w           *world
	mu          sync.Mutex
	rev         int64
	made        uint64
	hold        bool // images don't reach the set
	runs        atomic.Int64
	incarnation string
	topics      map[frame.TopicID]*cluster.Topic
	assigned    map[frame.PartitionID]cluster.Assignment
	deleted     map[frame.TopicID]*cluster.DeletedTopic
	finished    []frame.TopicID
}

func (c *fakeCluster) create(t testing.TB, name string, overrides map[string]string) frame.PartitionID {
	cfg, err := cluster.ParseTopicConfig(overrides, nil)
	require.NoError(t, err)
	id := c.add(1, name, cfg, overrides)
	c.touch()
	return id
}

// add makes a topic and returns its first partition; nobody is told yet.
func (c *fakeCluster) add(n int32, name string, cfg cluster.TopicConfig, overrides map[string]string) frame.PartitionID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	var id frame.PartitionID
	binary.BigEndian.PutUint64(id.Topic[8:], c.made)
	c.topics[id.Topic] = &cluster.Topic{Name: name, ID: id.Topic, Partitions: n, Config: cfg, Overrides: overrides}
	for id.Partition = n - 1; id.Partition >= 0; id.Partition-- {
		c.assigned[id] = cluster.Assignment{Owner: testBroker, Target: cluster.NoBroker, OwnerIncarnation: c.incarnation, State: cluster.Starting, Epoch: 0}
	}
	id.Partition = 0
	return id
}

// restart gives every partition to the new run.
func (c *fakeCluster) restart() {
	c.mu.Lock()
	for id, a := range c.assigned {
		if a.State != cluster.Deleted {
			c.assigned[id] = cluster.Assignment{Owner: testBroker, Target: cluster.NoBroker, OwnerIncarnation: c.incarnation, State: cluster.Starting, Epoch: a.Epoch + 1}
		}
	}
	c.publish()
}

func (c *fakeCluster) remove(id frame.PartitionID) {
	c.mu.Lock()
	t := *c.topics[id.Topic]
	t.Deleting, t.DeletedAt = true, c.w.now.Load()
	c.topics[id.Topic] = &t
	c.publish()
}

// alter changes a topic's settings and waits until the partition has them.
func (w *world) alter(t testing.TB, p *Partition, overrides map[string]string) {
	t.Helper()
	cfg, err := cluster.ParseTopicConfig(overrides, nil)
	require.NoError(t, err)
	c := w.state
	c.mu.Lock()
	topic := *c.topics[p.ID().Topic]
	topic.Config, topic.Overrides = cfg, overrides
	c.topics[topic.ID] = &topic
	c.publish()
	eventually(t, func() bool { return *p.Config() == cfg }, func() string { return "the settings don't arrive" })
}

func (c *fakeCluster) assignment(id frame.PartitionID) cluster.Assignment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.assigned[id]
}

// startAt gives a partition to the present run once more, under a later epoch.
func (c *fakeCluster) startAt(id frame.PartitionID, epoch int32) {
	c.mu.Lock()
	c.assigned[id] = cluster.Assignment{Owner: testBroker, Target: cluster.NoBroker, OwnerIncarnation: c.incarnation, State: cluster.Starting, Epoch: epoch}
	c.publish()
}

// touch publishes another image of the same state, as unrelated changes of the cluster do.
func (c *fakeCluster) touch() {
	c.mu.Lock()
	c.publish()
}

// image is the state of this moment.
func (c *fakeCluster) image(t testing.TB) *cluster.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	img, err := c.spec().Build()
	require.NoError(t, err)
	return img
}

// publish builds an image and hands it to the set. It is called with mu held and releases it.
func (c *fakeCluster) publish() {
	spec := c.spec()
	set := c.w.set
	hold := c.hold
	c.mu.Unlock()
	img, err := spec.Build()
	if err != nil {
		panic(err)
	}
	if set != nil && !hold {
		set.Apply(img)
	}
}

func (c *fakeCluster) spec() cluster.ImageSpec {
	c.rev++
	spec := cluster.ImageSpec{Revision: c.rev, ClusterID: "test", Assignments: map[frame.PartitionID]cluster.Assignment{},
		Brokers: []cluster.Broker{{ID: testBroker, Incarnation: c.incarnation, Host: "localhost", Port: 9092}}}
	for _, t := range c.topics {
		spec.Topics = append(spec.Topics, t)
	}
	for _, d := range c.deleted {
		spec.Deleted = append(spec.Deleted, d)
	}
	for id, a := range c.assigned {
		spec.Assignments[id] = a
	}
	return spec
}

// Transition implements Cluster.
func (c *fakeCluster) Transition(_ context.Context, ts []cluster.Transition) error {
	if len(ts) == 0 {
		return nil
	}
	c.mu.Lock()
	lost := &cluster.FencedError{}
	for _, t := range ts {
		a := c.assigned[t.ID]
		if a.Epoch != t.Epoch || a.OwnerIncarnation != t.OwnerIncarnation || a.State != t.From {
			lost.Lost = append(lost.Lost, t.ID)
			continue
		}
		a.State, a.Reason = t.To, t.Reason
		c.assigned[t.ID] = a
		if t.To == cluster.Deleted {
			topic := c.topics[t.ID.Topic]
			delete(c.topics, t.ID.Topic)
			delete(c.assigned, t.ID)
			if c.deleted == nil {
				c.deleted = map[frame.TopicID]*cluster.DeletedTopic{}
			}
			c.deleted[topic.ID] = &cluster.DeletedTopic{Name: topic.Name, ID: topic.ID, Partitions: topic.Partitions, DeletedAt: topic.DeletedAt}
		}
	}
	c.publish()
	if len(lost.Lost) > 0 {
		return lost
	}
	return nil
}

// MarkWarm implements Cluster.
func (c *fakeCluster) MarkWarm(_ context.Context, target int32, ws []cluster.Warmed) error {
	c.mu.Lock()
	for _, w := range ws {
		if a := c.assigned[w.ID]; a.Target == target && a.Epoch == w.Epoch && a.Owner == w.Owner {
			a.Warm = true
			c.assigned[w.ID] = a
		}
	}
	c.publish()
	return nil
}

// Lives implements Cluster.
func (c *fakeCluster) Lives(_ context.Context, _ int32, incarnation string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return incarnation == c.incarnation, nil
}

// FinishDelete implements Cluster.
func (c *fakeCluster) FinishDelete(_ context.Context, id frame.TopicID) error {
	c.mu.Lock()
	delete(c.deleted, id)
	c.finished = append(c.finished, id)
	c.publish()
	return nil
}

// rec is a record of the model.
type rec struct {
	offset, ts int64
	value      string
}

// produce appends one batch of records with the given timestamps, waits until it is durable, and returns the model's records.
func produce(t testing.TB, p *Partition, codec batch.Codec, values []string, ts []int64) []rec {
	t.Helper()
	b := batch.NewBuilder(codec, batch.BuilderOptions{ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1})
	for i, v := range values {
		b.Add(ts[i], []byte("k"), []byte(v), nil)
	}
	ack := appendBatch(t, p, b.Bytes())
	var out []rec
	for i, v := range values {
		out = append(out, rec{ack.BaseOffset + int64(i), ts[i], v})
	}
	return out
}

func appendBatch(t testing.TB, p *Partition, b []byte) Ack {
	t.Helper()
	ack, err := tryAppend(p, b)
	require.NoError(t, err)
	return ack
}

func tryAppend(p *Partition, b []byte) (Ack, error) {
	ack, err := p.Append(b, AppendOptions{Epoch: -1, Now: p.set.o.Now()})
	if err != nil {
		return ack, err
	}
	if err := ack.Written(); err != nil {
		return ack, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return ack, ack.Durable(ctx)
}

// fetch reads whole batches and returns their records, those below the offset left out as a client does.
func fetch(p *Partition, offset int64, maxBytes int) ([]rec, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	got, err := p.Read(ctx, ReadRequest{Offset: offset, MaxBytes: maxBytes, AtLeastOne: true})
	if err != nil {
		return nil, err
	}
	defer got.Release()
	var flat []byte
	for _, s := range got.Slices {
		flat = append(flat, s...)
	}
	if len(flat) != got.Bytes {
		return nil, fmt.Errorf("%d bytes announced, %d returned", got.Bytes, len(flat))
	}
	var out []rec
	for len(flat) > 0 {
		_, one, rest, err := batch.Next(flat)
		if err != nil {
			return nil, err
		}
		if err := batch.CheckCRC(one); err != nil {
			return nil, err
		}
		if err := batch.Iterate(one, func(r *batch.Record) bool {
			if r.Offset >= offset {
				out = append(out, rec{r.Offset, r.Timestamp, string(r.Value)})
			}
			return true
		}); err != nil {
			return nil, err
		}
		flat = rest
	}
	return out, nil
}

// readAll reads from the start to the end as a consumer does.
func readAll(t testing.TB, p *Partition) []rec {
	t.Helper()
	o := p.Offsets()
	var out []rec
	for at := o.Start; at < o.Durable; {
		got, err := fetch(p, at, 1<<20)
		require.NoError(t, err, "offset %d of %+v", at, o)
		require.NotEmpty(t, got, "offset %d of %+v", at, o)
		out = append(out, got...)
		at = got[len(got)-1].offset + 1
	}
	return out
}
