package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

// refusesToStart runs the daemon, which must end by itself with exit code 2 and say why in one sentence. It returns it.
func (n *node) refusesToStart() string {
	n.t.Helper()
	n.out = &lockedBuffer{}
	n.launch()
	select {
	case <-n.exited:
	case <-time.After(40 * time.Second):
		n.t.Fatalf("the broker did not end\n%s", n.out.String())
	}
	out := n.out.String()
	require.Equal(n.t, 2, n.cmd.ProcessState.ExitCode(), out)
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if strings.HasSuffix(lines[0], "the configuration is wrong:") { // a list of faults, here of one
		lines = []string{strings.Join(lines[:min(2, len(lines))], " ")}
	}
	require.Len(n.t, lines, 1, "more than one line: %s", out)
	require.True(n.t, strings.HasPrefix(lines[0], "tierbroker: "), out)
	require.NotContains(n.t, out, "goroutine ")
	n.cmd = nil
	return lines[0]
}

// What only the operator can put right ends the daemon at once, with exit code 2 and a sentence that names it; what was there
// before is as good as it was.
func TestWrongSetups(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	good := newNode(t, "--bucket", server.URL("p").String())
	good.env = server.Environ()
	good.start()
	good.tierctl("topic", "create", "t")
	w := newWire(t, good)
	require.NoError(t, w.produce("t", 0, []byte("a")).err)
	good.tierctl("topic", "roll", "t")

	missing, region, foreign := server.URL("p"), server.URL("p"), server.URL("other")
	missing.Bucket, region.Region = "no-such-bucket", "eu-north-9"
	for name, tc := range map[string]struct {
		args, env []string
		dir       string
		port      bool // take the broker's Kafka port
		want      []string
	}{
		"missing bucket":            {args: []string{"--bucket", missing.String()}, want: []string{"no-such-bucket", "there is no bucket"}},
		"wrong region":              {args: []string{"--bucket", region.String()}, want: []string{"region", "eu-north-9"}},
		"wrong secret":              {args: []string{"--bucket", foreign.String()}, env: []string{"AWS_SECRET_ACCESS_KEY=wrong"}, want: []string{"secret key"}},
		"unknown access key":        {args: []string{"--bucket", foreign.String()}, env: []string{"AWS_ACCESS_KEY_ID=nobody"}, want: []string{"access key"}},
		"no such store":             {args: []string{"--bucket", "s3://some-bucket/p?endpoint=http://127.0.0.1:1"}, want: []string{"the bucket does not answer", "127.0.0.1:1"}},
		"bad URL":                   {args: []string{"--bucket", "ftp://b"}, want: []string{"bucket"}},
		"folder without parent":     {args: []string{"--bucket", "file:///does/not/exist/bucket"}, want: []string{"can't open the bucket", "/does/not/exist"}},
		"bucket of another cluster": {args: []string{"--bucket", server.URL("p").String()}, want: []string{"already holds cluster"}},
		"data directory in use":     {args: []string{"--bucket", server.URL("p").String()}, dir: good.dir, want: []string{"in use by another process", good.dir}},
		"taken port":                {args: []string{"--bucket", foreign.String()}, port: true, want: []string{"kafka-listen", "is taken"}},
		"another broker's port":     {args: []string{"--bucket", foreign.String(), "--admin-listen", good.admin}, want: []string{"admin-listen", good.admin, "is taken"}},
		"unknown flag":              {args: []string{"--no-such-flag"}, want: []string{"no-such-flag"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, tc.args...)
			n.env = append(server.Environ(), tc.env...)
			if tc.dir != "" {
				n.dir = tc.dir
			}
			if tc.port {
				l, err := net.Listen("tcp", n.kafka)
				require.NoError(t, err)
				defer l.Close()
			}
			said := n.refusesToStart()
			for _, want := range tc.want {
				require.Contains(t, said, want)
			}
		})
	}

	(&reader{w: w, topic: "t", want: []string{"a"}}).finish(good, 10*time.Second)
	good.stop()
	// Its data directory with other buckets: an empty one, and that of a second cluster.
	other := newNode(t, "--bucket", foreign.String())
	other.env = server.Environ()
	other.start()
	other.stop()
	args := good.args
	for prefix, want := range map[string]string{"empty": "is it the right bucket?", "other": "belongs to cluster"} {
		good.args = []string{"--bucket", server.URL(prefix).String()}
		require.Contains(t, good.refusesToStart(), want)
	}
	good.args = append(args, "--broker-id", "2")
	require.Contains(t, good.refusesToStart(), "belongs to broker 1")
	good.args = args
	good.start()
	(&reader{w: newWire(t, good), topic: "t", want: []string{"a"}}).finish(good, 10*time.Second)
	good.stop()
}

// A configuration with several faults is answered with all of them, each with file and line.
func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	file := filepath.Join(t.TempDir(), "broker.yaml")
	require.NoError(t, os.WriteFile(file, []byte("cache-bytes: lots\nno-such-setting: 1\nlog-level: loud\n"), 0o600))
	n.args = []string{"--config", file}
	n.launch()
	select {
	case <-n.exited:
	case <-time.After(20 * time.Second):
		t.Fatal("the broker did not end")
	}
	require.Equal(t, 2, n.cmd.ProcessState.ExitCode(), n.out.String())
	for line, what := range []string{"cache-bytes", "no-such-setting", "log-level"} {
		require.Contains(t, n.out.String(), fmt.Sprintf("%s:%d", file, line+1))
		require.Contains(t, n.out.String(), what)
	}
	require.NotContains(t, n.out.String(), "goroutine ")
	n.cmd = nil
	_, err := os.Stat(filepath.Join(n.dir, "LOCK"))
	require.ErrorIs(t, err, os.ErrNotExist, "the data directory was touched")
}
