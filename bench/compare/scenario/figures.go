package scenario

import (
	"github.com/tierbroker/tierbroker/bench/compare/account"
	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/report"
)

// Metrics that several scenarios report beside those that package report names; each ends in its unit. MB and GB are powers of ten, MiB of two.
const (
	Records    = "records/s"
	KernelCPU  = "broker kernel CPU s/GB" // part of report.BrokerCPU
	BrokerUse  = "broker cores"
	ClientUse  = "client cores"
	DiskWrites = "disk GB/GB"
	PeakAnon   = "peak anonymous MiB"
	P999       = "p99.9 ms"
	Max        = "max ms"
)

const mib = 1 << 20

// figures are what most scenarios want of a measured load: rates and costs per GB of what was produced or, where nothing was, consumed.
func (m *Measured) figures(t load.Total) Figures {
	gb := float64(t.Bytes) / 1e9
	v := map[string]float64{
		report.Rate: m.MBps(t), Records: float64(t.Records) / m.Seconds,
		ClientUse:         m.CPU.Seconds() / m.Seconds,
		report.PeakMemory: float64(m.Broker.Peak) / mib, PeakAnon: float64(m.PeakAnonymous) / mib,
	}
	perGB(v, &m.Broker, gb)
	return Figures{Values: v}
}

func perGB(v map[string]float64, c *account.Cost, gb float64) {
	v[BrokerUse] = c.CPU().Seconds() / c.Wall.Seconds()
	if gb > 0 {
		v[report.BrokerCPU], v[KernelCPU], v[DiskWrites] = c.CPU().Seconds()/gb, c.Sys.Seconds()/gb, float64(c.WriteBytes)/1e9/gb
	}
}

// latency adds a distribution and its usual points; nothing for a nil one.
func (f *Figures) latency(d *load.Distribution) error {
	list, _, err := d.Quantiles()
	if err != nil {
		return err
	}
	f.Latency = list
	for _, q := range list {
		for at, metric := range map[float64]string{0.5: report.P50, 0.99: report.P99, 0.999: P999, 1: Max} {
			if q.Quantile == at {
				f.Values[metric] = q.MS
			}
		}
	}
	return nil
}
