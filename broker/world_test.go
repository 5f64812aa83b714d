package broker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
)

// etcd is shared by all tests; each has a prefix of its own.
var etcd struct {
	once sync.Once
	dir  string
	e    *cluster.Embedded
	err  error
	n    atomic.Int64
}

func TestMain(m *testing.M) {
	code := m.Run()
	if etcd.e != nil {
		if err := etcd.e.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close etcd:", err)
			code = 1
		}
		if err := os.RemoveAll(etcd.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func etcdClient(t testing.TB) *clientv3.Client {
	etcd.once.Do(func() {
		etcd.dir, etcd.err = os.MkdirTemp("", "tierbroker-broker-test-")
		if etcd.err == nil {
			etcd.e, etcd.err = cluster.StartEmbedded(context.Background(), cluster.EmbeddedOptions{Dir: filepath.Join(etcd.dir, "etcd")})
		}
	})
	require.NoError(t, etcd.err)
	return etcd.e.Client()
}

// world is a broker over a real cluster state and fake partitions, which tests can hold up and break. Its controller
// gives every partition to broker 1.
type world struct {
	t       testing.TB
	ctx     context.Context
	client  *cluster.Client
	term    *cluster.Term
	b       *Broker
	parts   fakeParts
	counted *Counters
	corr    atomic.Int32
}

func newWorld(t testing.TB, tune ...func(*Options)) *world {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, counted: NewCounters()}
	var err error
	w.client, err = cluster.Start(ctx, cluster.Options{Etcd: etcdClient(t), Prefix: fmt.Sprintf("/t%d/", etcd.n.Add(1)), BrokerID: 1, ClusterID: "test-cluster",
		Static: map[string]string{"log.dirs": "/data"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.client.Close()) })
	s := w.register(cluster.Broker{ID: 1, Incarnation: "run-1", Identity: "one", Host: "Broker-One.example", Port: 9092})
	w.term, err = w.client.Campaign(ctx, s, 1)
	require.NoError(t, err)
	w.parts.m = map[frame.PartitionID]*fakePart{}
	o := Options{ID: 1, Partitions: &w.parts, Cluster: w.client, Admin: w.client, Metrics: w.counted, DataDir: "/data",
		Disk: func() (int64, int64, error) { return 1000, 400, nil }}
	for _, f := range tune {
		f(&o)
	}
	w.b, err = New(o)
	require.NoError(t, err)
	t.Cleanup(w.b.Close)
	w.control()
	return w
}

func (w *world) register(b cluster.Broker) *cluster.Session {
	s, err := w.client.Register(w.ctx, b, 30*time.Second)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, s.Close()) })
	return s
}

// control runs the controller until the test ends.
func (w *world) control() {
	ctx, cancel := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		img := w.client.Image()
		for ctx.Err() == nil {
			if err := w.place(ctx, img); err != nil && ctx.Err() == nil {
				w.t.Errorf("controller: %v", err)
				return
			}
			next, err := w.client.Wait(ctx, img.Revision())
			if err != nil {
				return
			}
			img = next
		}
	})
	w.t.Cleanup(func() { cancel(); wg.Wait() })
}

func (w *world) place(ctx context.Context, img *cluster.Image) error {
	var changes []cluster.Change
	for _, t := range img.Topics() {
		if t.Deleting {
			if err := w.remove(ctx, img, t); err != nil {
				return err
			}
			continue
		}
		for i := range t.Partitions {
			id := frame.PartitionID{Topic: t.ID, Partition: i}
			if _, ok := img.Assignment(id); ok {
				continue
			}
			w.parts.add(id)
			changes = append(changes, cluster.Change{ID: id, New: cluster.Assignment{Owner: 1, OwnerIncarnation: "run-1", Epoch: 5, State: cluster.Writing, Target: cluster.NoBroker}})
		}
	}
	return w.term.Apply(ctx, changes)
}

func (w *world) remove(ctx context.Context, img *cluster.Image, t *cluster.Topic) error {
	var changes []cluster.Change
	for i := range t.Partitions {
		id := frame.PartitionID{Topic: t.ID, Partition: i}
		w.parts.drop(id)
		if a, ok := img.Assignment(id); ok && !a.Gone() {
			next := a
			next.State = cluster.Deleted
			changes = append(changes, cluster.Change{ID: id, Exists: true, Old: a, New: next})
		}
	}
	if err := w.term.Apply(ctx, changes); err != nil {
		return err
	}
	return w.term.FreeName(ctx, t.ID)
}

