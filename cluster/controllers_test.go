package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestControllersAreKnown(t *testing.T) {
	ctx := testContext(t)
	etcd := startEtcd(t)
	c := startClient(t, etcd)
	session := func() *Session {
		s, err := c.NewSession(ctx, 5*time.Second)
		require.NoError(t, err)
		return s
	}
	one, two := session(), session()
	defer func() { require.NoError(t, two.Close()) }()
	_, ok := c.Image().LeadingController()
	require.False(t, ok)
	lead(t, c, one)
	_, ok = c.Image().LeadingController()
	require.False(t, ok, "not announced yet")
	require.NoError(t, c.AnnounceController(ctx, two, ControllerNode{ID: 2, Incarnation: "b", PeerURL: "http://two"}))
	require.NoError(t, c.AnnounceController(ctx, one, ControllerNode{ID: 1, Incarnation: "a", PeerURL: "http://one"}))
	require.Error(t, c.AnnounceController(ctx, one, ControllerNode{ID: 1}))
	before := c.Image()
	require.Len(t, before.Controllers(), 2)
	leader, ok := before.LeadingController()
	require.True(t, ok)
	require.Equal(t, ControllerNode{ID: 1, Incarnation: "a", PeerURL: "http://one", Lease: one.Lease()}, leader)

	// What is loaded equals what was followed; what ends with its lease is gone, and old images keep it.
	again := startClient(t, etcd)
	require.Equal(t, before.Controllers(), again.Image().Controllers())
	require.NoError(t, one.Close())
	require.Eventually(t, func() bool { return len(c.Image().Controllers()) == 1 }, 10*time.Second, time.Millisecond)
	require.Len(t, before.Controllers(), 2)
	lead(t, c, two)
	leader, ok = c.Image().LeadingController()
	require.True(t, ok)
	require.EqualValues(t, 2, leader.ID)
	for _, bad := range []string{"controllers/1", "controllers/000000000000000x", "controllers/0000000000000001"} {
		_, err := etcd.Put(ctx, DefaultPrefix+bad, "{}")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(c.Image().Corrupt()) == 3 }, 10*time.Second, time.Millisecond)
}
