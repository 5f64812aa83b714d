package bench

import (
	"slices"
	"syscall"
	"testing"
	"time"
)

// versus runs two ways of doing the same by turns, and keeps what each run took.
type versus struct {
	bytes      int64
	bare, ours cost
}

// cost is what the runs of one side took: time on the wall, and of the processors in this process.
type cost struct{ wall, cpu []time.Duration }

func (c *cost) run(b *testing.B, fn func()) {
	cpu, start := cpuTime(b), time.Now()
	fn()
	c.wall, c.cpu = append(c.wall, time.Since(start)), append(c.cpu, cpuTime(b)-cpu)
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// turn measures both sides once, in an order that changes from turn to turn.
func (v *versus) turn(b *testing.B, bare, ours func()) {
	b.Helper()
	if len(v.bare.wall)%2 == 0 {
		v.bare.run(b, bare)
		v.ours.run(b, ours)
	} else {
		v.ours.run(b, ours)
		v.bare.run(b, bare)
	}
}

// report gives the median rates and ratios: 1 is as fast as bare, 0.8 the aim. x-cpu compares processor time, which other
// programs on the machine disturb less.
func (v *versus) report(b *testing.B) {
	mb := float64(v.bytes) / 1e6
	b.ReportMetric(mb/median(v.bare.wall).Seconds(), "bare-MB/s")
	b.ReportMetric(mb/median(v.ours.wall).Seconds(), "MB/s")
	b.ReportMetric(ratio(v.bare.wall, v.ours.wall), "x-bare")
	b.ReportMetric(ratio(v.bare.cpu, v.ours.cpu), "x-cpu")
	b.ReportMetric(0, "ns/op")
}

func median(d []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[len(s)/2]
}

// ratio is the median of the turns' ratios: both sides of a turn had the same neighbours.
func ratio(bare, ours []time.Duration) float64 {
	var rs []float64
	for i := range ours {
		rs = append(rs, float64(bare[i])/float64(max(ours[i], 1)))
	}
	slices.Sort(rs)
	return rs[len(rs)/2]
}
