// Package scenario holds what is measured, a file for each scenario: phases of load against systems by turns.
//
// A file registers its Scenario from init. Its Run calls Bench.Compare for each case, with a function that is called once for each
// system and turn, with a broker that was started over a fresh directory. That function drives load through Piece.Load, which
// runs in a process of its own and comes back with what the clients saw and what the broker's processes used in the same window,
// and hands figures to Piece.Report.
//
// What Compare sees to: who goes first rotates; data is removed when a piece is done and dirty pages are written back before the next
// one; a piece has a time limit; a system that fails has its error in the report, and the run goes on.
package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

// Scenario is one question that the comparison answers.
type Scenario struct {
	Name  string // as in -scenarios and reports: "produce", "cold-replay"
	About string // a line for -list
	Short bool   // part of the short form, which may take about a minute for each scenario
	Order int    // place in a run; cheap and telling ones first
	Run   func(ctx context.Context, b *Bench) error
}

var registered []Scenario

// register announces a scenario; each file calls it from its init.
func register(s Scenario) { registered = append(registered, s) }

// All lists the scenarios in the order of a run.
func All() []Scenario {
	list := slices.Clone(registered)
	slices.SortFunc(list, func(a, b Scenario) int { return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name)) })
	return list
}

// Choose picks scenarios by name, with commas in between; "" and "all" are all, of which the short form leaves some out.
func Choose(names string, short bool) ([]Scenario, error) {
	var chosen []Scenario
	if names == "" || names == "all" {
		for _, s := range All() {
			if s.Short || !short {
				chosen = append(chosen, s)
			}
		}
		return chosen, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(registered, func(s Scenario) bool { return s.Name == name })
		if i < 0 {
			var known []string
			for _, s := range All() {
				known = append(known, s.Name)
			}
			return nil, fmt.Errorf("no scenario %q; there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, registered[i])
	}
	return chosen, nil
}

// Bench is one run of the comparison.
type Bench struct {
	Systems []system.System // who takes part, installed
	Turns   int
	Short   bool
	Dir     string // scratch directory, on the file system that is measured
	// Processors of the brokers and of the load; nil for all.
	BrokerCPUs, LoadCPUs []int
	// Warm comes before each measured window, Run is its length.
	Warm, Run time.Duration
	// Fill takes free memory before each piece: what an earlier one left behind must not decide how much of it is new to the machine. May be nil.
	Fill   func() error
	Report func(report.Result)
	Say    func(format string, args ...any) // a line of progress
}

// Sides splits the machine's processors into those of the brokers and those of the load: one half each, or the same for a machine with one.
func Sides() (broker, load []int) {
	n := runtime.NumCPU()
	for i := range n {
		if i < (n+1)/2 {
			broker = append(broker, i)
		} else {
			load = append(load, i)
		}
	}
	if len(load) == 0 {
		load = broker
	}
	return broker, load
}

// Case is one line of a table: what those who are compared do alike.
type Case struct {
	Scenario, Name string
	// With tells who takes part; nil for all. Only systems of equal durability belong into one table.
	With func(system.System) bool
	// Limit of one piece, from the start of the broker to its end; 0 for the measured time and three minutes.
	Limit time.Duration
	// Place prepares where the broker runs (a bucket, settings); what it returns is called when the broker is gone. May be nil.
	Place func(ctx context.Context, p *Piece) (done func() error, err error)
	// Run is the piece. The broker runs when it begins, and is ended after it if it still does.
	Run func(ctx context.Context, p *Piece) error
}

// Of tells whether a system has one of the durabilities.
func Of(d ...system.Durability) func(system.System) bool {
	return func(s system.System) bool { return slices.Contains(d, s.Durability) }
}

// Plain is Of without systems that are there for their tiering alone and are another system beside that.
func Plain(d ...system.Durability) func(system.System) bool {
	of := Of(d...)
	return func(s system.System) bool { return of(s) && !strings.HasSuffix(s.Name, "-tiered") }
}

// Compare lets each system do the case, turn by turn. Only the end of ctx is an error.
func (b *Bench) Compare(ctx context.Context, c Case) error {
	var systems []system.System
	for _, s := range b.Systems {
		if c.With == nil || c.With(s) {
			systems = append(systems, s)
		}
	}
	for turn := range b.Turns {
		for i := range systems {
			s := systems[(turn+i)%len(systems)]
			p := &Piece{Bench: b, System: s, Case: c, Turn: turn + 1}
			p.Place = system.Place{Dir: filepath.Join(b.Dir, fmt.Sprintf("%s-%s-%d", c.Scenario, s.Name, turn+1)), CPUs: b.BrokerCPUs}
			began := time.Now()
			err := b.piece(ctx, p)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				b.Report(report.Result{Scenario: c.Scenario, Case: c.Name, System: s.Name, Turn: p.Turn, Error: err.Error()})
			}
			b.Say("%s, %s: %s, turn %d took %.1f s", c.Scenario, c.Name, s.Name, p.Turn, time.Since(began).Seconds())
		}
	}
	return nil
}

// Overhead of a piece: starting, creating topics, ending.
const overhead = 3 * time.Minute

func (b *Bench) piece(ctx context.Context, p *Piece) (err error) {
	limit := cmp.Or(p.Case.Limit, b.Warm+b.Run+overhead)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
		err = errors.Join(err, p.end())
	}()
	if err := b.fresh(p.Place.Dir); err != nil {
		return err
	}
	if p.Case.Place != nil {
		if p.done, err = p.Case.Place(ctx, p); err != nil {
			return err
		}
	}
	if err := p.Start(ctx); err != nil {
		return err
	}
	return p.Case.Run(ctx, p)
}
