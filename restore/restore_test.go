package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/catalog"
	"github.com/tierbroker/tierbroker/tier/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const now = int64(1_700_000_000_000)

var (
	audit, safe, newer, dying = frame.TopicID{1}, frame.TopicID{2}, frame.TopicID{3}, frame.TopicID{4}
	owner                     = tier.Owner{Broker: 1, Incarnation: "run-1", Epoch: 5}
)

// world is the bucket of a cluster that is gone, and what it held.
type world struct {
	t   testing.TB
	b   bucket.Bucket
	old *tier.Archive
}

// list is a tier.Source of batches.
type list [][]byte

func (l list) Batches(yield func(b []byte, e tier.BatchInfo) error) error {
	for _, b := range l {
		h, err := batch.ParseHeader(b)
		if err != nil {
			return err
		}
		e := tier.BatchInfo{Base: h.BaseOffset, Last: h.LastOffset(), MaxTimestamp: h.MaxTimestamp, AppendTime: now, Epoch: owner.Epoch, Records: h.RecordCount, Size: len(b)}
		if err := yield(b, e); err != nil {
			return err
		}
	}
	return nil
}

func makeBatch(base int64, n int) []byte {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{BaseOffset: base, LeaderEpoch: owner.Epoch})
	for i := range n {
		b.Add(now+base+int64(i), fmt.Appendf(nil, "k%d", base+int64(i)), fmt.Appendf(nil, "v%d", base+int64(i)), nil)
	}
	return slices.Clone(b.Bytes())
}

func id(topic frame.TopicID, p int32) frame.PartitionID {
	return frame.PartitionID{Topic: topic, Partition: p}
}

// newWorld makes a bucket: audit has 3 partitions (rolled, rolled, nothing), safe one with 10 offsets rolled and 10 in a WAL stream, newer is
// known to a head only, dying has a tombstone.
func newWorld(t testing.TB) *world {
	ctx := testContext(t)
	w := &world{t: t, b: bucket.NewMemory()}
	_, err := catalog.Open(ctx, catalog.Options{Bucket: w.b, ClusterID: "cluster-1", Incarnation: "life-1", Create: true, Now: func() int64 { return now }})
	require.NoError(t, err)
	require.NoError(t, catalog.WriteSnapshot(ctx, w.b, &catalog.Snapshot{ClusterID: "cluster-1", Incarnation: "life-1", Revision: 40, WrittenAt: now, NextProducerID: 3000,
		Content: catalog.Content{Config: map[string]map[string]string{"default": {"log.retention.ms": "5"}, "3": {"message.max.bytes": "2000000"}},
			Topics: []catalog.Topic{{Name: "audit", ID: audit, Partitions: 3, Configs: map[string]string{"retention.ms": "-1"}, CreatedAt: 7, Version: 4},
				{Name: "dying", ID: dying, Partitions: 1, Version: 1},
				{Name: "safe", ID: safe, Partitions: 1, Configs: map[string]string{"tierbroker.durability": "object"}, Version: 1}}}}))
	w.old = tier.New(tier.Options{Heads: w.b, ClusterID: "cluster-1", ClusterIncarnation: "life-1"})
	t.Cleanup(func() { require.NoError(t, w.old.Close()) })
	w.roll(id(audit, 0), "audit", 30)
	w.roll(id(audit, 1), "audit", 20)
	w.roll(id(newer, 1), "new.topic", 5)
	h := w.roll(id(safe, 0), "safe", 10)
	_, err = w.old.Tombstone(ctx, id(dying, 0), w.roll(id(dying, 0), "dying", 3), owner, now)
	require.NoError(t, err)

	stream, err := wal.Open(ctx, wal.Options{Bucket: w.b, Stream: wal.StreamID{Broker: 1, Incarnation: "run-1"}, ClusterID: "cluster-1", ClusterIncarnation: "life-1", Now: func() int64 { return now }})
	require.NoError(t, err)
	_, err = w.old.ClaimWith(ctx, id(safe, 0), "safe", h, owner, tier.ClaimOptions{Stream: &tier.PendingStream{Broker: 1, Incarnation: "run-1", Epoch: owner.Epoch, From: 1}})
	require.NoError(t, err)
	o := stream.NewBuilder()
	o.Begin(wal.Part{ID: id(safe, 0), Topic: "safe", Epoch: owner.Epoch})
	for _, raw := range [][]byte{makeBatch(8, 2), makeBatch(10, 10)} { // the first one is rolled already
		hd, err := batch.ParseHeader(raw)
		require.NoError(t, err)
		require.NoError(t, o.Add(raw, &hd, now))
	}
	u, err := stream.Put(o)
	require.NoError(t, err)
	<-u.Done()
	require.NoError(t, u.Err())
	require.NoError(t, stream.Close(ctx))
	return w
}

