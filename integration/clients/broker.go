package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// broker is a tierbroker that the suite started.
type broker struct {
	cmd   *exec.Cmd
	kafka string
	log   string
	ended chan struct{} // closed when it ended, with err set
	err   error
}

// buildBroker returns the path of the program, which it builds once.
func buildBroker(ctx context.Context, s *suite) (string, error) {
	bin := filepath.Join(s.temp, "tierbroker")
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "./cmd/tierbroker")
	build.Dir = s.root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the broker: %w\n%s", err, out)
	}
	return bin, nil
}

// startBroker starts a broker on free ports in a directory of its own, and waits until it is ready.
func startBroker(ctx context.Context, s *suite, name string, args ...string) (*broker, error) {
	bin, err := buildBroker(ctx, s)
	if err != nil {
		return nil, err
	}
	kafka, err := freeAddr()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddr()
	if err != nil {
		return nil, err
	}
	b := &broker{kafka: kafka, log: filepath.Join(s.temp, name+".log"), ended: make(chan struct{})}
	log, err := os.Create(b.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// Not CommandContext: an interrupt must let the broker stop in order.
	b.cmd = exec.Command(bin, append([]string{"--data-dir", filepath.Join(s.temp, name), "--kafka-listen", kafka, "--admin-listen", admin}, args...)...)
	b.cmd.Env = append(os.Environ(), "TIERBROKER_KAFKA_CONFIG=group.initial.rebalance.delay.ms=1000;"+
		"group.consumer.session.timeout.ms=12000;group.consumer.heartbeat.interval.ms=500")
	b.cmd.Stdout, b.cmd.Stderr = log, log
	// An interrupt from the terminal, too; and when this program ends in any other way, no broker stays behind.
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the broker: %w", err)
	}
	go func() {
		b.err = b.cmd.Wait()
		close(b.ended)
	}()
	if err := b.awaitReady(ctx, admin); err != nil {
		b.stop(true) //nolint:errcheck // the first error is the one to tell
		return nil, err
	}
	return b, nil
}

func (b *broker) awaitReady(ctx context.Context, admin string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-b.ended:
			return fmt.Errorf("the broker ended at start: %v", b.err)
		case <-ctx.Done():
			return fmt.Errorf("the broker did not become ready: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// watch returns a context that ends when the broker does: nothing works without it.
func (b *broker) watch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-b.ended:
			cancel(fmt.Errorf("the broker ended while it was in use (%v)", b.err))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// stop ends the broker in order and checks that it does; the end of its log is shown if asked.
func (b *broker) stop(show bool) error {
	b.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended; told below
	var err error
	select {
	case <-b.ended:
		err = b.err
	case <-time.After(30 * time.Second):
		b.cmd.Process.Kill() //nolint:errcheck // the same
		<-b.ended
		err = fmt.Errorf("it did not stop within 30 s")
	}
	if log, readErr := os.ReadFile(b.log); readErr == nil && (show || err != nil) {
		fmt.Fprintf(os.Stderr, "--- the end of the broker's log:\n%s\n", log[max(0, len(log)-8000):])
	}
	if err != nil {
		return fmt.Errorf("stop the broker: %w", err)
	}
	return nil
}

// freeAddr returns an address of this machine that is free now.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
