package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// usedEtcd makes the directory of an embedded etcd that has seen use, and is closed: some snapshots, some log files.
func usedEtcd(t *testing.T, topics int) string {
	t.Helper()
	ctx := testContext(t)
	dir := t.TempDir()
	c, err := Start(ctx, Options{Embedded: &EmbeddedOptions{Dir: dir}})
	require.NoError(t, err)
	for i := range topics {
		_, err := c.CreateTopic(ctx, TopicSpec{Name: fmt.Sprint("topic", i), Partitions: 3})
		require.NoError(t, err)
	}
	for range 1100 { // beyond the first snapshot
		_, err := c.AllocateProducerIDs(ctx, 1)
		require.NoError(t, err)
	}
	require.NoError(t, c.Close())
	return dir
}

func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

func writeAt(t *testing.T, path string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// TestDamagedEtcdFiles: whatever is damaged, the start ends with one sentence that names the file, and not with the process.
func TestDamagedEtcdFiles(t *testing.T) {
	whole := usedEtcd(t, 50)
	walOf := func(e *Embedded) string {
		files, err := filepath.Glob(filepath.Join(e.walDir(), "*.wal"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		return files[len(files)-1]
	}
	rubbish := bytes.Repeat([]byte("rubbish!"), 32<<10)
	size := func(path string) int64 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Size()
	}
	for name, c := range map[string]struct {
		damage func(e *Embedded)
		says   string
	}{
		"garbage in the log":             {func(e *Embedded) { writeAt(t, walOf(e), 20_000, rubbish[:9000]) }, "wal"},
		"garbage at the log's beginning": {func(e *Embedded) { writeAt(t, walOf(e), 0, rubbish[:500]) }, "wal"},
		"log full of garbage":            {func(e *Embedded) { writeAt(t, walOf(e), 0, rubbish) }, "wal"},
		"log cut":                        {func(e *Embedded) { require.NoError(t, os.Truncate(walOf(e), 20_000)) }, "wal"},
		"log cut to nothing":             {func(e *Embedded) { require.NoError(t, os.Truncate(walOf(e), 0)) }, "wal"},
		"log zeroed":                     {func(e *Embedded) { writeAt(t, walOf(e), 30_000, make([]byte, size(walOf(e))-30_000)) }, "wal"},
		"log gone":                       {func(e *Embedded) { require.NoError(t, os.RemoveAll(e.walDir())) }, "log is missing"},
		"log files gone":                 {func(e *Embedded) { require.NoError(t, os.Remove(walOf(e))) }, "log is missing"},
		"garbage in the database": {func(e *Embedded) {
			writeAt(t, e.dbPath(), 8192, rubbish[:min(len(rubbish), int(size(e.dbPath())-8192))])
		}, "db"},
		"both meta pages":         {func(e *Embedded) { writeAt(t, e.dbPath(), 0, make([]byte, 8192)) }, "no database"},
		"database of garbage":     {func(e *Embedded) { require.NoError(t, os.WriteFile(e.dbPath(), rubbish, 0o600)) }, "no database"},
		"database cut":            {func(e *Embedded) { require.NoError(t, os.Truncate(e.dbPath(), 40_960)) }, "cut short"},
		"database cut to a page":  {func(e *Embedded) { require.NoError(t, os.Truncate(e.dbPath(), 4096)) }, "cut short"},
		"database cut to nothing": {func(e *Embedded) { require.NoError(t, os.Truncate(e.dbPath(), 0)) }, "missing or empty"},
		"database gone":           {func(e *Embedded) { require.NoError(t, os.Remove(e.dbPath())) }, "missing or empty"},
		"snap gone":               {func(e *Embedded) { require.NoError(t, os.RemoveAll(filepath.Dir(e.dbPath()))) }, "missing or empty"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, whole)
			c.damage(&Embedded{dir: dir})
			client, err := Start(testContext(t), Options{Embedded: &EmbeddedOptions{Dir: dir}})
			if err == nil {
				require.NoError(t, client.Close())
			}
			require.ErrorIs(t, err, ErrDamaged)
			require.ErrorContains(t, err, dir)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	t.Run("none", func(t *testing.T) {
		client, err := Start(testContext(t), Options{Embedded: &EmbeddedOptions{Dir: copyDir(t, whole)}})
		require.NoError(t, err)
		require.Len(t, client.Image().Topics(), 50)
		require.NoError(t, client.Failure())
		require.NoError(t, client.Close())
	})
}

// TestTornEtcdFiles: what a crash leaves is no damage: a log that ends in the middle of a record, one meta page of two, a
// first start that came no further than its database.
func TestTornEtcdFiles(t *testing.T) {
	whole := usedEtcd(t, 3)
	for name, tear := range map[string]func(e *Embedded){
		"one meta page": func(e *Embedded) { writeAt(t, e.dbPath(), 100, []byte{1}); writeAt(t, e.dbPath(), 16+20, []byte{1}) },
		"a first start": func(e *Embedded) {
			fresh := t.TempDir()
			client, err := Start(testContext(t), Options{Embedded: &EmbeddedOptions{Dir: fresh}})
			require.NoError(t, err)
			require.NoError(t, client.Close())
			require.NoError(t, os.RemoveAll(filepath.Join(e.dir, memberDir)))
			require.NoError(t, os.MkdirAll(filepath.Dir(e.dbPath()), 0o700))
			require.NoError(t, os.WriteFile(e.dbPath(), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, whole)
			tear(&Embedded{dir: dir})
			client, err := Start(testContext(t), Options{Embedded: &EmbeddedOptions{Dir: dir}})
			require.NoError(t, err)
			require.NoError(t, client.Close())
		})
	}
}

// FuzzBolt: no bytes make the check panic, or read for ever.
func FuzzBolt(f *testing.F) {
	dir := f.TempDir()
	c, err := Start(context.Background(), Options{Embedded: &EmbeddedOptions{Dir: dir}})
	require.NoError(f, err)
	require.NoError(f, c.Close())
	whole, err := os.ReadFile((&Embedded{dir: dir}).dbPath())
	require.NoError(f, err)
	_, err = checkBolt((&Embedded{dir: dir}).dbPath())
	require.NoError(f, err)
	f.Add([]byte{}, 0)
	f.Add([]byte{0xff, 0xff}, 4096*2+8)
	f.Add([]byte{2, 0, 2, 0, 0, 1}, 4096*3+8)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, 4096*3+20)
	f.Fuzz(func(t *testing.T, patch []byte, at int) {
		if at < 0 || at > len(whole) {
			return
		}
		b := bytes.Clone(whole)
		copy(b[at:], patch)
		path := filepath.Join(t.TempDir(), "db")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		if _, err := checkBolt(path); err != nil {
			require.ErrorIs(t, err, ErrDamaged)
		}
	})
}
