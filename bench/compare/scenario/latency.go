package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

func init() {
	register(Scenario{Name: report.ScenarioLatency, About: "end-to-end latency at shares of the slower system's peak, open loop", Short: true, Order: 30, Run: latency})
}

// latency finds each system's peak with producers and consumers on, then lets all of them carry shares of the slower one's: of Kafka and
// tierbroker where both take part, whom the aim is about, else of all. A system whose own peak is below a share's rate has that for a figure.
func latency(ctx context.Context, b *Bench) error {
	peaks := &peaks{of: map[string]float64{}}
	with := Plain(system.PageCache)
	err := b.Compare(ctx, Case{Scenario: report.ScenarioLatency, Name: "peak, 1 KiB, 16 partitions, closed loop", With: with, Run: peaks.find})
	if err != nil {
		return err
	}
	slower := peaks.slower()
	if slower == 0 {
		return nil // every system has its error in the report
	}
	shares := []int{30, 60, 90}
	if b.Short {
		shares = shares[1:2]
	}
	c := Case{
		Scenario: report.ScenarioLatency, Name: "shares", With: with, Limit: time.Duration(len(shares))*(b.Warm+b.Run+drainTime) + overhead,
		Run: func(ctx context.Context, p *Piece) error {
			for _, share := range shares {
				if err := peaks.carry(ctx, p, share, slower); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return b.Compare(ctx, c)
}

// drainTime is what an open loop may take beyond its window.
const drainTime = 15 * time.Second

// peaks are records per second that systems carried end to end; of several turns the best.
type peaks struct {
	mu sync.Mutex
	of map[string]float64
}

func (s *peaks) find(ctx context.Context, p *Piece) error {
	m, err := p.Load(ctx, streaming("peak", p))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	carried := float64(min(m.Produced.Records, m.Consumed.Records)) / m.Seconds
	s.of[p.System.Name] = max(s.of[p.System.Name], carried)
	p.Report(m.figures(m.Consumed))
	return nil
}

func (s *peaks) slower() (least float64) {
	kafka, tier := s.of["kafka"], s.of["tierbroker-async"]
	if kafka > 0 && tier > 0 {
		return min(kafka, tier)
	}
	for _, peak := range s.of {
		if least == 0 || peak < least {
			least = peak
		}
	}
	return least
}

func (s *peaks) carry(ctx context.Context, p *Piece, share int, slower float64) error {
	rate := slower * float64(share) / 100
	name := fmt.Sprintf("%d %% of the slower system's peak, 1 KiB, 16 partitions", share)
	if own := s.of[p.System.Name]; own < rate {
		p.Fail(name, fmt.Errorf("its own peak of %.0f records/s is below the %.0f of this case", own, rate))
		return nil
	}
	j := streaming(fmt.Sprintf("share-%d", share), p)
	j.Produce.Rate = rate
	m, err := p.Load(ctx, j)
	if err != nil {
		return err
	}
	f := m.figures(m.Consumed)
	if err := f.latency(m.EndToEnd); err != nil {
		return err
	}
	f.Values["unfinished records"] = float64(m.Unfinished)
	p.ReportAs(name, f)
	return nil
}
