package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

func init() {
	register(Scenario{Name: report.ScenarioProduce, About: "closed loop: how fast, and at what cost, records are taken", Short: true, Order: 10, Run: produce})
}

// produced is one case: what the records are like, and where they go.
type produced struct {
	record, partitions, acks int
	short                    bool
	large                    bool // batches as large as clients are allowed to make them, so that how many there are depends on the number of partitions
}

var producedCases = []produced{
	{record: 1 << 10, partitions: 16, acks: -1, short: true}, {record: 1 << 10, partitions: 10_000, acks: -1, short: true},
	{record: 1 << 10, partitions: 16, acks: -1, large: true},
	{record: 100, partitions: 16, acks: -1}, {record: 64 << 10, partitions: 16, acks: -1}, {record: 1 << 10, partitions: 1, acks: -1},
	{record: 1 << 10, partitions: 1_000, acks: -1}, {record: 1 << 10, partitions: 16, acks: 1},
}

func (c produced) String() string {
	size, acks := fmt.Sprintf("%d B", c.record), "all"
	if c.record >= 1<<10 {
		size = fmt.Sprintf("%d KiB", c.record>>10)
	}
	if c.acks == 1 {
		acks = "1"
	}
	if c.large {
		acks += ", batches up to 1 MB"
	}
	return fmt.Sprintf("%s, %s partitions, acks=%s", size, thousands(c.partitions), acks)
}

// batchBytes has room for what a partition gets before the next one's turn, and for no more: the same batches for sixteen partitions and for ten thousand.
func (c produced) batchBytes() int {
	if c.large {
		return 1_000_000
	}
	return stay + stay/8 + c.record
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// stay is what producers give to a partition before the next one's turn: a full batch of the usual size, as partitioners do.
const stay = 64 << 10

// produce is measured at the page cache, where nothing waits for the disk; and with fsync for each acknowledgement.
func produce(ctx context.Context, b *Bench) error {
	for _, c := range producedCases {
		if b.Short && !c.short {
			continue
		}
		if err := b.Compare(ctx, Case{Scenario: report.ScenarioProduce, Name: c.String(), With: Plain(system.PageCache), Run: c.run}); err != nil {
			return err
		}
	}
	for _, c := range producedCases[:2] {
		if b.Short && c.partitions > 16 {
			continue
		}
		err := b.Compare(ctx, Case{Scenario: report.ScenarioProduce, Name: c.String() + ", requests made beforehand", With: premadeSystems, Run: c.premade})
		if err != nil {
			return err
		}
	}
	const name = "fsync, 1 KiB, 16 partitions, 16 producers, each waits for its ack"
	return b.Compare(ctx, Case{Scenario: report.ScenarioProduce, Name: name, With: Of(system.Fsync), Run: groupCommit})
}

func (c produced) run(ctx context.Context, p *Piece) error {
	m, err := p.Load(ctx, load.Job{
		Topic: load.Topic{Name: "bench", Partitions: c.partitions}, Create: true,
		Produce: &load.Produce{
			Producers: 2, Record: c.record, Run: max(1, stay/c.record),
			Options: load.ProducerOptions{Acks: c.acks, Linger: 5 * time.Millisecond, BatchBytes: c.batchBytes(), Buffered: max(256, 16<<20/c.record)},
		},
		Warm: p.Bench.Warm, Run: p.Bench.Run,
	})
	if err != nil {
		return err
	}
	f := m.figures(m.Produced)
	err = f.latency(m.Ack)
	f.Latency = nil // a closed loop's times say how much it buffers
	p.Report(f)
	return err
}

func premadeSystems(s system.System) bool {
	return s.Protocol == load.Kafka && Plain(system.PageCache)(s)
}

// premade leaves the client's work out: a library that makes and checks every record costs more than some brokers.
func (c produced) premade(ctx context.Context, p *Piece) error {
	m, err := p.Load(ctx, load.Job{
		Topic: load.Topic{Name: "bench", Partitions: c.partitions}, Create: true,
		Produce: &load.Produce{Producers: 2, Record: c.record, Premade: true, Options: load.ProducerOptions{Acks: c.acks, BatchBytes: stay}},
		Warm:    p.Bench.Warm, Run: p.Bench.Run,
	})
	if err != nil {
		return err
	}
	p.Report(m.figures(m.Produced))
	return nil
}

// groupCommit has one record under way for each producer: only what the broker gathers into one fsync makes it fast.
func groupCommit(ctx context.Context, p *Piece) error {
	m, err := p.Load(ctx, load.Job{
		Topic: load.Topic{Name: "bench", Partitions: 16}, Create: true,
		Produce: &load.Produce{Producers: 16, Record: 1 << 10, Options: load.ProducerOptions{Acks: -1}, OneInFlight: true},
		Warm:    p.Bench.Warm, Run: p.Bench.Run,
	})
	if err != nil {
		return err
	}
	f := m.figures(m.Produced)
	err = f.latency(m.Ack)
	p.Report(f)
	return err
}
