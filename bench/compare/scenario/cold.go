package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/account"
	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

func init() {
	register(Scenario{Name: report.ScenarioCold, About: "replay of what is only in the object store", Short: true, Order: 50, Run: cold})
}

// coldCase is who reads what.
type coldCase struct {
	partitions, consumers int
	short                 bool
}

var coldCases = []coldCase{{1, 1, true}, {16, 8, true}, {1, 8, false}, {16, 1, false}}

// readings: several consumers share many partitions, and read a single one each for itself.
func (c coldCase) readings() (readings, consumers int) {
	if c.partitions == 1 {
		return c.consumers, 1
	}
	return 1, c.consumers
}

func (c coldCase) String() string {
	switch {
	case c.consumers == 1:
		return fmt.Sprintf("%s, 1 consumer", count(c.partitions, "partition"))
	case c.partitions == 1:
		return fmt.Sprintf("1 partition, %d consumers, each reads all of it", c.consumers)
	}
	return fmt.Sprintf("%d partitions, %d consumers that share them", c.partitions, c.consumers)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}

// cold has each system fill its archive once. In each turn it is started anew, so that it has nothing in its memory, and so is ours
// before each case: it has a cache. What the machine's page cache holds of the stores' files stays there, for all who read: this is about
// brokers, not about the disk below an S3 server.
func cold(ctx context.Context, b *Bench) error {
	sizes := map[int]int64{1: 1024 * mib, 16: 3072 * mib}
	if b.Short {
		sizes = map[int]int64{1: 256 * mib, 16: 768 * mib} // more than is kept in memory
	}
	var all []*held
	defer func() {
		for _, h := range all {
			if err := h.end(); err != nil {
				b.Say("%s: %v", h.System.Name, err)
			}
		}
	}()
	for _, s := range b.Systems {
		if !s.Tiered || s.Durability != system.PageCache {
			continue
		}
		began := time.Now()
		h, err := b.hold(ctx, report.ScenarioCold, "", s)
		if err == nil {
			all = append(all, h)
			err = h.fillAll(ctx, sizes)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			b.failed(report.ScenarioCold, coldCases[0].String(), s.Name, 1, err)
			if h != nil {
				all = all[:len(all)-1]
				if err := h.end(); err != nil {
					b.Say("%s: %v", s.Name, err)
				}
			}
			continue
		}
		b.Say("cold: %s has its archive after %.1f s", s.Name, time.Since(began).Seconds())
	}
	for turn := range b.Turns {
		for i := range all {
			h := all[(turn+i)%len(all)]
			h.Turn = turn + 1
			h.turn(ctx)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// fillAll fills a topic for each number of partitions, and stops the broker.
func (h *held) fillAll(ctx context.Context, sizes map[int]int64) error {
	ctx, cancel := context.WithTimeout(ctx, heldLimit)
	defer cancel()
	for _, partitions := range []int{1, 16} {
		t := load.Topic{Name: fmt.Sprintf("cold-%d", partitions), Partitions: partitions}
		if err := h.fill(ctx, t, sizes[partitions]); err != nil {
			return err
		}
	}
	return h.Stop(ctx)
}

func (h *held) topic(partitions int) *filled {
	for _, f := range h.topics {
		if f.Partitions == partitions {
			return f
		}
	}
	return nil
}

// turn measures all cases once.
func (h *held) turn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, heldLimit)
	defer cancel()
	for _, c := range coldCases {
		if h.Bench.Short && !c.short {
			continue
		}
		if err := h.coldCase(ctx, c); err != nil && ctx.Err() == nil {
			h.Bench.failed(report.ScenarioCold, c.String(), h.System.Name, h.Turn, err)
		}
	}
	if h.Running != nil {
		if err := h.Stop(ctx); err != nil && ctx.Err() == nil {
			h.Bench.Say("cold: stop %s: %v", h.System.Name, err)
		}
	}
}

func (h *held) coldCase(ctx context.Context, c coldCase) error {
	f := h.topic(c.partitions)
	if h.s3 == nil {
		if h.Running == nil {
			if err := h.Start(ctx); err != nil {
				return err
			}
		}
		readings, consumers := c.readings()
		m, err := h.replay(ctx, f, readings, consumers)
		if err != nil {
			return err
		}
		h.ReportAs(c.String(), m.figures(m.Consumed))
		return nil
	}
	// Who goes first changes from turn to turn: the second one finds the server awake.
	if h.Turn%2 == 0 {
		return errors.Join(h.coldBare(ctx, c, f), h.coldOurs(ctx, c, f))
	}
	return errors.Join(h.coldOurs(ctx, c, f), h.coldBare(ctx, c, f))
}

// coldOurs replays through the broker, with the server's account of it.
func (h *held) coldOurs(ctx context.Context, c coldCase, f *filled) error {
	if err := h.Start(ctx); err != nil {
		return err
	}
	begin, err := account.Take(h.s3.PIDs())
	if err != nil {
		return err
	}
	mark, err := h.s3.Log.Mark()
	if err != nil {
		return err
	}
	readings, consumers := c.readings()
	m, err := h.replay(ctx, f, readings, consumers)
	if err != nil {
		return err
	}
	got, err := h.s3.Log.Since(mark)
	if err != nil {
		return err
	}
	end, err := account.Take(h.s3.PIDs())
	if err != nil {
		return err
	}
	fig := m.figures(m.Consumed)
	gb := float64(m.Consumed.Bytes) / 1e9
	cost := end.Since(begin)
	fig.Values[s3CPU] = cost.CPU().Seconds() / gb
	fig.Values[report.GetsPerRead] = float64(got.Reads()) / (float64(m.Consumed.Bytes) / (4 * mib))
	fig.Values[sentPerByte] = float64(got.Sent()) / float64(m.Consumed.Bytes)
	h.ReportAs(c.String(), fig)
	return h.Stop(ctx)
}

// Metrics of the S3 server.
const (
	s3CPU       = "S3 server CPU s/GB"
	sentPerByte = "S3 sent GB/GB"
)

// coldBare reads the same objects. The rate is that of the same payload: frames, indexes and footers are read, too, and not counted.
func (h *held) coldBare(ctx context.Context, c coldCase, f *filled) error {
	begin, err := account.Take(h.s3.PIDs())
	if err != nil {
		return err
	}
	readings, consumers := c.readings()
	o, err := h.bare(ctx, f, readings, consumers)
	if err != nil {
		return err
	}
	end, err := account.Take(h.s3.PIDs())
	if err != nil {
		return err
	}
	payload := float64(f.Bytes) * float64(readings)
	cost := end.Since(begin)
	h.Bench.Report(report.Result{Scenario: report.ScenarioCold, Case: c.String(), System: report.Bare, Turn: h.Turn, Values: map[string]float64{
		report.Rate: payload / 1e6 / o.Seconds, ClientUse: o.CPU.Seconds() / o.Seconds, s3CPU: cost.CPU().Seconds() / (payload / 1e9),
	}})
	return nil
}
