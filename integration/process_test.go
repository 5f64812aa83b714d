package integration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// binary builds a program of this repository once for all tests and returns its path.
var binary = struct {
	sync.Mutex
	dir   string
	built map[string]string
}{built: map[string]string{}}

// programs saves the time that linking takes, in runs by hand.
var programs = flag.String("programs", "", "directory with tierbroker and tierctl that are already built")

// Most tests here wait most of the time: for leases to end, for faults to be over. More of them run side by side than there are
// processors, unless -parallel says something else.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if binary.dir != "" {
		if err := os.RemoveAll(binary.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func program(t testing.TB, name string) string {
	t.Helper()
	if *programs != "" {
		return filepath.Join(*programs, name)
	}
	binary.Lock()
	defer binary.Unlock()
	if p := binary.built[name]; p != "" {
		return p
	}
	if binary.dir == "" {
		dir, err := os.MkdirTemp("", "tierbroker-test-*")
		require.NoError(t, err)
		binary.dir = dir
	}
	p := filepath.Join(binary.dir, name)
	out, err := exec.Command("go", "build", "-o", p, "../cmd/"+name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	binary.built[name] = p
	return p
}

// node is one broker process over a data directory that outlives it.
type node struct {
	t            testing.TB
	name         string // in logs; empty: broker
	dir          string
	kafka, admin string
	args         []string
	env          []string
	cmd          *exec.Cmd
	exited       chan struct{}
	out          *lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf.Len() > 1<<20 {
		b.buf.Reset()
	}
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// freePort returns a port that nothing listens on now, below the range that the system gives to clients.
func freePort(t testing.TB) int {
	t.Helper()
	for range 200 {
		port := 20000 + int(nextPort.Add(1))%10000
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		require.NoError(t, l.Close())
		return port
	}
	t.Fatal("no free port")
	return 0
}

// newNode prepares a broker on free ports; start starts it.
func newNode(t testing.TB, args ...string) *node {
	n := &node{t: t, dir: t.TempDir(), args: args, out: &lockedBuffer{}}
	n.kafka = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	n.admin = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("%s log:\n%s", cmp.Or(n.name, "broker"), n.out.String())
		}
	})
	return n
}

// start runs the broker and waits until it is ready.
func (n *node) start() {
	n.t.Helper()
	n.launch()
	n.awaitReady(60 * time.Second)
}

func (n *node) launch() {
	n.t.Helper()
	args := append([]string{"run", "--data-dir", n.dir, "--kafka-listen", n.kafka, "--admin-listen", n.admin}, n.args...)
	n.cmd = exec.Command(program(n.t, "tierbroker"), args...)
	n.cmd.Env = append(os.Environ(), n.env...)
	n.cmd.Stdout, n.cmd.Stderr = n.out, n.out
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(n.t, n.cmd.Start())
	n.exited = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // the state tells
		close(done)
	}(n.cmd, n.exited)
}

func (n *node) awaitReady(limit time.Duration) {
	n.t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if status, _ := n.get("/readyz"); status == http.StatusOK {
			return
		}
		select {
		case <-n.exited:
			n.t.Fatalf("broker ended: %s\n%s", n.cmd.ProcessState, n.out.String())
		case <-deadline:
			_, body := n.get("/readyz")
			n.t.Fatalf("broker is not ready: %s\n%s", body, n.out.String())
		case <-tick.C:
		}
	}
}

func (n *node) get(path string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.admin+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// kill is kill -9; it returns when the process is gone.
func (n *node) kill() {
	if n.cmd == nil {
		return
	}
	if err := n.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.t.Errorf("kill: %v", err)
	}
	<-n.exited
	n.cmd = nil
}

// stop is SIGTERM; the broker must end by itself, with exit code 0.
func (n *node) stop() {
	n.t.Helper()
	require.NoError(n.t, n.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-n.exited:
	case <-time.After(60 * time.Second):
		n.t.Fatalf("broker did not end on SIGTERM\n%s", n.out.String())
	}
	require.Equal(n.t, 0, n.cmd.ProcessState.ExitCode(), n.out.String())
	n.cmd = nil
}

// tierctl runs the tool against this broker and returns what it prints.
func (n *node) tierctl(args ...string) string {
	n.t.Helper()
	out, err := n.tryTierctl(args...)
	require.NoError(n.t, err, "tierctl %v: %s", args, out)
	return out
}

func (n *node) tryTierctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(n.t, "tierctl"), append(args, "--bootstrap", n.kafka, "--admin", "http://"+n.admin)...)
	cmd.Env = append(os.Environ(), n.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
