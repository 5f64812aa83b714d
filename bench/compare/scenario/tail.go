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
	register(Scenario{Name: report.ScenarioTail, About: "producers at a fixed rate, consumers at the end: what a GB delivered costs", Short: true, Order: 20, Run: tail})
}

// tailRate is what is written, in records of 1 KiB a second. At twice as much Kafka needed all of one processor, and fell behind: its figures were those of larger
// batches then, and compared two different things.
const tailRate = 10_000

// tail counts the broker's cost by what was delivered; with fan-out 1 much of it is that of taking the records.
func tail(ctx context.Context, b *Bench) error {
	for _, fanOut := range []int{1, 4} {
		if b.Short && fanOut == 1 {
			continue
		}
		c := Case{
			Scenario: report.ScenarioTail, Name: fmt.Sprintf("fan-out %d, 1 KiB, 16 partitions, 10 MiB/s written", fanOut), With: Plain(system.PageCache),
			Run: func(ctx context.Context, p *Piece) error { return tailPiece(ctx, p, fanOut) },
		}
		if err := b.Compare(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func tailPiece(ctx context.Context, p *Piece, fanOut int) error {
	j := streaming("bench", p)
	j.Produce.Rate, j.Consume.FanOut = tailRate, fanOut
	m, err := p.Load(ctx, j)
	if err != nil {
		return err
	}
	f := m.figures(m.Consumed)
	err = f.latency(m.EndToEnd)
	p.Report(f)
	return err
}

// streaming is what the scenarios share that produce and consume at the same time: 1 KiB to 16 partitions, acks=all, two producers and two
// consumers; a closed loop without a rate.
func streaming(topic string, p *Piece) load.Job {
	return load.Job{
		Topic: load.Topic{Name: topic, Partitions: 16}, Create: true,
		Produce: &load.Produce{
			Producers: 2, Record: 1 << 10,
			Options: load.ProducerOptions{Acks: -1, Linger: time.Millisecond, BatchBytes: 1_000_000, Buffered: 16 << 10},
		},
		Consume: &load.Consume{FanOut: 1, Consumers: 2},
		Warm:    p.Bench.Warm, Run: p.Bench.Run,
	}
}
