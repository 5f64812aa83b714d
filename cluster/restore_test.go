package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierbroker/tierbroker/frame"
)

var testMark = RestoreMark{ClusterID: "cluster-2", Incarnation: "inc-2", From: "inc-1", StartedAt: 77}

func testSeed(partitions int32) *Seed {
	a, b := &Topic{Name: "audit.log", ID: frame.TopicID{1}, Partitions: partitions, Overrides: map[string]string{RetentionMs: "-1"}, CreatedAt: 5, Version: 9},
		&Topic{Name: "gone", ID: frame.TopicID{2}, Partitions: 1, Deleting: true, CreatedAt: 6, DeletedAt: 7, Version: 2}
	s := &Seed{Topics: []*Topic{a, b}, NextProducerID: 5000, Deleted: []DeletedTopic{{Name: "old", ID: frame.TopicID{3}, Partitions: 4, DeletedAt: 3}},
		Configs:     map[int32]map[string]string{DefaultConfig: {"log.retention.ms": "5"}, 3: {"message.max.bytes": "2000000"}},
		Assignments: map[frame.PartitionID]Assignment{}}
	for p := range partitions {
		s.Assignments[frame.PartitionID{Topic: a.ID, Partition: p}] = Assignment{Owner: NoBroker, Target: NoBroker, Epoch: 1000 + p, Safe: true, Jump: p == 1}
	}
	return s
}

