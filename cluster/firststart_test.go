package cluster

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/storage/backend"
	etcdschema "go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// startKilled starts a process on dir and kills it: after a time, or when it has acknowledged something. It returns when that
// was, and whether something was acknowledged.
func startKilled(t *testing.T, dir string, after time.Duration) (took time.Duration, acked bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, cmd.Start())
	first := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		first <- lines.Scan()
		_, _ = io.Copy(io.Discard, out) // ends with the process
	}()
	ended := false
	select {
	case acked = <-first:
		ended = true
	case <-time.After(after):
	}
	took = time.Since(began)
	require.NoError(t, cmd.Process.Kill())
	if !ended {
		acked = <-first
	}
	require.Error(t, cmd.Wait(), "it was killed")
	return took, acked
}

// TestFirstStartKilled kills a process at any moment of its very first start. Each time the next start works, and what was
// acknowledged is there.
func TestFirstStartKilled(t *testing.T) {
	const workers = 4
	rounds := 25
	if testing.Short() {
		rounds = 3
	}
	took, acked := startKilled(t, t.TempDir(), time.Minute)
	require.True(t, acked)
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			for round := range rounds {
				dir := filepath.Join(t.TempDir(), "etcd")
				after := rand.N(2 * took) // several share the machine
				_, acked := startKilled(t, dir, after)
				c, err := Start(testContext(t), Options{Embedded: &EmbeddedOptions{Dir: dir}})
				require.NoError(t, err, "round %d, killed after %v of %v", round, after, took)
				require.True(t, !acked || len(c.Image().Topics()) > 0, "round %d: a topic was acknowledged", round)
				require.NoError(t, c.Close())
				require.NoError(t, os.RemoveAll(dir))
			}
		})
	}
}

// blankLog puts the log in place that etcd makes before it has written its first entry.
func blankLog(t *testing.T, e *Embedded) {
	t.Helper()
	require.NoError(t, os.RemoveAll(e.walDir()))
	w, err := wal.Create(zap.NewNop(), e.walDir(), []byte{8, 1, 16, 1}) // member 1 of cluster 1
	require.NoError(t, err)
	require.NoError(t, w.Close())
}

// emptyDB puts the database in place that etcd makes before its first entry, or with it.
func emptyDB(t *testing.T, e *Embedded, applied uint64) {
	t.Helper()
	require.NoError(t, os.RemoveAll(filepath.Dir(e.dbPath())))
	require.NoError(t, os.MkdirAll(filepath.Dir(e.dbPath()), 0o700))
	be := backend.NewDefaultBackend(zap.NewNop(), e.dbPath())
	etcdschema.CreateMetaBucket(be.BatchTx())
	if applied > 0 {
		be.BatchTx().Lock()
		etcdschema.UnsafeUpdateConsistentIndex(be.BatchTx(), applied, 1)
		be.BatchTx().Unlock()
	}
	require.NoError(t, be.Close())
}

// TestUnbornMember: what a first start leaves that was killed, moment by moment. A start goes on from it.
func TestUnbornMember(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, e *Embedded){
		"database torn at its first page": func(t *testing.T, e *Embedded) {
			emptyDB(t, e, 0)
			b, err := os.ReadFile(e.dbPath())
			require.NoError(t, err)
			clear(b[boltHeader+48 : boltHeader+56])
			require.NoError(t, os.WriteFile(e.dbPath(), b[:os.Getpagesize()], 0o600))
		},
		"database":                func(t *testing.T, e *Embedded) { emptyDB(t, e, 0) },
		"database and log":        func(t *testing.T, e *Embedded) { emptyDB(t, e, 0); blankLog(t, e) },
		"database before its log": func(t *testing.T, e *Embedded) { emptyDB(t, e, 1); blankLog(t, e) },
		"a removal that was stopped": func(t *testing.T, e *Embedded) {
			require.NoError(t, os.MkdirAll(filepath.Join(e.dir, unbornDir, "member", "wal"), 0o700))
			emptyDB(t, e, 0)
			blankLog(t, e)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Embedded{dir: t.TempDir()}
			leave(t, e)
			c, err := Start(testContext(t), Options{Embedded: &EmbeddedOptions{Dir: e.dir}})
			require.NoError(t, err)
			require.NoError(t, c.Close())
			require.NoDirExists(t, filepath.Join(e.dir, unbornDir))
		})
	}
}

// TestMemberIsNotUnborn: whatever may have confirmed something, or belongs to a quorum, is left as it is.
func TestMemberIsNotUnborn(t *testing.T) {
	born := t.TempDir()
	c, err := Start(testContext(t), Options{Embedded: &EmbeddedOptions{Dir: born}})
	require.NoError(t, err)
	_, err = c.CreateTopic(testContext(t), TopicSpec{Name: "kept", Partitions: 1})
	require.NoError(t, err)
	require.NoError(t, c.Close())

	for name, c := range map[string]struct {
		change  func(e *Embedded)
		alone   bool
		damaged string
	}{
		"one with data":                        {func(*Embedded) {}, true, ""},
		"its database is behind":               {func(e *Embedded) { emptyDB(t, e, 0) }, true, ""},
		"its log is lost":                      {func(e *Embedded) { blankLog(t, e) }, true, "the log ends at entry 0"},
		"its log and database are lost":        {func(e *Embedded) { blankLog(t, e); require.NoError(t, os.Remove(e.dbPath())) }, true, "missing or empty"},
		"one of a quorum":                      {func(e *Embedded) { blankLog(t, e); emptyDB(t, e, 0) }, false, ""},
		"one of a quorum, the log not written": {func(e *Embedded) { blankLog(t, e); emptyDB(t, e, 1) }, false, "the log ends at entry 0"},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Embedded{dir: copyDir(t, born)}
			c.change(e)
			before := tree(t, e.dir)
			err := e.checkFiles(c.alone)
			if c.damaged == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrDamaged)
				require.ErrorContains(t, err, c.damaged)
			}
			require.Equal(t, before, tree(t, e.dir))
			if c.alone && c.damaged == "" {
				client, err := Start(testContext(t), Options{Embedded: &EmbeddedOptions{Dir: e.dir}})
				require.NoError(t, err)
				require.NotNil(t, client.Image().TopicByName("kept"))
				require.NoError(t, client.Close())
			}
		})
	}
}

// tree lists the files below a directory with their sizes.
func tree(t *testing.T, dir string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		files = append(files, fmt.Sprint(path, " ", info.Size()))
		return err
	}))
	require.NotEmpty(t, files)
	return files
}
