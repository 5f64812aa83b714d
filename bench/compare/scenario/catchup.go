package scenario

import (
	"context"
	"fmt"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

func init() {
	register(Scenario{Name: "catchup", About: "hot catch-up: consumers read from the start what was just written", Short: true, Order: 40, Run: catchup})
}

// What is written and read again: it stays in the page cache.
const (
	catchupShort = 256 << 20
	catchupFull  = 2 << 30
)

func catchup(ctx context.Context, b *Bench) error {
	return b.Compare(ctx, Case{Scenario: "catchup", Name: "fill", With: Plain(system.PageCache), Run: catchupPiece})
}

func catchupPiece(ctx context.Context, p *Piece) error {
	size := int64(catchupFull)
	if p.Bench.Short {
		size = catchupShort
	}
	t := load.Topic{Name: "bench", Partitions: 16}
	records, err := p.Fill(ctx, t, size)
	if err != nil {
		return err
	}
	for _, consumers := range []int{1, 8} {
		if p.Bench.Short && consumers > 1 {
			continue
		}
		m, err := p.Load(ctx, load.Job{
			Topic:   t,
			Consume: &load.Consume{FanOut: 1, Consumers: consumers, Options: load.ConsumerOptions{FromStart: true}, Records: records},
		})
		if err != nil {
			return err
		}
		p.ReportAs(fmt.Sprintf("%d MiB, 1 KiB, 16 partitions, %s", size>>20, plural(consumers, "consumer")), m.figures(m.Consumed))
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
