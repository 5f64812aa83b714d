package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tierbroker/tierbroker/bench/compare/account"
	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

// Piece is one system's turn in a case.
type Piece struct {
	Bench   *Bench
	System  system.System
	Case    Case
	Turn    int // from 1
	Place   system.Place
	Running *system.Running // nil when the piece ended it

	done  func() error
	mu    sync.Mutex
	loads int
}

// Figures are what a piece found.
type Figures struct {
	Values  map[string]float64
	Latency []report.Quantile
}

// Report hands figures over, under the case's name.
func (p *Piece) Report(f Figures) { p.ReportAs(p.Case.Name, f) }

// ReportAs hands figures over under another name than the case's: one piece may fill several lines.
func (p *Piece) ReportAs(name string, f Figures) {
	p.Bench.Report(report.Result{Scenario: p.Case.Scenario, Case: name, System: p.System.Name, Turn: p.Turn, Values: f.Values, Latency: f.Latency})
}

// Fail says why there are no figures under a name, when the piece goes on.
func (p *Piece) Fail(name string, err error) {
	p.Bench.Report(report.Result{Scenario: p.Case.Scenario, Case: name, System: p.System.Name, Turn: p.Turn, Error: err.Error()})
}

// Start runs the broker over the piece's directory, as it is.
func (p *Piece) Start(ctx context.Context) (err error) {
	p.Running, err = p.System.Start(ctx, p.Place)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return nil
}

// Stop ends the broker in an orderly way, Kill with SIGKILL. Start brings it back over the same data.
func (p *Piece) Stop(ctx context.Context) error {
	r := p.Running
	p.Running = nil
	return r.Stop(ctx)
}

// Kill ends the broker with SIGKILL.
func (p *Piece) Kill() error {
	r := p.Running
	p.Running = nil
	return r.Kill()
}

// Measured is what a load's clients saw, and what the broker used in the same window.
type Measured struct {
	load.Outcome
	Broker        account.Cost
	PeakAnonymous int64 // highest anonymous resident bytes of the broker in the window
}

// Load drives the broker in a process of its own and measures both. Several may run at once; each has the broker's whole account.
// Protocol, Address and the system's settings of topics are filled in here.
func (p *Piece) Load(ctx context.Context, j load.Job) (m Measured, err error) {
	j.Protocol, j.Address = p.System.Protocol, p.Running.Address
	configs := maps.Clone(p.System.TopicConfigs)
	if configs == nil {
		configs = map[string]string{}
	}
	maps.Copy(configs, j.Topic.Configs)
	j.Topic.Configs = configs
	p.mu.Lock()
	p.loads++
	w := load.Worker{CPUs: p.Bench.LoadCPUs, Log: fmt.Sprintf("%s.load-%d.log", p.Place.Dir, p.loads)}
	p.mu.Unlock()

	in := &window{broker: p.Running}
	m.Outcome, err = w.Do(ctx, j, in.mark)
	in.close()
	if err == nil && in.err != nil {
		err = fmt.Errorf("account of the broker: %w", in.err)
	}
	m.Broker, m.PeakAnonymous = in.end.Since(in.begin), in.peak
	return m, err
}

// window takes the broker's account at its begin and end.
type window struct {
	broker     *system.Running
	begin, end account.Account
	watch      *account.Watch
	peak       int64
	err        error
}

func (w *window) mark(m load.Mark) {
	pids := w.broker.PIDs()
	var err error
	if m == load.Begin {
		w.err = account.ResetPeak(pids)
		w.begin, err = account.Take(pids)
		w.watch = account.WatchAnonymous(func() []int { return pids }) // listing them anew each time costs too much
	} else {
		w.end, err = account.Take(pids)
		w.close()
	}
	w.err = errors.Join(w.err, err)
}

// close ends the watch, also when the load failed within its window.
func (w *window) close() {
	if w.watch == nil {
		return
	}
	var err error
	w.peak, err = w.watch.Stop()
	w.watch, w.err = nil, errors.Join(w.err, err)
}

// Fill creates a topic and writes that many bytes of values in records of 1 KiB, all of them acknowledged; it tells how many records there are.
func (p *Piece) Fill(ctx context.Context, t load.Topic, bytes int64) (records int64, err error) {
	m, err := p.Load(ctx, load.Job{
		Topic: t, Create: true,
		Produce: &load.Produce{
			Producers: 2, Record: 1 << 10, Run: stay >> 10, Bytes: bytes,
			Options: load.ProducerOptions{Acks: -1, Linger: 5 * time.Millisecond, BatchBytes: 1_000_000, Buffered: 16 << 10},
		},
		Limit: time.Minute + time.Duration(bytes/slowest)*time.Second,
	})
	return m.Produced.Records, err
}

// slowest is the rate in bytes per second below which a system is taken to hang.
const slowest = 4 << 20

// end stops what still runs and removes every trace.
func (p *Piece) end() error {
	var errs []error
	if p.Running != nil {
		errs = append(errs, p.Kill())
	}
	if p.done != nil {
		errs = append(errs, p.done())
	}
	return errors.Join(append(errs, p.Bench.clean(p.Place.Dir))...)
}

// fresh leaves a directory's place empty, and the disk with nothing to do.
func (b *Bench) fresh(dir string) error {
	if err := errors.Join(b.clean(dir), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil {
		return err
	}
	unix.Sync()
	if b.Fill != nil {
		if err := b.Fill(); err != nil {
			return fmt.Errorf("fill memory: %w", err)
		}
	}
	time.Sleep(settle)
	return nil
}

// settle is for what goes on after a sync: the file system's own housekeeping, exited processes' memory.
const settle = 300 * time.Millisecond

// clean removes a data directory and the logs beside it.
func (b *Bench) clean(dir string) error {
	logs, err := filepath.Glob(dir + ".*")
	errs := []error{err, os.RemoveAll(dir)}
	for _, path := range logs {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}
