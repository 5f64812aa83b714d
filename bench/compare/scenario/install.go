package scenario

import (
	"cmp"
	"context"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

// Defaults fills in what was left at zero: the short form's lengths, or the full one's. A Java program on one processor needs the time before the
// window to compile itself.
func (b *Bench) Defaults() {
	if b.Short {
		b.Turns, b.Warm, b.Run = cmp.Or(b.Turns, 1), cmp.Or(b.Warm, 6*time.Second), cmp.Or(b.Run, 5*time.Second)
		return
	}
	b.Turns, b.Warm, b.Run = cmp.Or(b.Turns, 3), cmp.Or(b.Warm, 15*time.Second), cmp.Or(b.Run, 20*time.Second)
}

// Install fetches or builds what the systems need. One that can't be had is left out of the run, with its error in the report.
func (b *Bench) Install(ctx context.Context) {
	var ready []system.System
	for _, s := range b.Systems {
		if s.Install != nil {
			if err := s.Install(ctx, func(line string) { b.Say("%s: %s", s.Name, line) }); err != nil {
				b.Report(report.Result{Scenario: "install", Case: "install", System: s.Name, Turn: 1, Error: err.Error()})
				continue
			}
		}
		ready = append(ready, s)
	}
	b.Systems = ready
}
