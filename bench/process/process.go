// Package process starts a broker as a process of its own and reads from the system what it costs: CPU time, memory by
// kind, bytes written to disk from /proc, bucket requests from /metrics. Nothing that is compared comes from the
// broker's own account of its time or memory.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Broker is a broker process, started here or found running.
type Broker struct {
	Kafka, Admin string // host:port
	PID          int
	StartUp      time.Duration // from the start of the process to readiness; 0 for a running one

	cmd    *exec.Cmd
	exited chan struct{}
	log    *os.File
}

// Options of a broker to start.
type Options struct {
	Binary string   // program
	Dir    string   // data directory; its log goes to Dir.log
	Args   []string // further flags
	Env    []string // further settings, as NAME=VALUE
}

// Start runs a broker on free ports of the loopback and waits until it is ready.
func Start(ctx context.Context, o Options) (*Broker, error) {
	b := &Broker{exited: make(chan struct{})}
	var err error
	if b.Kafka, err = freeAddress(); err != nil {
		return nil, err
	}
	if b.Admin, err = freeAddress(); err != nil {
		return nil, err
	}
	if b.log, err = os.Create(o.Dir + ".log"); err != nil {
		return nil, err
	}
	b.cmd = exec.Command(o.Binary, append([]string{"run", "--data-dir", o.Dir, "--kafka-listen", b.Kafka, "--admin-listen", b.Admin}, o.Args...)...)
	b.cmd.Env = append(os.Environ(), o.Env...)
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := b.cmd.Start(); err != nil {
		return nil, errors.Join(err, b.log.Close())
	}
	b.PID = b.cmd.Process.Pid
	go func() {
		_ = b.cmd.Wait() // how it ended is in ProcessState
		close(b.exited)
	}()
	if err := b.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, b.Kill())
	}
	b.StartUp = time.Since(began)
	return b, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr := l.Addr().String()
	return addr, l.Close()
}

func (b *Broker) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := b.get(ctx, "/readyz"); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-b.exited:
			text, err := os.ReadFile(b.log.Name())
			return errors.Join(fmt.Errorf("the broker ended: %s\n%s", b.cmd.ProcessState, text), err)
		case <-ctx.Done():
			return fmt.Errorf("the broker is not ready: %w", context.Cause(ctx))
		}
	}
}

// get fetches a page of the admin server; any status but 200 is an error.
func (b *Broker) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.Admin+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, strings.TrimSpace(string(text)))
	}
	return string(text), err
}

// Profile fetches a CPU profile of the given length into a file; the broker needs the setting pprof.
func (b *Broker) Profile(ctx context.Context, d time.Duration, path string) error {
	ctx, cancel := context.WithTimeout(ctx, d+30*time.Second)
	defer cancel()
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", b.Admin, max(1, int(d.Seconds())))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("profile: %s", resp.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}

// Stop asks the broker to end and waits until it has.
func (b *Broker) Stop(ctx context.Context) error {
	if b.cmd == nil {
		return nil
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-b.exited:
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), b.Kill())
	}
	return b.log.Close()
}

// Kill ends the broker at once.
func (b *Broker) Kill() error {
	if b.cmd == nil {
		return nil
	}
	err := b.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-b.exited
	return errors.Join(err, b.log.Close())
}