// assign sets a partition's assignment; the test is the controller for a moment.
func (w *world) assign(id frame.PartitionID, a cluster.Assignment) {
	old, ok := w.client.Image().Assignment(id)
	require.True(w.t, ok)
	if a.TargetSince == 0 {
		a.Target = cluster.NoBroker
	}
	require.NoError(w.t, w.term.Apply(w.ctx, []cluster.Change{{ID: id, Exists: true, Old: old, New: a}}))
}

// topic makes a topic and waits until it is placed.
func (w *world) topic(name string, partitions int32, configs ...string) *cluster.Topic {
	return w.topicSpec(cluster.TopicSpec{Name: name, Partitions: partitions, Configs: pairs(configs)})
}

func (w *world) topicSpec(spec cluster.TopicSpec) *cluster.Topic {
	t, err := w.client.CreateTopic(w.ctx, spec)
	require.NoError(w.t, err)
	w.await(func(img *cluster.Image) bool {
		for i := range t.Partitions {
			if _, ok := img.Assignment(frame.PartitionID{Topic: t.ID, Partition: i}); !ok {
				return false
			}
		}
		return true
	})
	return t
}

func (w *world) await(ok func(*cluster.Image) bool) {
	require.True(w.t, w.b.awaitImage(w.ctx, ok))
}

func (w *world) part(t *cluster.Topic, i int32) *fakePart {
	p := w.parts.get(frame.PartitionID{Topic: t.ID, Partition: i})
	require.NotNil(w.t, p)
	return p
}

func pairs(kv []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

// start sends a request as a connection would and returns what is left to do.
func (w *world) start(req kmsg.Request, version int16) kafka.Pending {
	req.SetVersion(version)
	return w.b.Handle(w.ctx, &kafka.Request{Key: req.Key(), Version: version, Correlation: w.corr.Add(1), ClientID: "test",
		Body: req.AppendTo(nil), Received: time.Now()})
}

// finish waits for the response and decodes it.
func (w *world) finish(req kmsg.Request, p kafka.Pending) kmsg.Response {
	require.NotNil(w.t, p)
	return w.decode(req, p.Wait(w.ctx))
}

func (w *world) decode(req kmsg.Request, r kafka.Response) kmsg.Response {
	require.NoError(w.t, r.Close)
	require.False(w.t, r.None)
	var body []byte
	for _, b := range r.Bufs {
		body = append(body, b...)
	}
	if r.Release != nil {
		r.Release()
	}
	resp := req.ResponseKind()
	require.NoError(w.t, resp.ReadFrom(body))
	resp.SetVersion(req.GetVersion())
	return resp
}

// ask sends a request and returns its response.
func ask[R kmsg.Response](w *world, req kmsg.Request, version int16) R {
	w.t.Helper()
	return w.finish(req, w.start(req, version)).(R)
}

// refused sends a request for which the connection must be closed.
func (w *world) refused(req kmsg.Request, version int16) error {
	r := w.start(req, version).Wait(w.ctx)
	require.True(w.t, r.None)
	require.Error(w.t, r.Close)
	return r.Close
}

// records makes one batch with the given values, all at one time.
func records(ts int64, values ...string) []byte {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{})
	for _, v := range values {
		b.Add(ts, []byte("k"), []byte(v), nil)
	}
	return b.Bytes()
}

// fakeParts is a set of fake partitions.
type fakeParts struct {
	mu sync.Mutex
	m  map[frame.PartitionID]*fakePart
}

func (s *fakeParts) Get(id frame.PartitionID) Partition {
	p := s.get(id)
	if p == nil {
		return nil
	}
	return p
}

func (s *fakeParts) get(id frame.PartitionID) *fakePart {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[id]
}

func (s *fakeParts) add(id frame.PartitionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m[id] == nil {
		s.m[id] = newFakePart()
	}
}

func (s *fakeParts) drop(id frame.PartitionID) {
	s.mu.Lock()
	p := s.m[id]
	delete(s.m, id)
	s.mu.Unlock()
	if p != nil {
		p.close()
	}
}

func (s *fakeParts) leaks() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(0)
	for _, p := range s.m {
		n += p.open.Load()
	}
	return n
}

func (s *fakeParts) watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.m {
		p.mu.Lock()
		n += len(p.watching)
		p.mu.Unlock()
	}
	return n
}

var _ Partition = (*fakePart)(nil)
