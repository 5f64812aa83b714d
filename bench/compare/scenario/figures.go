package scenario

import (
	"github.com/tierbroker/tierbroker/bench/compare/account"
	"github.com/tierbroker/tierbroker/bench/compare/load"
)

// Metrics that several scenarios report; each ends in its unit. MB and GB are powers of ten, MiB of two.
const (
	Rate       = "MB/s"
	Records    = "records/s"
	BrokerCPU  = "broker CPU s/GB"
	BrokerSys  = "of it in the kernel s/GB"
	BrokerUse  = "broker cores"
	LoadUse    = "client cores"
	DiskWrites = "disk GB/GB"
	Peak       = "peak MiB"
	PeakAnon   = "peak anonymous MiB"
	P50        = "p50 ms"
	P99        = "p99 ms"
	P999       = "p99.9 ms"
	Max        = "max ms"
)

const mib = 1 << 20

// figures are what most scenarios want of a measured load: rates and costs per GB of what was produced or, where nothing was, consumed.
func (m *Measured) figures(t load.Total) Figures {
	gb := float64(t.Bytes) / 1e9
	v := map[string]float64{
		Rate: m.MBps(t), Records: float64(t.Records) / m.Seconds,
		LoadUse: m.CPU.Seconds() / m.Seconds,
		Peak:    float64(m.Broker.Peak) / mib, PeakAnon: float64(m.PeakAnonymous) / mib,
	}
	perGB(v, &m.Broker, gb)
	return Figures{Values: v}
}

func perGB(v map[string]float64, c *account.Cost, gb float64) {
	v[BrokerUse] = c.CPU().Seconds() / c.Wall.Seconds()
	if gb > 0 {
		v[BrokerCPU], v[BrokerSys], v[DiskWrites] = c.CPU().Seconds()/gb, c.Sys.Seconds()/gb, float64(c.WriteBytes)/1e9/gb
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
		for at, metric := range map[float64]string{0.5: P50, 0.99: P99, 0.999: P999, 1: Max} {
			if q.Quantile == at {
				f.Values[metric] = q.MS
			}
		}
	}
	return nil
}
