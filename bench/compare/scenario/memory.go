package scenario

import (
	"context"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/account"
	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

func init() {
	register(Scenario{Name: report.ScenarioMemory, About: "resident memory: fresh and idle, and with 10,000 partitions under load", Short: true, Order: 80, Run: memory})
}

// idleFor is long enough for what a start leaves to be done.
const idleFor = 3 * time.Second

// memory counts what is resident, pages of mapped files too, and beside it what is a process's alone. A Java heap is as large as it was told to be.
func memory(ctx context.Context, b *Bench) error {
	once := *b
	once.Turns = 1
	if err := once.Compare(ctx, Case{Scenario: report.ScenarioMemory, Name: "fresh, idle", With: Of(system.PageCache), Run: func(ctx context.Context, p *Piece) error {
		return p.idle(ctx, "fresh, idle")
	}}); err != nil {
		return err
	}
	const many = 10_000
	name := thousands(many) + " partitions, 1 KiB, produced as fast as it goes"
	kafkas := func(s system.System) bool { return s.Durability == system.PageCache && s.Protocol == load.Kafka }
	return once.Compare(ctx, Case{Scenario: report.ScenarioMemory, Name: name, With: kafkas, Limit: heldLimit, Run: func(ctx context.Context, p *Piece) error {
		m, err := p.Load(ctx, load.Job{
			Topic: load.Topic{Name: "memory", Partitions: many}, Create: true, Limit: loadLimit,
			Produce: &load.Produce{Producers: 2, Record: heldRecord, Run: stay / heldRecord,
				Options: load.ProducerOptions{Acks: -1, Linger: 5 * time.Millisecond, BatchBytes: 1_000_000, Buffered: 16 << 10}},
			Warm: p.Bench.Warm, Run: p.Bench.Run,
		})
		if err != nil {
			return err
		}
		p.Report(m.figures(m.Produced))
		return p.idle(ctx, thousands(many)+" partitions, idle after that")
	}})
}

// idle looks at a broker that has had nothing to do for a while.
func (p *Piece) idle(ctx context.Context, name string) error {
	select {
	case <-time.After(idleFor):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	a, err := account.Take(p.Running.PIDs())
	if err != nil {
		return err
	}
	p.ReportAs(name, Figures{Values: map[string]float64{
		report.IdleMemory: float64(a.Anonymous+a.File) / mib, "idle anonymous MiB": float64(a.Anonymous) / mib,
	}})
	return nil
}
