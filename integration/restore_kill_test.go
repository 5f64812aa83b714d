package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tool is killed again and again, later each time, and given again until it is through. No broker starts on what is half done.
func TestRestoreGoesOnAfterKills(t *testing.T) {
	t.Parallel()
	x := newLostCluster(t)
	x.n.tierctl("topic", "create", "audit", "--partitions", "40", "--config", "retention.ms=-1")
	x.produce("audit", 100, true)
	positions := map[string][]int64{"audit": {1, 2, 3}}
	x.commit("billing", positions)
	x.n.tierctl("topic", "roll", "audit", "__consumer_offsets")
	x.n.kill()
	require.NoError(t, os.RemoveAll(x.n.dir))
	x.n = x.node()
	kills, refused := 0, 0
	for limit := time.Millisecond; ; limit = limit*3/2 + time.Millisecond {
		cmd := exec.Command(program(t, "tierctl"), "cluster", "restore", "--bucket", x.bucket, "--data-dir", x.n.dir, "--old-cluster-is-gone", "--yes")
		var out lockedBuffer
		cmd.Stdout, cmd.Stderr = &out, &out
		before := x.root()
		require.NoError(t, cmd.Start())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		if kills == 0 {
			// An etcd that is killed while it makes its first files doesn't start again; nothing of the bucket has changed before that is over.
			x.n.eventually(60*time.Second, "the root changes", func() bool { return x.root() != before || len(done) > 0 })
		}
		kill := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
		err := <-done
		kill.Stop()
		if err == nil || strings.Contains(out.String(), "etcd is not empty") {
			break // the last answer may have been lost
		}
		require.Less(t, kills, 100, out.String())
		require.Empty(t, strings.TrimSpace(strings.ReplaceAll(err.Error(), "signal: killed", "")), out.String())
		kills++
		if refused < 3 {
			x.n.launch()
			select {
			case <-x.n.exited:
			case <-time.After(60 * time.Second):
				t.Fatal("a broker starts on a restore that is not finished")
			}
			require.Equal(t, 2, x.n.cmd.ProcessState.ExitCode(), x.n.out.String())
			x.n.cmd = nil
			refused++
		}
	}
	t.Logf("%d kills", kills)
	require.Positive(t, kills)
	x.n.start()
	x.compare("audit")
	x.requireCommitted("billing", positions)
	x.n.stop()
}

// root returns the bucket's root object.
func (x *lostCluster) root() string {
	b, err := os.ReadFile(filepath.Join(strings.TrimPrefix(x.bucket, "file://"), "cluster", "root"))
	require.NoError(x.t, err)
	return string(b)
}
