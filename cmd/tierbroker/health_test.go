package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/admin"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

func TestBucketThatFailsForLongIsAProblem(t *testing.T) {
	h := &health{d: &daemon{metrics: admin.NewMetrics("v", 0), current: &current{}}, problems: map[string]admin.Problem{}}
	down := bucket.NewError("put", "x", bucket.ErrUnavailable, errors.New("refused"))
	see := func(err error) { h.observeBucket(bucket.Op{Class: "roll"}, "put", 0, time.Millisecond, err) }
	see(down)
	require.Empty(t, h.noted(), "one failure is none")
	h.failing = h.failing.Add(-bucketSilence - time.Second)
	see(bucket.ErrNotFound)
	require.Len(t, h.noted(), 1)
	require.Contains(t, h.noted()[0].Message, "refused")
	require.False(t, h.noted()[0].Unready)
	h.set("bucket", "does not answer", false)
	require.Len(t, h.noted(), 1, "not told twice")
	h.clear("bucket")
	see(nil)
	require.Empty(t, h.noted())
	require.True(t, h.Check()[0].Unready, "no incarnation serves yet")
}

func TestClusterProblems(t *testing.T) {
	require.Empty(t, clusterProblem(cluster.Health{}))
	for _, s := range []cluster.Health{{Err: errors.New("x")}, {NoSpace: true}, {Lagging: errors.New("x")}, {Corrupt: 1}} {
		require.NotEmpty(t, clusterProblem(s))
	}
}
