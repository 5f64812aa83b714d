package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// progress is a bar on standard error, drawn only when that is a terminal and at
// most ten times a second. Its methods may be called from any goroutine.
type progress struct {
	mu    sync.Mutex
	w     io.Writer // nil: draw nothing
	what  string
	total int64 // 0: unknown
	done  int64
	show  func(int64) string
	began time.Time
	drawn time.Time
}

// newProgress starts a bar. show renders amounts, such as size.
func newProgress(what string, total int64, show func(int64) string) *progress {
	p := &progress{what: what, total: total, show: show, began: time.Now()}
	if isTerminal(os.Stderr) {
		p.w = os.Stderr
	}
	return p
}

// isTerminal tells whether a person looks at f.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(p.done + n)
}

// at moves the bar to an absolute amount.
func (p *progress) at(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(n)
}

func (p *progress) set(n int64) {
	p.done = n
	if p.w == nil || time.Since(p.drawn) < 100*time.Millisecond {
		return
	}
	p.drawn = time.Now()
	p.draw()
}

func (p *progress) draw() {
	const width = 24
	line := fmt.Sprintf("%s  %s", p.what, p.show(p.done))
	seconds := time.Since(p.began).Seconds()
	if p.total > 0 {
		part := min(float64(p.done)/float64(p.total), 1)
		full := int(part * width)
		line = fmt.Sprintf("%s  [%s%s] %3.0f %%  %s of %s", p.what, strings.Repeat("=", full), strings.Repeat(" ", width-full), part*100,
			p.show(p.done), p.show(p.total))
		if part > 0.01 && part < 1 {
			left := time.Duration(seconds * (1/part - 1) * float64(time.Second))
			line += "  " + left.Round(time.Second).String() + " left"
		}
	} else if seconds > 0.5 {
		line += fmt.Sprintf("  %s/s", p.show(int64(float64(p.done)/seconds)))
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
}

// finish removes the bar.
func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w != nil && !p.drawn.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.w = nil
}