func (w *world) roll(p frame.PartitionID, topic string, n int) *tier.Head {
	ctx := testContext(w.t)
	h, err := w.old.Claim(ctx, p, topic, nil, owner)
	require.NoError(w.t, err)
	x, err := w.old.Upload(ctx, tier.ObjectSpec{ID: p, Topic: topic, Epoch: owner.Epoch, Start: 0, End: int64(n), Now: now}, list{makeBatch(0, n)})
	require.NoError(w.t, err)
	h, err = w.old.CommitRoll(ctx, p, h, owner, []tier.Extent{x}, nil)
	require.NoError(w.t, err)
	return h
}

// startEtcd starts an etcd for all restores of a test, which use prefixes of it.
func startEtcd(t testing.TB) *clientv3.Client {
	e, err := cluster.StartEmbedded(testContext(t), cluster.EmbeddedOptions{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e.Client()
}

// restore does what the tool does.
func restore(ctx context.Context, b bucket.Bucket, o cluster.Options, s Settings) (*Plan, *Result, error) {
	target, err := cluster.OpenRestoration(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	defer target.Close() //nolint:errcheck // the client is the test's
	ro := Options{Bucket: b, Parallel: 1, Now: func() int64 { return now + 1000 }}
	p, err := Read(ctx, ro)
	if err != nil {
		return nil, nil, err
	}
	r, err := Run(ctx, ro, p, target, s)
	return p, r, err
}

// crash is restore by a process that dies: soon after the bucket has crashed nothing goes on.
func crash(t testing.TB, b bucket.Bucket, o cluster.Options, s Settings, plan bucket.Plan) (*Plan, *Result, error) {
	ctx, die := context.WithCancel(testContext(t))
	defer die()
	return restore(ctx, bucket.NewFault(b, func(c bucket.Call) bucket.Action {
		a := plan(c)
		if a.Crash {
			time.AfterFunc(10*time.Millisecond, die)
		}
		return a
	}), o, s)
}

// check compares the restored cluster with what the world held.
func (w *world) check(etcd *clientv3.Client, prefix, clusterID string) {
	t, ctx := w.t, testContext(w.t)
	root, err := catalog.ReadRoot(ctx, w.b)
	require.NoError(t, err)
	require.Equal(t, clusterID, root.ClusterID)
	require.Nil(t, root.Restore)
	require.Equal(t, "life-1", root.Earlier[0].Incarnation)
	c, err := cluster.Start(ctx, cluster.Options{Etcd: etcd, Prefix: prefix, ClusterID: clusterID, Incarnation: root.Incarnation, Existing: true})
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // the etcd is the test's
	img := c.Image()
	topics := map[string]int32{}
	for _, x := range img.Topics() {
		topics[x.Name] = x.Partitions
	}
	require.Equal(t, map[string]int32{"audit": 3, "dying": 1, "safe": 1, "new.topic": 2}, topics)
	require.Equal(t, map[string]string{"retention.ms": "-1"}, img.TopicByName("audit").Overrides)
	require.Equal(t, []int64{7, 4}, []int64{img.TopicByName("audit").CreatedAt, img.TopicByName("audit").Version})
	require.Equal(t, int64(-1), img.TopicByName("new.topic").Config.RetentionMs, "nothing expires while its settings are lost")
	require.True(t, img.TopicByName("dying").Deleting)
	require.Equal(t, map[int32]map[string]string{cluster.DefaultConfig: {"log.retention.ms": "5"}, 3: {"message.max.bytes": "2000000"}}, img.BrokerConfigs())
	require.Greater(t, img.NextProducerID(), int64(1_000_000))
	s, _, err := catalog.Latest(ctx, w.b, bucket.Op{}, root.Incarnation)
	require.NoError(t, err)
	fresh, err := catalog.FromImage(img, now)
	require.NoError(t, err)
	require.Equal(t, fresh.Digest, s.Digest, "the controller finds the bucket's copy current")

	a := tier.New(tier.Options{Heads: w.b, ClusterID: clusterID, ClusterIncarnation: root.Incarnation})
	defer a.Close() //nolint:errcheck // it only waits
	for p, n := range map[frame.PartitionID]int64{id(audit, 0): 30, id(audit, 1): 20, id(audit, 2): 0, id(newer, 0): 0, id(newer, 1): 5} {
		h, err := a.Load(ctx, p)
		require.NoError(t, err)
		require.Equal(t, []any{root.Incarnation, clusterID, n + tier.FirstCeiling, n}, []any{h.ClusterIncarnation, h.Cluster, h.End, h.Records}, "%v", p)
		w.requireAssigned(img, a, h, false)
		w.requireRecords(a, h, n)
	}
	h, err := a.Load(ctx, id(safe, 0))
	require.NoError(t, err)
	require.Equal(t, []any{root.Incarnation, int64(10)}, []any{h.ClusterIncarnation, h.End}, "its stream's records come first, then the gap")
	w.requireAssigned(img, a, h, true)
	h, err = a.Load(ctx, id(dying, 0))
	require.NoError(t, err)
	require.True(t, h.Tombstone)
	require.Equal(t, root.Incarnation, h.ClusterIncarnation)
	_, err = wal.Find(ctx, w.b, bucket.Op{}, wal.StreamID{Broker: 1, Incarnation: "run-1"})
	require.NoError(t, err, "sealed")
}

// requireAssigned checks that the next owner's epoch can claim the head, and that nobody of the old cluster can change it.
func (w *world) requireAssigned(img *cluster.Image, a *tier.Archive, h *tier.Head, jump bool) {
	w.t.Helper()
	got, ok := img.Assignment(h.ID)
	require.True(w.t, ok)
	require.Equal(w.t, cluster.Assignment{Owner: cluster.NoBroker, Target: cluster.NoBroker, Epoch: h.Epoch, Safe: true, Jump: jump}, got)
	ctx := testContext(w.t)
	_, err := w.old.Claim(ctx, h.ID, h.Topic, h, tier.Owner{Broker: 1, Incarnation: "run-1", Epoch: h.Epoch + 1})
	require.ErrorIs(w.t, err, tier.ErrFenced)
	_, err = a.Claim(ctx, h.ID, h.Topic, h, tier.Owner{Broker: 9, Incarnation: "new-run", Epoch: got.Epoch + 1})
	require.NoError(w.t, err)
}

func (w *world) requireRecords(a *tier.Archive, h *tier.Head, n int64) {
	w.t.Helper()
	b, err := a.Read(testContext(w.t), h, 0, 1<<20, bucket.Op{})
	require.NoError(w.t, err)
	if n == 0 {
		require.Zero(w.t, b.Bytes)
		return
	}
	require.Equal(w.t, makeBatch(0, int(n)), slices.Concat(b.Slices...))
	b.Release()
}

func TestPlanShowsRecoveryPoints(t *testing.T) {
	ctx, w := testContext(t), newWorld(t)
	f := bucket.NewFault(w.b, func(c bucket.Call) bucket.Action {
		require.False(t, c.Writes())
		return bucket.Action{}
	})
	o := Options{Bucket: f, Now: func() int64 { return now }}
	p, err := Read(ctx, o)
	require.NoError(t, err)
	require.Equal(t, []any{"cluster-1", "life-1", now, false}, []any{p.ClusterID, p.Incarnation, p.SnapshotAt, p.Unfinished})
	point := func(topic string, n int32) []any {
		q := p.Partition(topic, n)
		return []any{q.Head, q.Rolled, q.End, q.Next, q.Newest, q.Records}
	}
	require.Equal(t, []any{true, int64(30), int64(30), int64(30 + 1<<20), now + 29, int64(30)}, point("audit", 0))
	require.Equal(t, []any{false, int64(0), int64(0), int64(1 << 20), int64(-1), int64(0)}, point("audit", 2))
	require.Equal(t, []any{true, int64(10), int64(20), int64(10 + 1<<20), now + 19, int64(20)}, point("safe", 0))
	require.Equal(t, []Stream{{Stream: "1/run-1", Partitions: 1, Records: 10, Bytes: int64(len(makeBatch(10, 10)))}}, p.Streams)
	require.Empty(t, p.Damaged)
	require.Len(t, p.Notes, 2, "a topic that only a head knows, one that was being deleted: %v", p.Notes)
	var keys []string
	require.NoError(t, Records(ctx, o, p, id(safe, 0), func(k, _ []byte) { keys = append(keys, string(k)) }))
	require.Len(t, keys, 20, "each once")
	require.Equal(t, "k19", keys[len(keys)-1])
	require.True(t, p.Partition("safe", 0).Lost(21))
	require.False(t, p.Partition("safe", 0).Lost(20))
}

func TestRestore(t *testing.T) {
	ctx, w, e := testContext(t), newWorld(t), startEtcd(t)
	_, r, err := restore(ctx, w.b, cluster.Options{Etcd: e}, Settings{ClusterID: "cluster-2"})
	require.NoError(t, err)
	require.Equal(t, []any{"cluster-2", 4, 7, false}, []any{r.ClusterID, r.Topics, r.Partitions, r.Resumed})
	w.check(e, "", "cluster-2")
	_, _, err = restore(ctx, w.b, cluster.Options{Etcd: e}, Settings{})
	require.ErrorIs(t, err, cluster.ErrNotEmpty)
}

// TestRestoreSurvivesEveryCrash dies at each call to the bucket, before and after it took effect, and goes on with the same command.
func TestRestoreSurvivesEveryCrash(t *testing.T) {
	ctx, e := testContext(t), startEtcd(t)
	for k := 1; ; k++ {
		ended := true
		for _, after := range []bool{false, true} {
			w := newWorld(t)
			o := cluster.Options{Etcd: e, Prefix: fmt.Sprintf("/crash-%d-%v/", k, after)}
			s := Settings{ClusterID: "cluster-2"}
			_, _, err := crash(t, w.b, o, s, bucket.CrashAt(k, after))
			if err != nil {
				ended = false
				_, _, err = restore(ctx, w.b, o, s)
			}
			require.NoError(t, err, "call %d", k)
			w.check(e, o.Prefix, "cluster-2")
		}
		if ended {
			t.Logf("%d calls", k-1)
			require.Greater(t, k, 30)
			return
		}
	}
}

// A restore whose etcd is lost in the middle is given up for another one; the first, should it still run, changes nothing any more.
func TestStartOver(t *testing.T) {
	ctx, w, e := testContext(t), newWorld(t), startEtcd(t)
	isHead := func(c bucket.Call) bool { return c.Verb == bucket.VerbPut && c.Op.Kind == bucket.KindHead }
	_, _, err := crash(t, w.b, cluster.Options{Etcd: e, Prefix: "/first/"}, Settings{}, bucket.Only(isHead, bucket.CrashAt(3, false)))
	require.Error(t, err)
	_, _, err = restore(ctx, w.b, cluster.Options{Etcd: e, Prefix: "/second/"}, Settings{})
	require.ErrorIs(t, err, ErrOtherTarget)
	_, r, err := restore(ctx, w.b, cluster.Options{Etcd: e, Prefix: "/second/"}, Settings{ClusterID: "cluster-3", StartOver: true})
	require.NoError(t, err)
	require.True(t, r.Resumed)
	w.check(e, "/second/", "cluster-3")
	_, _, err = restore(ctx, w.b, cluster.Options{Etcd: e, Prefix: "/first/"}, Settings{})
	require.ErrorIs(t, err, ErrTaken)
}

func TestDamageStopsRestore(t *testing.T) {
	ctx, w, e := testContext(t), newWorld(t), startEtcd(t)
	_, err := w.b.Put(ctx, bucket.Op{}, tier.HeadKey(id(audit, 1)), bucket.BytesBody([]byte("no head")), bucket.Condition{})
	require.NoError(t, err)
	p, _, err := restore(ctx, w.b, cluster.Options{Etcd: e}, Settings{})
	require.ErrorIs(t, err, ErrDamaged)
	require.Len(t, p.Damaged, 1)
	require.Equal(t, []any{"audit", int32(1)}, []any{p.Damaged[0].Topic, p.Damaged[0].Partition})
	root, err := catalog.ReadRoot(ctx, w.b)
	require.NoError(t, err)
	require.Equal(t, "life-1", root.Incarnation, "nothing was changed")
	_, _, err = restore(ctx, w.b, cluster.Options{Etcd: e}, Settings{LeaveDamaged: true})
	require.NoError(t, err)
	raw, _, err := bucket.GetAll(ctx, w.b, bucket.Op{}, tier.HeadKey(id(audit, 1)), 1<<20)
	require.NoError(t, err)
	require.Equal(t, "no head", string(raw), "what is damaged stays as it is")
}

// A cluster that writes, or answers, is alive; one that is silent is not known to be.
func TestQuiet(t *testing.T) {
	ctx, w := testContext(t), newWorld(t)
	o := Options{Bucket: w.b, Now: func() int64 { return now }}
	p, err := Read(ctx, o)
	require.NoError(t, err)
	require.NoError(t, Quiet(ctx, o, p, 50*time.Millisecond))
	require.NotNil(t, p.root.Question)

	rolled := false
	o.Progress = func(string, int, int) {
		if !rolled {
			rolled = true
			h, err := w.old.Load(ctx, id(audit, 0))
			require.NoError(t, err)
			_, err = w.old.RaiseCeiling(ctx, id(audit, 0), h, owner, h.Ceiling+5)
			require.NoError(t, err)
		}
	}
	err = Quiet(ctx, o, p, 50*time.Millisecond)
	require.ErrorIs(t, err, ErrAlive)
	require.ErrorContains(t, err, "have changed")

	p, err = Read(ctx, Options{Bucket: w.b})
	require.NoError(t, err)
	o.Progress = func(string, int, int) {
		root, err := catalog.ReadRoot(ctx, w.b)
		require.NoError(t, err)
		if root.Question.Answer == "" {
			_, err = catalog.SwapRoot(ctx, w.b, root, func(r *catalog.Root) {
				r.Question = &catalog.Question{ID: r.Question.ID, Answer: "broker 3"}
			})
			require.NoError(t, err)
		}
	}
	err = Quiet(ctx, o, p, 20*time.Second)
	require.ErrorIs(t, err, ErrAlive)
	require.ErrorContains(t, err, "broker 3")
	require.False(t, errors.Is(err, context.DeadlineExceeded))
}
