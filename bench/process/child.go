package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command says what to run, and where.
type Command struct {
	Path      string
	Args, Env []string // Env is added to this process's environment
	Dir       string   // working directory; "" for this process's
	Log       string   // file for what it writes; made anew
	CPUs      []int    // processors that every thread of it is pinned to; nil for all
}

// Child is a process that was started here, with all that it started itself. It ends with this process, even when
// this process is killed.
type Child struct {
	PID int

	cmd    *exec.Cmd
	exited chan struct{}
	log    *os.File
}

// Launch starts a process in a process group of its own.
func Launch(c Command) (*Child, error) {
	log, err := os.Create(c.Log)
	if err != nil {
		return nil, err
	}
	p := &Child{cmd: exec.Command(c.Path, c.Args...), exited: make(chan struct{}), log: log}
	p.cmd.Dir, p.cmd.Env = c.Dir, append(os.Environ(), c.Env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := StartOn(p.cmd, c.CPUs); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	p.PID = p.cmd.Process.Pid
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.exited)
	}()
	return p, nil
}

// StartOn starts a command whose threads may only run on the processors given; nil leaves them all. The first thread has
// the restriction before the program begins, so a Go or Java program counts its processors accordingly.
func StartOn(cmd *exec.Cmd, cpus []int) error {
	if len(cpus) == 0 {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return err
	}
	for _, n := range cpus {
		set.Set(n)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin to processors %v: %w", cpus, err)
	}
	return errors.Join(cmd.Start(), unix.SchedSetaffinity(0, &old))
}

// Exited is closed when the process is gone.
func (p *Child) Exited() <-chan struct{} { return p.exited }

// Ended is the error of a process that should not have ended: its state, and the end of what it wrote.
func (p *Child) Ended() error {
	const most = 4 << 10
	text, err := os.ReadFile(p.log.Name())
	return errors.Join(fmt.Errorf("%s ended: %s\n%s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, text[max(0, len(text)-most):]), err)
}

// Stop asks the process to end and waits until it has; when ctx ends first, it is killed.
func (p *Child) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.Kill())
	}
	return p.close()
}

// Kill ends the process and all of its group at once, and waits until it is gone.
func (p *Child) Kill() error {
	err := syscall.Kill(-p.PID, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		err = nil
	}
	<-p.exited
	return errors.Join(err, p.close())
}

func (p *Child) close() error {
	if err := p.log.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// PIDs lists the process and what descends from it now.
func (p *Child) PIDs() []int {
	parents := map[int]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // gone in between
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 1 {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))) // the pattern asks for digits
			parents[pid], _ = strconv.Atoi(f[1])                      // the kernel writes numbers
		}
	}
	found := []int{p.PID}
	for i := 0; i < len(found); i++ {
		for pid, parent := range parents {
			if parent == found[i] && !slices.Contains(found, pid) {
				found = append(found, pid)
			}
		}
	}
	return found
}
