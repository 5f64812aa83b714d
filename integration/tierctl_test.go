package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tool runs tierctl without the addresses of a broker, with its two outputs apart.
func tool(t *testing.T, stdin string, args ...string) (code int, out, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "tierctl"), args...)
	cmd.Env = append(os.Environ(), "TIERCTL_CONTEXTS="+filepath.Join(t.TempDir(), "none.yaml"))
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// at runs tierctl against a broker and expects an exit code.
func (n *node) at(t *testing.T, want int, stdin string, args ...string) (out, errOut string) {
	t.Helper()
	args = append(args, "--bootstrap", n.kafka, "--admin", "http://"+n.admin, "--bucket", "file://"+filepath.Join(n.dir, "bucket"))
	code, out, errOut := tool(t, stdin, args...)
	require.Equal(t, want, code, "tierctl %v\n%s%s", args, out, errOut)
	return out, errOut
}

func TestTierctlTopics(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	n.at(t, 0, "", "topic", "create", "a", "b", "--partitions", "3", "--config", "retention.ms=1000000")
	_, errOut := n.at(t, 1, "", "topic", "create", "a")
	require.Contains(t, errOut, "create a:")
	n.at(t, 0, "", "topic", "create", "a", "--if-not-exists")
	_, errOut = n.at(t, 1, "", "topic", "create", "c", "--config", "retention.ms=never")
	require.Contains(t, errOut, "retention.ms")
	_, errOut = n.at(t, 1, "", "topic", "create", "no/good")
	require.Contains(t, errOut, "no/good")

	out, _ := n.at(t, 0, "", "topic", "list", "-o", "json")
	var topics []struct {
		Name       string
		Partitions int
	}
	require.NoError(t, json.Unmarshal([]byte(out), &topics))
	require.Len(t, topics, 2)
	require.Equal(t, "a", topics[0].Name)
	require.Equal(t, 3, topics[0].Partitions)
	out, _ = n.at(t, 0, "", "topic", "list", "-o", "yaml")
	require.Contains(t, out, "- name: a\n")

	n.at(t, 0, "", "topic", "alter", "a", "--config", "local.retention.ms=5000", "--unset", "retention.ms", "--partitions", "4")
	_, errOut = n.at(t, 1, "", "topic", "alter", "a", "--partitions", "2")
	require.Contains(t, errOut, "set partitions of a to 2")
	out, _ = n.at(t, 0, "", "topic", "describe", "a", "-o", "json")
	var detail struct {
		Partitions    int
		Overrides     map[string]string
		PartitionList []struct{ State string } `json:"partition_list"`
		Configs       []struct{ Name, Value, Source string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &detail))
	require.Equal(t, 4, detail.Partitions)
	require.Equal(t, map[string]string{"local.retention.ms": "5000"}, detail.Overrides)
	require.Contains(t, detail.Configs, struct{ Name, Value, Source string }{"local.retention.ms", "5000", "topic"})
	out, _ = n.at(t, 0, "", "topic", "describe", "a", "--all")
	require.Contains(t, out, "retention.bytes")

	_, errOut = n.at(t, 2, "", "topic", "delete", "a")
	require.Contains(t, errOut, "--yes")
	n.at(t, 0, "", "topic", "delete", "a", "--yes")
	n.at(t, 1, "", "topic", "delete", "never-was", "--yes")
	n.at(t, 0, "", "topic", "delete", "never-was", "--yes", "--if-exists")
	n.at(t, 1, "", "topic", "roll", "never-was")
	n.stop()
}

// lines returns line-<from> to line-<to-1>, each with a newline.
func lines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "2020-01-01T00:00:%02dZ line-%d\n", i, i)
	}
	return b.String()
}

func TestTierctlRecords(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	n.at(t, 0, "", "topic", "create", "t", "--partitions", "1", "--config", "retention.ms=-1")
	stamp := []string{"--timestamp-pattern", `^\S+`, "--key-pattern", `line-(\d)`, "--header", "h=x"}
	_, errOut := n.at(t, 0, lines(0, 30), append([]string{"produce", "t"}, stamp...)...)
	require.Contains(t, errOut, "30 records")
	n.at(t, 0, "", "topic", "roll", "t")
	n.at(t, 0, "", "topic", "evict", "t")
	out, _ := n.at(t, 0, lines(30, 40), append([]string{"produce", "t", "-", "--codec", "zstd", "-o", "json"}, stamp...)...)
	var result struct {
		Records    int
		Partitions map[string]struct {
			First int64 `json:"first_offset"`
			Last  int64 `json:"last_offset"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.Equal(t, int64(30), result.Partitions["0"].First)
	require.Equal(t, int64(39), result.Partitions["0"].Last)

	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"all":      {nil, lines(0, 40)},
		"offsets":  {[]string{"--from", "12", "--to", "35"}, lines(12, 35)},
		"times":    {[]string{"--from", "2020-01-01T00:00:25Z", "--to", "2020-01-01T00:00:33Z"}, lines(25, 33)},
		"count":    {[]string{"--from", "28", "-n", "4"}, lines(28, 32)},
		"latest":   {[]string{"--from", "latest"}, ""},
		"template": {[]string{"--from", "30", "-n", "1", "--format", `{{.Partition}} {{.Offset}} {{.Key}} {{.Headers.h}}\n`}, "0 30 3 x\n"},
		"json": {[]string{"--from", "0", "-n", "1", "--format", "json"},
			`{"topic":"t","partition":0,"offset":0,"timestamp":1577836800000,"key":"0","value":"2020-01-01T00:00:00Z line-0","headers":[{"key":"h","value":"x"}]}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _ := n.at(t, 0, "", append([]string{"consume", "t"}, tc.args...)...)
			require.Equal(t, tc.want, out)
		})
	}
	_, errOut = n.at(t, 2, "", "consume", "t", "--from", "99")
	require.Contains(t, errOut, "outside")
	n.at(t, 2, "", "consume", "t", "--partition", "7")
	_, errOut = n.at(t, 1, "not a time\n", "produce", "t", "--timestamp-pattern", `^\S+`, "--missing-timestamp", "fail")
	require.Contains(t, errOut, "standard input line 1")

	// Straight from the bucket: what was rolled, with the broker running and after it.
	out, _ = n.at(t, 0, "", "archive", "cat", "t", "--from", "20")
	require.Equal(t, lines(20, 30), out)
	n.stop()
	out, _ = n.at(t, 0, "", "archive", "cat", "t/0", "--to", "2020-01-01T00:00:05Z")
	require.Equal(t, lines(0, 5), out)
	n.at(t, 0, "", "archive", "verify")
	n.at(t, 0, "", "dump", "commitlog", n.dir, "--summary")
	n.at(t, 0, "", "dump", "index", n.dir)
	_, errOut = n.at(t, 1, "x\n", "produce", "t")
	require.Contains(t, errOut, "no Kafka broker answers")
	n.at(t, 1, "", "topic", "list")
}

func TestTierctlFollow(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	n.at(t, 0, "one\n", "produce", "t")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, "tierctl"), "consume", "t", "--follow", "--bootstrap", n.kafka)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	scanner := bufio.NewScanner(out)
	next := func() string {
		require.True(t, scanner.Scan(), scanner.Err())
		return scanner.Text()
	}
	require.Equal(t, "one", next())
	n.at(t, 0, "two\nthree\n", "produce", "t", "--acks", "1")
	require.Equal(t, "two", next())
	require.Equal(t, "three", next())
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NoError(t, cmd.Wait(), "an interrupted follow is no failure")
	n.stop()
}