// requireSeeded checks that a client sees what the seed says.
func requireSeeded(t *testing.T, c *Client, s *Seed) {
	t.Helper()
	img := c.Image()
	require.Equal(t, "cluster-2", img.ClusterID())
	require.Equal(t, "inc-2", img.Meta().Incarnation)
	require.Len(t, img.Topics(), len(s.Topics))
	for _, want := range s.Topics {
		got := img.TopicByName(want.Name)
		require.NotNil(t, got)
		require.Equal(t, want.record(), got.record())
		require.Equal(t, want.ID, got.ID)
	}
	require.Len(t, img.Deleted(), 1)
	require.Equal(t, s.Deleted[0], *img.Deleted()[0])
	require.Equal(t, s.Configs, img.BrokerConfigs())
	require.Equal(t, s.NextProducerID, img.NextProducerID())
	require.Equal(t, len(s.Assignments), img.NumAssignments())
	for id, want := range s.Assignments {
		got, ok := img.Assignment(id)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	require.Empty(t, img.Corrupt())
	_, err := c.CreateTopic(t.Context(), TopicSpec{Name: "audit_log", Partitions: 1})
	require.ErrorIs(t, err, ErrTopicCollision, "names are taken")
}

func TestRestorationFillsEtcd(t *testing.T) {
	ctx, e := testContext(t), startEtcd(t)
	open := func() (*Restoration, error) { return OpenRestoration(ctx, Options{Etcd: e}) }
	r, err := open()
	require.NoError(t, err)
	require.Nil(t, r.Mark())
	seed := testSeed(1234) // more than two shards
	require.Error(t, r.Write(ctx, seed, nil), "not begun")
	require.NoError(t, r.Begin(ctx, testMark))

	_, err = Start(ctx, Options{Etcd: e})
	require.ErrorIs(t, err, ErrRestoring, "no node starts on half a cluster")

	// The process dies and goes on with another plan: nothing of the first is left.
	first := testSeed(2000)
	first.Topics[0].Name = "another"
	require.NoError(t, r.Write(ctx, first, nil))
	require.NoError(t, r.Close())
	r, err = open()
	require.NoError(t, err)
	require.Equal(t, &testMark, r.Mark())
	require.ErrorIs(t, r.Begin(ctx, testMark), ErrRestoring)
	done := 0
	require.NoError(t, r.Write(ctx, seed, func(n, all int) { require.Greater(t, n, done); done = n; require.LessOrEqual(t, n, all) }))
	require.Equal(t, 2*2+1+2+1+3, done)
	require.NoError(t, r.Finish(ctx))
	require.NoError(t, r.Finish(ctx), "twice is fine")
	require.NoError(t, r.Close())

	requireSeeded(t, startClient(t, e), seed)
	_, err = open()
	require.ErrorIs(t, err, ErrNotEmpty)
	require.ErrorContains(t, err, "it holds cluster cluster-2")
}

func TestRestorationRefuses(t *testing.T) {
	ctx, e := testContext(t), startEtcd(t)
	a, err := OpenRestoration(ctx, Options{Etcd: e})
	require.NoError(t, err)
	b, err := OpenRestoration(ctx, Options{Etcd: e})
	require.NoError(t, err)
	require.NoError(t, a.Begin(ctx, testMark))
	other := testMark
	other.Incarnation = "inc-3"
	require.ErrorIs(t, b.Begin(ctx, other), ErrNotEmpty, "two restores into one etcd")
	collision := testSeed(1)
	collision.Topics[1].Name = "audit_log"
	require.ErrorIs(t, a.Write(ctx, collision, nil), ErrTopicCollision)
	require.NoError(t, a.Finish(ctx))
	a.mark = &testMark // as a process that slept since before the end
	require.ErrorIs(t, a.Write(ctx, testSeed(1), nil), ErrConflict)
	require.NoError(t, errors.Join(a.Close(), b.Close()))

	_, err = e.Put(ctx, DefaultPrefix+"strange", "x")
	require.NoError(t, err)
	_, err = e.Delete(ctx, DefaultPrefix+"meta")
	require.NoError(t, err)
	_, err = OpenRestoration(ctx, Options{Etcd: e})
	require.ErrorIs(t, err, ErrNotEmpty)
	require.ErrorContains(t, err, "strange")
}

// faultyKV fails the call with number at, before or after it took effect, and all behind it when it crashes.
type faultyKV struct {
	clientv3.KV
	at    int
	after bool
	calls int
}

func (f *faultyKV) call(do func() error) error {
	f.calls++
	switch {
	case f.calls < f.at:
		return do()
	case f.calls == f.at && f.after:
		return errors.Join(do(), context.Canceled)
	}
	return status.Error(codes.PermissionDenied, "crashed") // final, so that nothing is tried again
}

func (f *faultyKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (r *clientv3.GetResponse, err error) {
	err = f.call(func() (err error) { r, err = f.KV.Get(ctx, key, opts...); return err })
	return r, err
}

func (f *faultyKV) Txn(ctx context.Context) clientv3.Txn { return &faultyTxn{f.KV.Txn(ctx), f} }

type faultyTxn struct {
	clientv3.Txn
	f *faultyKV
}

func (t *faultyTxn) If(c ...clientv3.Cmp) clientv3.Txn  { t.Txn = t.Txn.If(c...); return t }
func (t *faultyTxn) Then(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(o...); return t }
func (t *faultyTxn) Else(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(o...); return t }
func (t *faultyTxn) Commit() (r *clientv3.TxnResponse, err error) {
	err = t.f.call(func() (err error) { r, err = t.Txn.Commit(); return err })
	return r, err
}

// TestRestorationSurvivesEveryCrash dies at each request to etcd, before and after it took effect, and goes on.
func TestRestorationSurvivesEveryCrash(t *testing.T) {
	ctx, e := testContext(t), startEtcd(t)
	seed := testSeed(20)
	run := func(o Options) error {
		r, err := OpenRestoration(ctx, o)
		if err != nil {
			return err
		}
		defer r.Close() //nolint:errcheck // a client of the caller's
		if r.Mark() == nil {
			if err := r.Begin(ctx, testMark); err != nil {
				return err
			}
		}
		if err := r.Write(ctx, seed, nil); err != nil {
			return err
		}
		return r.Finish(ctx)
	}
	kv := e.KV
	defer func() { e.KV = kv }()
	for k := 1; ; k++ {
		ended := true
		for _, after := range []bool{false, true} {
			prefix := fmt.Sprintf("/crash-%d-%v/", k, after)
			f := &faultyKV{KV: kv, at: k, after: after}
			e.KV = f
			err := run(Options{Etcd: e, Prefix: prefix})
			e.KV = kv
			ended = ended && f.calls < k
			if err != nil {
				c, serr := Start(ctx, Options{Etcd: e, Prefix: prefix, ClusterID: "cluster-2", Existing: true})
				if errors.Is(serr, ErrRestoring) || errors.Is(serr, ErrNoCluster) {
					require.NoError(t, run(Options{Etcd: e, Prefix: prefix}), "request %d", k)
				} else {
					require.NoError(t, serr, "request %d: %v", k, err) // only the last answer was lost
					require.NoError(t, c.Close())
				}
			}
			c, err := Start(ctx, Options{Etcd: e, Prefix: prefix})
			require.NoError(t, err)
			requireSeeded(t, c, seed)
			require.NoError(t, c.Close())
		}
		if ended {
			require.Greater(t, k, 5)
			return
		}
	}
}

// The mark's example in the documentation is what is read.
func TestRestoreMarkExample(t *testing.T) {
	page, err := os.ReadFile("../docs/format/etcd.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(page), "## restore\n\n```json\n")
	require.True(t, ok)
	text, _, _ = strings.Cut(text, "\n```")
	var r Restoration
	require.NoError(t, r.found([]byte(text)))
	require.Equal(t, "u0Zb1r5sR3uL1qgk9aV0zA", r.Mark().From)
}
