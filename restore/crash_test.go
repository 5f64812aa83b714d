package restore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// dyingKV fails the request with number at, before or after it took effect, and all behind it.
type dyingKV struct {
	clientv3.KV
	at    int
	after bool
	calls int
}

func (f *dyingKV) call(do func() error) error {
	f.calls++
	switch {
	case f.calls < f.at:
		return do()
	case f.calls == f.at && f.after:
		if err := do(); err != nil {
			return err
		}
	}
	return status.Error(codes.PermissionDenied, "dead") // final, so that nothing is tried again
}

func (f *dyingKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (r *clientv3.GetResponse, err error) {
	err = f.call(func() (err error) { r, err = f.KV.Get(ctx, key, opts...); return err })
	return r, err
}

func (f *dyingKV) Txn(ctx context.Context) clientv3.Txn { return &dyingTxn{f.KV.Txn(ctx), f} }

type dyingTxn struct {
	clientv3.Txn
	f *dyingKV
}

func (t *dyingTxn) If(c ...clientv3.Cmp) clientv3.Txn  { t.Txn = t.Txn.If(c...); return t }
func (t *dyingTxn) Then(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(o...); return t }
func (t *dyingTxn) Else(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(o...); return t }
func (t *dyingTxn) Commit() (r *clientv3.TxnResponse, err error) {
	err = t.f.call(func() (err error) { r, err = t.Txn.Commit(); return err })
	return r, err
}

// TestRestoreSurvivesEveryCrashAtEtcd dies at each request to etcd, before and after it took effect, and goes on with the same command.
func TestRestoreSurvivesEveryCrashAtEtcd(t *testing.T) {
	ctx, e := testContext(t), startEtcd(t)
	kv := e.KV
	defer func() { e.KV = kv }()
	for k := 1; ; k++ {
		ended := true
		for _, after := range []bool{false, true} {
			w := newWorld(t)
			o := cluster.Options{Etcd: e, Prefix: fmt.Sprintf("/crash-%d-%v/", k, after)}
			f := &dyingKV{KV: kv, at: k, after: after}
			e.KV = f
			_, _, err := restore(ctx, w.b, o, Settings{ClusterID: "cluster-2"})
			e.KV = kv
			if err != nil {
				ended = false
				_, _, err = restore(ctx, w.b, o, Settings{ClusterID: "cluster-2"})
				if after && errors.Is(err, cluster.ErrNotEmpty) {
					err = nil // only the answer to the last request was lost; check tells
				}
			}
			require.NoError(t, err, "request %d", k)
			w.check(e, o.Prefix, "cluster-2")
		}
		if ended {
			require.Greater(t, k, 5)
			return
		}
	}
}

// An owner of the old cluster that is still alive loses its heads whatever it does meanwhile, and keeps what it got in before.
func TestOldOwnerRacesForHead(t *testing.T) {
	ctx, w, e := testContext(t), newWorld(t), startEtcd(t)
	races := 0
	f := bucket.NewFault(w.b, func(c bucket.Call) bucket.Action {
		if c.Verb != bucket.VerbPut || c.Key != tier.HeadKey(id(audit, 0)) || races == 2 {
			return bucket.Action{}
		}
		races++
		h, err := w.old.Load(ctx, id(audit, 0))
		require.NoError(t, err)
		x, err := w.old.Upload(ctx, tier.ObjectSpec{ID: h.ID, Topic: "audit", Epoch: owner.Epoch, Start: h.End, End: h.End + 5, Now: now}, list{makeBatch(h.End, 5)})
		require.NoError(t, err)
		_, err = w.old.CommitRoll(ctx, h.ID, h, owner, []tier.Extent{x}, nil)
		require.NoError(t, err)
		return bucket.Action{}
	})
	_, _, err := restore(ctx, f, cluster.Options{Etcd: e}, Settings{})
	require.NoError(t, err)
	require.Equal(t, 2, races)
	h, err := w.old.Load(ctx, id(audit, 0))
	require.NoError(t, err)
	require.Equal(t, int64(40), h.Records)
	_, err = w.old.RaiseCeiling(ctx, h.ID, h, owner, h.Ceiling+1)
	require.ErrorIs(t, err, tier.ErrFenced)
}
