package catalog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

func openedRoot(t *testing.T, b bucket.Bucket) Root {
	_, err := Open(testContext(t), options(b))
	require.NoError(t, err)
	root, err := ReadRoot(testContext(t), b)
	require.NoError(t, err)
	return root
}

func TestSwapRootHasOneWinner(t *testing.T) {
	ctx, b := testContext(t), bucket.NewMemory()
	old := openedRoot(t, b)
	next, err := SwapRoot(ctx, b, old, func(r *Root) {
		r.Earlier = append(r.Earlier, Earlier{ClusterID: r.ClusterID, Incarnation: r.Incarnation, EndedAt: 5})
		r.ClusterID, r.Incarnation = "cluster-2", "inc-2"
		r.Restore = &Restore{Incarnation: "inc-1", Revision: 7, StartedAt: 5}
	})
	require.NoError(t, err)
	require.Equal(t, old.Version+1, next.Version)
	require.Empty(t, old.Earlier, "the old root is as it was")
	read, err := ReadRoot(ctx, b)
	require.NoError(t, err)
	require.Equal(t, next, read)
	lost, err := SwapRoot(ctx, b, old, func(r *Root) { r.CreatedAt = 6 })
	require.ErrorIs(t, err, ErrRootChanged)
	require.Equal(t, read, lost)
	_, err = SwapRoot(ctx, b, Root{ClusterID: "c", Incarnation: "i"}, func(*Root) {})
	require.Error(t, err, "a root that was never read")
	_, err = SwapRoot(ctx, b, next, func(r *Root) { r.ClusterID = "no/good" })
	require.ErrorIs(t, err, ErrCorrupt)

	o := options(b)
	_, err = Open(ctx, o)
	require.ErrorIs(t, err, ErrOtherCluster, "the old cluster")
	o.ClusterID, o.Incarnation = "cluster-2", "inc-2"
	_, err = Open(ctx, o)
	require.ErrorIs(t, err, ErrUnfinished)
	_, err = SwapRoot(ctx, b, next, func(r *Root) { r.Restore = nil })
	require.NoError(t, err)
	_, err = Open(ctx, o)
	require.NoError(t, err)
}

func TestSwapRootSurvivesEveryFault(t *testing.T) {
	ctx := testContext(t)
	for k := 1; k <= 4; k++ {
		for name, plan := range map[string]bucket.Plan{
			"before": bucket.FailAt(k, bucket.NewError("put", RootKey, bucket.ErrUnavailable, nil)),
			"after":  bucket.FailAfterAt(k, bucket.NewError("put", RootKey, bucket.ErrUnavailable, nil)),
			"412":    bucket.FailAfterAt(k, bucket.NewError("put", RootKey, bucket.ErrPrecondition, nil)),
		} {
			b := bucket.NewMemory()
			old := openedRoot(t, b)
			f := bucket.NewFault(b, plan)
			next, err := SwapRoot(ctx, f, old, func(r *Root) { r.CreatedAt = 99 })
			require.NoError(t, err, "call %d failed %s", k, name)
			require.Equal(t, old.Version+1, next.Version)
			read, err := ReadRoot(ctx, b)
			require.NoError(t, err)
			require.Equal(t, next, read)
		}
	}
	b := bucket.NewMemory()
	old := openedRoot(t, b)
	_, err := SwapRoot(ctx, bucket.NewFault(b, bucket.FailAt(1, bucket.NewError("put", RootKey, bucket.ErrDenied, nil))), old, func(*Root) {})
	require.ErrorIs(t, err, bucket.ErrDenied, "what stays is told at once")
}

// A living controller answers, also when its cluster has nothing to do; a dead one doesn't.
func TestLivingClusterAnswers(t *testing.T) {
	ctx, b, cl := testContext(t), bucket.NewMemory(), startCluster(t)
	o := options(b)
	o.Images, o.Look, o.Node = cl, 10*time.Millisecond, "broker 7"
	_, stop := start(t, o)
	root, err := ReadRoot(ctx, b)
	require.NoError(t, err)
	for range 3 {
		asked, err := Ask(ctx, b, root, 5)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			root, err = ReadRoot(ctx, b)
			return err == nil && root.Question.Answer != ""
		}, 20*time.Second, 5*time.Millisecond)
		require.Equal(t, asked.Question.ID, root.Question.ID)
		require.Contains(t, root.Question.Answer, "broker 7")
	}
	stop()
	root, err = Ask(ctx, b, root, 6)
	require.NoError(t, err)
	require.Never(t, func() bool {
		now, err := ReadRoot(ctx, b)
		return err != nil || now.Version != root.Version
	}, 200*time.Millisecond, 20*time.Millisecond)
}

// The controller of a cluster whose bucket was given to another one learns it.
func TestRestoredElsewhereEndsRun(t *testing.T) {
	ctx, b, cl := testContext(t), bucket.NewMemory(), startCluster(t)
	f := bucket.NewFault(b, nil)
	o := options(f)
	o.Images, o.Look = cl, 10*time.Millisecond
	c, err := Open(ctx, o)
	require.NoError(t, err)
	root, err := ReadRoot(ctx, b)
	require.NoError(t, err)
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(run) }()
	f.SetPlan(func(bucket.Call) bucket.Action {
		return bucket.Action{Before: bucket.NewError("get", "", bucket.ErrUnavailable, nil)}
	})
	_, err = SwapRoot(ctx, b, root, func(r *Root) { r.ClusterID, r.Incarnation = "cluster-2", "inc-2" })
	require.NoError(t, err)
	calls := f.Calls()
	require.Eventually(t, func() bool { return f.Calls() > calls+3 }, 20*time.Second, 5*time.Millisecond)
	require.Empty(t, done, "an outage is no proof")
	f.SetPlan(nil)
	err = <-done
	require.ErrorIs(t, err, ErrOtherCluster)
	require.ErrorIs(t, c.Status().Err, ErrOtherCluster)
	require.False(t, errors.Is(err, context.Canceled))
}
