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
	"strings"
	"time"
)

// Broker is a broker process, started here or found running.
type Broker struct {
	Kafka, Admin string // host:port
	PID          int
	StartUp      time.Duration // from the start of the process to readiness; 0 for a running one

	child *Child // nil for a running one
}

// Options of a broker to start.
type Options struct {
	Binary string   // program
	Dir    string   // data directory; its log goes to Dir.log
	Args   []string // further flags
	Env    []string // further settings, as NAME=VALUE
	CPUs   []int    // processors that it is pinned to; nil for all
}

// Start runs a broker on free ports of the loopback and waits until it is ready.
func Start(ctx context.Context, o Options) (*Broker, error) {
	b := &Broker{}
	var err error
	if b.Kafka, err = FreeAddress(); err != nil {
		return nil, err
	}
	if b.Admin, err = FreeAddress(); err != nil {
		return nil, err
	}
	args := append([]string{"run", "--data-dir", o.Dir, "--kafka-listen", b.Kafka, "--admin-listen", b.Admin}, o.Args...)
	began := time.Now()
	if b.child, err = Launch(Command{Path: o.Binary, Args: args, Env: o.Env, Log: o.Dir + ".log", CPUs: o.CPUs}); err != nil {
		return nil, err
	}
	b.PID = b.child.PID
	if err := b.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, b.Kill())
	}
	b.StartUp = time.Since(began)
	return b, nil
}

// FreeAddress is a port of the loopback that nobody uses now.
func FreeAddress() (string, error) {
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
		case <-b.child.Exited():
			return b.child.Ended()
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
	if b.child == nil {
		return nil
	}
	return b.child.Stop(ctx)
}

// Kill ends the broker at once.
func (b *Broker) Kill() error {
	if b.child == nil {
		return nil
	}
	return b.child.Kill()
}
