package load

import (
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/tierbroker/tierbroker/bench/compare/report"
)

// Histograms go from a microsecond to ten minutes with three significant digits; what is beyond counts as the limit.
const (
	lowest  = int64(time.Microsecond / unit)
	highest = int64(10 * time.Minute / unit)
	digits  = 3
	unit    = time.Microsecond
)

// Recorder takes times from many goroutines.
type Recorder struct {
	mu sync.Mutex
	h  *hdr.Histogram
}

// NewRecorder has no times yet.
func NewRecorder() *Recorder { return &Recorder{h: hdr.New(lowest, highest, digits)} }

// Record takes a time n times.
func (r *Recorder) Record(d time.Duration, n int64) {
	v := min(max(int64(d/unit), lowest), highest)
	r.mu.Lock()
	_ = r.h.RecordValues(v, n) // fails only out of range
	r.mu.Unlock()
}

// Distribution gives what was recorded, nil when that is nothing.
func (r *Recorder) Distribution() (*Distribution, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.h.TotalCount() == 0 {
		return nil, nil
	}
	text, err := r.h.Encode(hdr.V2CompressedEncodingCookieBase)
	return &Distribution{HDR: text}, err
}

// Distribution is an HDR histogram of times in microseconds, in the encoding that the histogram's tools share (version 2, compressed, base 64).
type Distribution struct{ HDR []byte }

// Merge adds up distributions: those of several processes or turns. Nil ones count nothing.
func Merge(list ...*Distribution) (*Distribution, error) {
	r := NewRecorder()
	for _, d := range list {
		if d == nil {
			continue
		}
		h, err := hdr.Decode(d.HDR)
		if err != nil {
			return nil, err
		}
		r.h.Merge(h)
	}
	return r.Distribution()
}

// Points that reports have of every distribution, up to the highest time.
var points = []float64{0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1}

// Quantiles gives the distribution's points, and how many times it holds; nothing for a nil one.
func (d *Distribution) Quantiles() ([]report.Quantile, int64, error) {
	if d == nil {
		return nil, 0, nil
	}
	h, err := hdr.Decode(d.HDR)
	if err != nil {
		return nil, 0, err
	}
	var list []report.Quantile
	for _, q := range points {
		list = append(list, report.Quantile{Quantile: q, MS: float64(h.ValueAtPercentile(100*q)) * float64(unit) / float64(time.Millisecond)})
	}
	return list, h.TotalCount(), nil
}
