package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// process is one running program.
type process struct {
	name  string
	vital bool // the cluster can't go on without it
	cmd   *exec.Cmd
	done  chan struct{}
}

// output keeps the lines of different processes whole.
var output sync.Mutex

// launch starts a program in a process group of its own, so that Ctrl-C reaches it once: through stop.
func (c *cluster) launch(name string, vital bool, env []string, program string, args ...string) error {
	p := &process{name: name, vital: vital, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w (\"make tools\" installs the S3 server)", name, err)
	}
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		prefixed(name, out)
	}()
	go func() {
		_ = p.cmd.Wait() // its state tells
		w.Close()
		<-printed
		close(p.done)
		c.ended <- p
	}()
	c.processes = append(c.processes, p)
	return nil
}

// prefixed copies lines to standard output, each behind a name.
func prefixed(name string, r io.Reader) {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			output.Lock()
			fmt.Printf("%-13s| %s", name, line)
			if line[len(line)-1] != '\n' {
				fmt.Println()
			}
			output.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// watch returns when ctx has ended (nil) or a process that all need.
func (c *cluster) watch(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-c.ended:
			if p.vital {
				return fmt.Errorf("%s ended (%s), and nothing goes on without it", p.name, p.cmd.ProcessState)
			}
			output.Lock()
			fmt.Printf("%-13s| ended: %s\n", p.name, p.cmd.ProcessState)
			output.Unlock()
		}
	}
}

// stop ends all processes: brokers first, all of them at one time, then controllers, then the S3 server.
func (c *cluster) stop() error {
	var errs []error
	for _, kind := range []string{"broker", "contro", "s3"} {
		var these []*process
		for _, p := range c.processes {
			if p.name[:min(len(p.name), 6)] == kind && p.running() {
				these = append(these, p)
				errs = append(errs, p.cmd.Process.Signal(syscall.SIGTERM))
			}
		}
		limit := time.After(stopIn)
		for _, p := range these {
			select {
			case <-p.done:
			case <-limit:
				errs = append(errs, fmt.Errorf("%s does not stop; killing it", p.name), p.cmd.Process.Kill())
				<-p.done
			}
		}
	}
	return errors.Join(errs...)
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}
