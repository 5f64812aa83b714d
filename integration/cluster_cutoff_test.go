package integration

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
)

// TestMemberWithoutQuorumLags: a node whose own member of etcd has lost the others says that its image may be old.
func TestMemberWithoutQuorumLags(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	var members []cluster.Member
	for _, name := range []string{"a", "b"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		members = append(members, cluster.Member{Name: name, Peer: l.Addr().String()})
		require.NoError(t, l.Close())
	}
	type started struct {
		e   *cluster.Embedded
		err error
	}
	second := make(chan started, 1)
	other := t.TempDir()
	go func() {
		e, err := cluster.StartEmbedded(ctx, cluster.EmbeddedOptions{Dir: other, Name: "b", Members: members})
		second <- started{e, err}
	}()
	c, err := cluster.Start(ctx, cluster.Options{Embedded: &cluster.EmbeddedOptions{Dir: t.TempDir(), Name: "a", Members: members}})
	b := <-second
	require.NoError(t, b.err)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.Eventually(t, func() bool { h := c.Health(ctx); return h.Err == nil && h.Lagging == nil }, 30*time.Second, 20*time.Millisecond)

	require.NoError(t, b.e.Close())
	var h cluster.Health
	require.Eventually(t, func() bool { h = c.Health(ctx); return h.Lagging != nil }, 30*time.Second, 50*time.Millisecond)
	require.ErrorIs(t, h.Lagging, cluster.ErrUnavailable)
}
