package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Somebody cuts the newest log file of a killed broker in the middle of what was acknowledged. The broker says so, serves
// what is left, and never gives the offsets out again.
func TestLogCutByOthers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	n.tierctl("topic", "create", "cut", "other", "--partitions", "1")
	w := newWire(t, n)
	for i := range 100 {
		a := w.produce("cut", 0, fmt.Appendf(nil, "%d %0900d", i, i))
		require.NoError(t, a.err)
		require.Equal(t, int64(i), a.offset)
	}
	a := w.produce("other", 0, []byte("the last one"))
	require.NoError(t, a.err)
	n.kill()
	files, err := filepath.Glob(filepath.Join(n.dir, "log", "*.log"))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(files[len(files)-1], 60_000))

	n.start()
	require.Contains(t, n.out.String(), "something has cut the file to 60000 bytes")
	w = newWire(t, n)
	a = w.produce("cut", 0, []byte("after"))
	require.NoError(t, a.err)
	require.GreaterOrEqual(t, a.offset, int64(100))
	b := w.produce("other", 0, []byte("after"))
	require.NoError(t, b.err)
	require.GreaterOrEqual(t, b.offset, int64(1))
	got := readTopic(t, n.kafka, "cut")[0]
	require.Equal(t, "after", got[a.offset])
	require.Greater(t, len(got), 30)
	for offset, v := range got {
		require.True(t, offset == a.offset || strings.HasPrefix(v, fmt.Sprint(offset, " ")), "offset %d holds %.20q", offset, v)
	}
	n.stop()
}

// A new broker is killed again and again before it is ready for the first time. Nothing was lost, so nothing is left void.
func TestNewBrokerKilledEarly(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	exists := func(pattern string) func() bool {
		return func() bool {
			files, err := filepath.Glob(filepath.Join(n.dir, pattern))
			return err == nil && len(files) > 0
		}
	}
	for what, reached := range map[string]func() bool{"a log directory": exists("log"), "an index": exists("index/*"), "a log file": exists("log/*.log"),
		"an admin server": func() bool { status, _ := n.get("/readyz"); return status != 0 }} {
		n.launch()
		n.eventually(30*time.Second, what, reached)
		n.kill()
	}
	n.start()
	n.tierctl("topic", "create", "first", "--partitions", "3")
	w := newWire(t, n)
	for p := range int32(3) {
		a := w.produce("first", p, []byte("x"))
		require.NoError(t, a.err)
		require.Zero(t, a.offset)
	}
	n.stop()
}

// awaitExit waits until the broker has ended by itself and returns its exit code.
func (n *node) awaitExit() int {
	n.t.Helper()
	select {
	case <-n.exited:
	case <-time.After(60 * time.Second):
		n.t.Fatalf("broker does not end\n%s", n.out.String())
	}
	code := n.cmd.ProcessState.ExitCode()
	n.cmd = nil
	return code
}

// Files of the embedded etcd are damaged: the start says so in one sentence, and what to do, and ends.
func TestEtcdDamagedByOthers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	n.tierctl("topic", "create", "t", "--partitions", "50")
	n.stop()
	for file, damage := range map[string]func(path string) error{
		"snap/db":   func(path string) error { return os.Truncate(path, 20_000) },
		"wal/*.wal": func(path string) error { return os.WriteFile(path, make([]byte, 50_000), 0o600) },
	} {
		files, err := filepath.Glob(filepath.Join(n.dir, "etcd", "member", "member", file))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		whole, err := os.ReadFile(files[0])
		require.NoError(t, err)
		require.NoError(t, damage(files[0]))
		n.out = &lockedBuffer{}
		n.launch()
		require.Equal(t, 2, n.awaitExit(), n.out.String())
		out := n.out.String()
		require.Contains(t, out, "the files of the embedded etcd are damaged: "+n.dir)
		require.Contains(t, out, "from a backup")
		require.NotContains(t, out, "goroutine ")
		require.NoError(t, os.WriteFile(files[0], whole, 0o600))
	}
	n.start()
	require.Contains(t, n.tierctl("topic", "list"), "t")
	n.stop()
}
