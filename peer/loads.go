package peer

import (
	"fmt"
	"iter"
	"math"
	"sync"
	"time"

	"github.com/tierbroker/tierbroker/frame"
)

// CallLoads is the call by which a broker reports the loads of its partitions to the leading controller; its argument is a
// LoadReport.
const CallLoads = "loads"

// MaxLoadBody bounds the JSON of a LoadReport: some 200,000 partitions.
const MaxLoadBody = 8 << 20

// maxReporters bounds how many brokers a LoadBook remembers.
const maxReporters = 10_000

// LoadReport is what the partitions of one broker move. Partitions that move nothing are left out. A report replaces the
// broker's last one.
type LoadReport struct {
	Broker      int32       `json:"broker"`
	Incarnation string      `json:"incarnation"`
	Topics      []TopicLoad `json:"topics,omitempty"`
}

// TopicLoad is what the partitions of one topic move.
type TopicLoad struct {
	ID    frame.TopicID   `json:"id"`
	Loads []PartitionLoad `json:"loads"`
}

// PartitionLoad is the number of a partition and the bytes per second it takes in and gives out.
type PartitionLoad [3]float64

// Check refuses reports that no broker sends.
func (r *LoadReport) Check() error {
	if r.Broker < 0 || r.Incarnation == "" {
		return fmt.Errorf("a report of broker %d, run %q", r.Broker, r.Incarnation)
	}
	for _, t := range r.Topics {
		for _, l := range t.Loads {
			if l[0] < 0 || l[0] > math.MaxInt32 || l[0] != math.Trunc(l[0]) || !(l[1] >= 0) || !(l[2] >= 0) {
				return fmt.Errorf("a load of topic %s: %v", t.ID, l)
			}
		}
	}
	return nil
}

// LoadBook keeps the last report of each broker, in memory.
type LoadBook struct {
	mu      sync.Mutex
	reports map[int32]stamped
}

type stamped struct {
	report *LoadReport
	at     time.Time
}

// ReportLife is for how long a report counts.
const ReportLife = time.Minute

// Put takes a report that was checked. Reports of more brokers than there can be are dropped.
func (b *LoadBook) Put(r *LoadReport, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reports == nil {
		b.reports = map[int32]stamped{}
	}
	if _, known := b.reports[r.Broker]; !known && len(b.reports) >= maxReporters {
		return
	}
	b.reports[r.Broker] = stamped{r, now}
}

// All yields the loads of every partition whose broker has reported lately: bytes per second in and out. Old reports are
// forgotten.
func (b *LoadBook) All(now time.Time) iter.Seq2[frame.PartitionID, [2]float64] {
	b.mu.Lock()
	var fresh []*LoadReport
	for id, s := range b.reports {
		if now.Sub(s.at) > ReportLife {
			delete(b.reports, id)
			continue
		}
		fresh = append(fresh, s.report)
	}
	b.mu.Unlock()
	return func(yield func(frame.PartitionID, [2]float64) bool) {
		for _, r := range fresh {
			for _, t := range r.Topics {
				for _, l := range t.Loads {
					if !yield(frame.PartitionID{Topic: t.ID, Partition: int32(l[0])}, [2]float64{l[1], l[2]}) {
						return
					}
				}
			}
		}
	}
}

// Meter turns counters of bytes into rates: a moving average that forgets half of the past in HalfLife. It belongs to
// one goroutine.
type Meter struct {
	last map[frame.PartitionID]*metered
	at   time.Time
}

// HalfLife is after how long a change of load shows by half.
const HalfLife = time.Minute

// quietBelow is the rate, in bytes per second, that counts as none.
const quietBelow = 1

type metered struct {
	in, out         int64
	inRate, outRate float64
	seen            bool
}

// Counted is a partition and the bytes it has taken in and given out since it was opened here.
type Counted struct {
	ID      frame.PartitionID
	In, Out int64
}

// Measure takes the counters of this moment and returns the rates since the measurements before. Partitions that are not
// counted any more are forgotten; a counter that fell began anew.
func (m *Meter) Measure(now time.Time, counters iter.Seq[Counted]) []TopicLoad {
	if m.last == nil {
		m.last = map[frame.PartitionID]*metered{}
	}
	passed := now.Sub(m.at).Seconds()
	first := m.at.IsZero()
	m.at = now
	weight := 1 - math.Exp2(-passed/HalfLife.Seconds())
	topics := map[frame.TopicID]int{}
	var out []TopicLoad
	for c := range counters {
		p := m.last[c.ID]
		if p == nil {
			p = &metered{in: c.In, out: c.Out}
			m.last[c.ID] = p
		}
		p.seen = true
		if !first && passed > 0 {
			p.inRate += weight * (float64(max(c.In-p.in, 0))/passed - p.inRate)
			p.outRate += weight * (float64(max(c.Out-p.out, 0))/passed - p.outRate)
		}
		p.in, p.out = c.In, c.Out
		if p.inRate < quietBelow && p.outRate < quietBelow {
			continue
		}
		i, ok := topics[c.ID.Topic]
		if !ok {
			i = len(out)
			topics[c.ID.Topic] = i
			out = append(out, TopicLoad{ID: c.ID.Topic})
		}
		out[i].Loads = append(out[i].Loads, PartitionLoad{float64(c.ID.Partition), math.Round(p.inRate), math.Round(p.outRate)})
	}
	for id, p := range m.last {
		if !p.seen {
			delete(m.last, id)
			continue
		}
		p.seen = false
	}
	return out
}
