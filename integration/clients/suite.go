package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// patience is how long one command of a client may take.
const patience = time.Minute

// suite counts and prints.
type suite struct {
	out            io.Writer
	root, temp     string
	run            string // prefix of all topic names
	passed, failed int
	written        map[string][]string // topics by client
}

func (s *suite) wrote(client, topic string) {
	if s.written == nil {
		s.written = make(map[string][]string)
	}
	s.written[client] = append(s.written[client], topic)
}

func (s *suite) fail(what string, err error) {
	s.failed++
	fmt.Fprintf(s.out, "FAIL %s: %s\n", what, strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
}

// check runs one case and prints its line.
func (s *suite) check(what string, f func() error) {
	if err := f(); err != nil {
		s.fail(what, err)
		return
	}
	s.passed++
	fmt.Fprintf(s.out, "ok %s\n", what)
}

// command runs a program that prints ok and FAIL lines itself, and counts them. A program that
// ends badly without a FAIL line, or without any line, is a failed case.
func (s *suite) command(ctx context.Context, what, name string, args, env []string) {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr tail
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.fail(what, err)
		return
	}
	ok, bad := 0, 0
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "ok "):
			ok++
		case strings.HasPrefix(line, "FAIL "):
			bad++
		default:
			line = "# " + line
		}
		fmt.Fprintln(s.out, line)
	}
	err = errors.Join(lines.Err(), cmd.Wait())
	s.passed, s.failed = s.passed+ok, s.failed+bad
	switch {
	case bad > 0:
	case err != nil:
		s.fail(what, fmt.Errorf("%w: %s", err, stderr.String()))
	case ok == 0:
		s.fail(what, errors.New("it printed no case"))
	}
}

// output runs a command with an input and returns what it printed. The error carries the end
// of its standard error.
func output(ctx context.Context, input, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	var stderr tail
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return out.String(), fmt.Errorf("%s: %w: %s", filepath.Base(name), err, stderr.String())
	}
	return out.String(), nil
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

const tailBytes = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	return strings.TrimSpace(string(t.b[max(0, len(t.b)-tailBytes):]))
}

// findRoot returns the folder of the broker's module, from where the suite was started or above.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/tierbroker/tierbroker\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not within the tierbroker repository")
		}
		dir = filepath.Dir(dir)
	}
}
