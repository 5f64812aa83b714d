package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDataDirBelongsToOneProcessBrokerAndCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "data")
	d, err := openDataDir(path, 1)
	require.NoError(t, err)
	require.True(t, d.fresh)
	_, err = openDataDir(path, 1)
	require.ErrorContains(t, err, "in use by another process")
	require.ErrorAs(t, err, new(userError))
	require.NoError(t, d.join("c1"))
	require.NoError(t, d.close())

	d, err = openDataDir(path, 1)
	require.NoError(t, err)
	require.False(t, d.fresh)
	require.Equal(t, "c1", d.identity.ClusterID)
	require.NotEmpty(t, d.identity.DirectoryID)
	require.NoError(t, d.join("c1"))
	err = d.join("c2")
	require.ErrorContains(t, err, "belongs to cluster c1")
	require.ErrorAs(t, err, new(userError))
	require.NoError(t, d.close())

	_, err = openDataDir(path, 2)
	require.ErrorContains(t, err, "belongs to broker 1, not to broker 2")
	for _, text := range []string{"{", `{"version": 9, "broker_id": 1}`} {
		require.NoError(t, os.WriteFile(filepath.Join(path, "meta.json"), []byte(text), 0o600))
		_, err = openDataDir(path, 1)
		require.ErrorAs(t, err, new(userError))
	}
	_, err = openDataDir("/dev/null/x", 1)
	require.ErrorAs(t, err, new(userError))
}

func TestDiskBudgetFitsTheDisk(t *testing.T) {
	c := load(t, nil)
	const gib = int64(1 << 30)
	require.Equal(t, 20*gib, diskBudget(c, 0, 100*gib))
	require.Equal(t, 9*gib, diskBudget(c, 0, 10*gib), "less than the setting: the disk minus disk-min-free")
	require.Equal(t, 10*gib, diskBudget(c, gib, 10*gib), "what is used already counts as room")
	require.Equal(t, gib, diskBudget(c, 0, 0), "four files are the least that works")
	c = load(t, []string{"TIERBROKER_DISK_BUDGET=0"})
	require.Equal(t, 99*gib, diskBudget(c, 0, 100*gib))
}
