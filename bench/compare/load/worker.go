package load

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/tierbroker/tierbroker/bench/process"
)

// WorkerArg is the argument that makes the program a worker: main calls Work when it is there.
const WorkerArg = "load-worker"

// Worker runs jobs in processes of their own, so that a broker's clients never share a runtime with what starts and watches it, and
// their processor time is known, too.
type Worker struct {
	CPUs []int
	Log  string // file for what it writes to stderr

	grace time.Duration // beyond the limit, after which a process is killed that can't end itself; 0 for 10 s
}

// longest is what a job may take beyond its window when it says nothing else.
const longest = 2 * time.Minute

// Do runs a job. onMark is called as the window begins and ends, while the load goes on.
func (w Worker) Do(ctx context.Context, j Job, onMark func(Mark)) (o Outcome, err error) {
	if j.Limit == 0 {
		j.Limit = j.Warm + j.Run + longest
	}
	if err := j.check(); err != nil {
		return o, err
	}
	program, err := os.Executable()
	if err != nil {
		return o, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return o, err
	}
	log, err := os.Create(w.Log)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()

	// The worker ends itself at its limit; this one is for a worker that can't.
	ctx, cancel := context.WithTimeoutCause(ctx, j.Limit+cmp.Or(w.grace, 10*time.Second), errors.New("the load did not end at its limit"))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, WorkerArg)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(text)), log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return o, err
	}
	if err := process.StartOn(cmd, w.CPUs); err != nil {
		return o, err
	}
	said, readErr := read(out, &o, onMark)
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return o, context.Cause(ctx)
	case err != nil || readErr != nil || !said:
		text, lerr := os.ReadFile(w.Log)
		return o, errors.Join(fmt.Errorf("load: %w\n%s", errors.Join(err, readErr), text[max(0, len(text)-4096):]), lerr)
	case o.Error != "":
		return o, errors.New("load: " + o.Error)
	}
	return o, nil
}

// read takes a worker's lines: marks, and its outcome at last.
func read(out io.Reader, o *Outcome, onMark func(Mark)) (said bool, err error) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return said, nil
		}
		if err != nil {
			return said, err
		}
		switch m := Mark(strings.TrimSpace(string(line))); m {
		case Begin, End:
			onMark(m)
		default:
			if err := json.Unmarshal(line, o); err != nil {
				return said, fmt.Errorf("a worker said %.100q: %w", line, err)
			}
			said = true
		}
	}
}

// Work is the other side of Do: it does the job that stands on in, and tells out of it.
func Work(in io.Reader, out io.Writer) error {
	var j Job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), j.Limit, fmt.Errorf("not done within %v", j.Limit))
	defer cancel()
	var markErr error
	o, err := do(ctx, j, func(m Mark) {
		_, werr := fmt.Fprintln(out, m)
		markErr = errors.Join(markErr, werr)
	})
	if err != nil {
		o.Error = err.Error()
	}
	return errors.Join(markErr, json.NewEncoder(out).Encode(o))
}
