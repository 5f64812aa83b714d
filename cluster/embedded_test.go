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
