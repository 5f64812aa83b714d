// Package report keeps results and writes them: JSON with everything that somebody needs to judge them, a Markdown page that says what
// became of each aim, and plots. It knows names and numbers, no broker.
package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Result is what one system did in one case of a scenario in one turn.
type Result struct {
	Scenario string `json:"scenario"` // "produce", "tail", "cold-replay", ...
	Case     string `json:"case"`     // "1 KiB, 16 partitions, acks=all": the same words for all who are compared
	System   string `json:"system"`   // system.System.Name, or "bare" for bare system calls or minio-go
	Turn     int    `json:"turn"`
	// Values by metric; a metric's name ends in its unit: "MB/s", "broker CPU s/GB", "p99 ms", "peak MiB", "PUT/64 MiB".
	Values map[string]float64 `json:"values"`
	// Latency is a distribution in ms by quantile (0.5, 0.9, 0.99, 0.999, ..., 1), nil where none was taken.
	Latency []Quantile `json:"latency,omitempty"`
	// Error says why there are no values: the system failed, or can't do this.
	Error string `json:"error,omitempty"`
}

// Quantile is one point of a distribution.
type Quantile struct {
	Quantile float64 `json:"quantile"`
	MS       float64 `json:"ms"`
}

// String is a line for people who watch a run.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s: %s:", r.Scenario, r.Case, r.System)
	if r.Error != "" {
		return b.String() + " failed: " + r.Error
	}
	for _, metric := range slices.Sorted(maps.Keys(r.Values)) {
		fmt.Fprintf(&b, " %s %.4g,", metric, r.Values[metric])
	}
	return strings.TrimSuffix(b.String(), ",")
}
