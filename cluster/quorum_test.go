package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExistingClusterIsNotBegun: a node that expects a cluster in etcd makes none.
func TestExistingClusterIsNotBegun(t *testing.T) {
	ctx, etcd := testContext(t), startEtcd(t)
	o := Options{Etcd: etcd, ClusterID: "x", Existing: true}
	_, err := Start(ctx, o)
	require.ErrorIs(t, err, ErrNoCluster)
	o.Existing = false
	c, err := Start(ctx, o)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	o.Existing = true
	c, err = Start(ctx, o)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	o.ClusterID = "y"
	_, err = Start(ctx, o)
	require.ErrorIs(t, err, ErrOtherCluster)
}
