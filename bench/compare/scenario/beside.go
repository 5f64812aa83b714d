package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

func init() {
	register(Scenario{Name: report.ScenarioBeside, About: "produce at a fixed rate while others replay cold: the time until an acknowledgement", Short: true, Order: 55, Run: beside})
}

// Sides of the comparison. A replay costs the machine processor time wherever it is served: on a machine of few processors the producer
// feels that, too. A replay from another broker of the same kind, on the same processors, tells it from what a broker does to its own.
const (
	besideAlone = "alone"
	besideThere = "8 consumers replay from a broker beside it"
	besideHere  = "8 consumers replay from the same broker"
)

const (
	besideRate       = 5_000 // records a second: what a small part of one processor does
	besidePartitions = 16
	besideConsumers  = 8
)

// beside has two brokers, both with an archive, and one that is written to.
func beside(ctx context.Context, b *Bench) error {
	for _, s := range b.Systems {
		if !s.Tiered || s.Durability != system.PageCache {
			continue
		}
		if err := b.besideOf(ctx, s); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			b.failed(report.ScenarioBeside, besideAlone, s.Name, 1, err)
		}
	}
	return nil
}

func (b *Bench) besideOf(ctx context.Context, s system.System) (err error) {
	ctx, cancel := context.WithTimeout(ctx, heldLimit)
	defer cancel()
	bytes := int64(1024 * mib)
	if b.Short {
		bytes = 384 * mib // more than is kept in memory
	}
	var here, there *held
	for i, h := range []**held{&here, &there} {
		if *h, err = b.hold(ctx, report.ScenarioBeside, fmt.Sprintf("-%d", i+1), s); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, (*h).end()) }()
		if err := (*h).fill(ctx, load.Topic{Name: "cold", Partitions: besidePartitions}, bytes); err != nil {
			return err
		}
	}
	work := load.Topic{Name: "work", Partitions: besidePartitions}
	if _, err := here.Load(ctx, load.Job{Topic: work, Create: true}); err != nil {
		return err
	}
	sides := []struct {
		name   string
		replay *held
	}{{besideAlone, nil}, {besideThere, there}, {besideHere, here}}
	for turn := range b.Turns {
		here.Turn = turn + 1
		for i := range sides {
			side := sides[(turn+i)%len(sides)]
			if err := here.besides(ctx, work, side.name, side.replay); err != nil {
				return err
			}
		}
	}
	return nil
}

// besides produces and measures while the other one replays again and again.
func (h *held) besides(ctx context.Context, work load.Topic, name string, other *held) error {
	replays, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var read load.Outcome
	var replayErr error
	began := time.Now()
	if other != nil {
		wg.Go(func() {
			for replays.Err() == nil {
				m, err := other.replay(replays, other.topics[0], 1, besideConsumers)
				if err != nil {
					if replays.Err() == nil {
						replayErr = err
					}
					return
				}
				read.Consumed.Bytes += m.Consumed.Bytes
				read.Seconds = time.Since(began).Seconds()
			}
		})
	}
	m, err := h.Load(ctx, load.Job{
		Topic: work, Warm: h.Bench.Warm, Run: h.Bench.Run,
		Produce: &load.Produce{Producers: 4, Record: heldRecord, Rate: besideRate, Options: load.ProducerOptions{Acks: -1, BatchBytes: 1_000_000, Buffered: 16 << 10}},
	})
	stop()
	wg.Wait()
	if err := errors.Join(err, replayErr); err != nil {
		return err
	}
	f := Figures{Values: map[string]float64{report.Rate: m.MBps(m.Produced), BrokerUse: m.Broker.CPU().Seconds() / m.Broker.Wall.Seconds()}}
	if read.Seconds > 0 {
		f.Values["replayed MB/s"] = read.MBps(read.Consumed)
	}
	if err := f.latency(m.Ack); err != nil {
		return err
	}
	h.ReportAs(name, f)
	return nil
}
