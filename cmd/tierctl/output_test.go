package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestFormatsOfRecords(t *testing.T) {
	r := &record{Topic: "t", Partition: 1, Offset: 5, Timestamp: 1438191704747, Key: []byte("k<"), Value: []byte{0xff, 'v'},
		Headers: []recordHeader{{Key: "h", Value: []byte("x")}, {Key: "n"}}}
	for format, want := range map[string]string{
		"lines": "\xffv\n",
		"raw":   "\xffv",
		"json":  `{"topic":"t","partition":1,"offset":5,"timestamp":1438191704747,"key":"k<","value":null,"value_base64":"/3Y=","headers":[{"key":"h","value":"x"},{"key":"n","value":null}]}` + "\n",
		`{{.Partition}}/{{.Offset}} {{.Time}} {{.Key}} {{.Headers.h}}\n`: "1/5 2015-07-29T17:41:44.747Z k< x\n",
	} {
		var b bytes.Buffer
		w, err := newRecordWriter(&b, format)
		require.NoError(t, err)
		require.NoError(t, w.print(r))
		require.NoError(t, w.flush())
		require.Equal(t, want, b.String())
	}
	for _, bad := range []string{"xml", "{{.Nope}}", "{{"} {
		_, err := newRecordWriter(&bytes.Buffer{}, bad)
		require.ErrorAs(t, err, new(usageError), bad)
	}
}

func TestPrintedForms(t *testing.T) {
	type row struct {
		Name string `json:"name"`
		Size int64  `json:"size_bytes"`
	}
	rows := []row{{"a: b", 1 << 20}, {"true", 0}}
	tab := newTable("name", "size")
	for _, r := range rows {
		tab.row(r.Name, size(r.Size))
	}
	for output, want := range map[string]string{
		outputTable: "NAME  SIZE\na: b  1.0 MiB\ntrue  0 B\n",
		outputJSON:  "[\n  {\n    \"name\": \"a: b\",\n    \"size_bytes\": 1048576\n  },\n  {\n    \"name\": \"true\",\n    \"size_bytes\": 0\n  }\n]\n",
		outputYAML:  "- name: 'a: b'\n  size_bytes: 1048576\n- name: \"true\"\n  size_bytes: 0\n",
	} {
		var b bytes.Buffer
		g := globals{Output: output}
		require.NoError(t, g.printTo(&b, rows, tab))
		require.Equal(t, want, b.String())
	}
}

func TestContexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "contexts.yaml")
	t.Setenv("TIERCTL_CONTEXTS", path)
	run := func(args ...string) int { return execute(context.Background(), args) }
	require.Equal(t, 0, run("context", "set", "a", "--bootstrap", "h:1", "--bucket", "s3://x"))
	require.Equal(t, 0, run("context", "set", "b", "--admin", "http://h:2/"))
	require.Equal(t, 0, run("context", "use", "b"))
	require.Equal(t, exitUsage, run("context", "use", "c"))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "current: b\ncontexts:\n    a:\n        bootstrap: h:1\n        bucket: s3://x\n    b:\n        admin: http://h:2/\n", string(data))

	g := globals{Output: outputTable}
	cmd := newRoot()
	require.NoError(t, g.resolve(cmd))
	require.Equal(t, globals{Bootstrap: defaultBootstrap, Admin: "http://h:2", Output: outputTable}, g)
	g = globals{Output: outputTable, Context: "a", Admin: "http://flag"}
	t.Setenv("TIERCTL_BOOTSTRAP", "env:9")
	require.NoError(t, g.resolve(cmd))
	require.Equal(t, globals{Bootstrap: "env:9", Admin: "http://flag", Bucket: "s3://x", Output: outputTable, Context: "a"}, g)

	require.Equal(t, 0, run("context", "delete", "b"))
	require.Equal(t, 0, run("context", "list"))
	require.Equal(t, exitUsage, run("--context", "nope", "topic", "list"))
	require.NoError(t, os.WriteFile(path, []byte("contexts: [\n"), 0o600))
	require.Equal(t, exitFailed, run("topic", "list"))
}

func TestUsage(t *testing.T) {
	t.Setenv("TIERCTL_CONTEXTS", filepath.Join(t.TempDir(), "none.yaml"))
	for _, args := range [][]string{
		{"topik"}, {"topic", "lst"}, {"topic", "create"}, {"topic", "describe"}, {"topic", "alter", "x"}, {"topic", "list", "--nope"},
		{"topic", "create", "x", "--config", "y"}, {"consume"}, {"consume", "x", "--from", "when"}, {"produce", "x", "--codec", "rar"},
		{"produce", "x", "/does/not/exist"}, {"topic", "list", "-o", "xml"}, {"topic", "delete", "x"},
	} {
		require.Equal(t, exitUsage, execute(context.Background(), args), "%v", args)
	}
	require.Equal(t, 0, execute(context.Background(), nil))
	require.Equal(t, 0, execute(context.Background(), []string{"topic"}))
}

func TestNoBroker(t *testing.T) {
	t.Setenv("TIERCTL_CONTEXTS", filepath.Join(t.TempDir(), "none.yaml"))
	require.Equal(t, exitFailed, execute(context.Background(), []string{"topic", "roll", "x", "--admin", "http://127.0.0.1:1"}))
}

// TestEveryCommandHasAnExample: whoever asks for help sees a command line that works.
func TestEveryCommandHasAnExample(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() != "help" && c.Name() != "completion" {
			require.Contains(t, c.Example, "tierctl", c.CommandPath())
			for _, child := range c.Commands() {
				walk(child)
			}
		}
	}
	walk(newRoot())
}

func TestPlural(t *testing.T) {
	require.Equal(t, []string{"0 topics", "1 partition", "2 batches", "1 batch"},
		[]string{plural(0, "topic"), plural(int32(1), "partition"), plural(int64(2), "batch"), plural(1, "batch")})
}
