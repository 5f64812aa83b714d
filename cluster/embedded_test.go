package cluster

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDatabaseHasItsSpace: on a disk that others fill, etcd still has the pages of its file.
func TestDatabaseHasItsSpace(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	c, err := Start(ctx, Options{Embedded: &EmbeddedOptions{Dir: dir}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	check := func() {
		t.Helper()
		var s syscall.Stat_t
		require.NoError(t, syscall.Stat(filepath.Join(dir, "member", "member", "snap", "db"), &s))
		require.GreaterOrEqual(t, s.Blocks*512, s.Size)
	}
	check()
	require.NoError(t, c.defragment()) // a new, sparse file
	require.NoError(t, c.maintainOnce(ctx))
	check()
	// A file that isn't there is no fault of the start.
	(&Embedded{dir: filepath.Join(dir, "none")}).reserve()
	_, err = os.Stat(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestFullDiskRefusesChanges: etcd must not meet a full disk, so nobody may add to it then.
func TestFullDiskRefusesChanges(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	start := func(least int64) *Client {
		c, err := Start(ctx, Options{Embedded: &EmbeddedOptions{Dir: dir, MinFreeBytes: least}})
		require.NoError(t, err)
		return c
	}
	c := start(0)
	topic, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 1})
	require.NoError(t, err)
	require.NoError(t, c.Close())

	c = start(1 << 60)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	ops := []ConfigOp{{Name: "retention.ms", Value: "1"}}
	_, err = c.CreateTopic(ctx, TopicSpec{Name: "u", Partitions: 1})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "is full")
	_, err = c.CreatePartitions(ctx, topic.ID, 2)
	require.ErrorIs(t, err, ErrUnavailable)
	_, err = c.AlterTopicConfig(ctx, topic.ID, ops, false)
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, c.AlterBrokerConfig(ctx, DefaultConfig, nil, false), ErrUnavailable)
	require.Len(t, c.Image().Topics(), 1)
	require.Empty(t, c.Image().TopicByName("t").Overrides)
	_, err = c.AllocateProducerIDs(ctx, 1)
	require.NoError(t, err, "what clients need goes on")
	require.NoError(t, c.DeleteTopic(ctx, topic.ID), "what makes room goes on")
}
