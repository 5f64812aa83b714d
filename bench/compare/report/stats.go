package report

import (
	"maps"
	"slices"
	"strings"
)

// ours begins the names of this project's systems.
const ours = "tierbroker"

// spread is a metric over the turns of one system in one case.
type spread struct {
	median, min, max float64
	n                int
}

func spreadOf(v []float64) spread {
	if len(v) == 0 {
		return spread{}
	}
	s := slices.Sorted(slices.Values(v))
	mid := s[len(s)/2]
	if len(s)%2 == 0 {
		mid = (s[len(s)/2-1] + mid) / 2
	}
	return spread{median: mid, min: s[0], max: s[len(s)-1], n: len(s)}
}

// cell is what one system did in one case.
type cell struct {
	system  string
	turns   map[int]map[string]float64 // metrics by turn
	latency map[float64][]float64      // ms of each turn by quantile
	errors  []string                   // each once
}

// values are those of a metric over the turns that have it.
func (c *cell) values(metric string) []float64 {
	var out []float64
	for _, turn := range sortedKeys(c.turns) {
		if v, ok := c.turns[turn][metric]; ok {
			out = append(out, v)
		}
	}
	return out
}

// bench is one case of a scenario with all who took part.
type bench struct {
	name  string
	cells []*cell
}

func (b *bench) cell(system string) *cell {
	for _, c := range b.cells {
		if c.system == system {
			return c
		}
	}
	return nil
}

// chapter is one scenario.
type chapter struct {
	name    string
	metrics []string
	cases   []*bench
}

// summary is a run by scenario, case and system, each in the order in which it first came.
type summary struct {
	chapters   []*chapter
	durability map[string]string // by system
	systems    []string          // all, for colours that stay the same from plot to plot
}

func summarize(r *Run) *summary {
	s := &summary{durability: map[string]string{}}
	for _, setup := range r.Systems {
		s.durability[setup.Name] = setup.Durability
		s.addSystem(setup.Name)
	}
	for i := range r.Results {
		res := &r.Results[i]
		s.addSystem(res.System)
		ch := find(&s.chapters, func(c *chapter) bool { return c.name == res.Scenario }, func() *chapter { return &chapter{name: res.Scenario} })
		b := find(&ch.cases, func(b *bench) bool { return b.name == res.Case }, func() *bench { return &bench{name: res.Case} })
		c := find(&b.cells, func(c *cell) bool { return c.system == res.System }, func() *cell {
			return &cell{system: res.System, turns: map[int]map[string]float64{}, latency: map[float64][]float64{}}
		})
		if res.Error != "" && !slices.Contains(c.errors, res.Error) {
			c.errors = append(c.errors, res.Error)
		}
		for _, q := range res.Latency {
			c.latency[q.Quantile] = append(c.latency[q.Quantile], q.MS)
		}
		if len(res.Values) == 0 {
			continue
		}
		if c.turns[res.Turn] == nil {
			c.turns[res.Turn] = map[string]float64{}
		}
		maps.Copy(c.turns[res.Turn], res.Values)
		for name := range res.Values {
			if !slices.Contains(ch.metrics, name) {
				ch.metrics = append(ch.metrics, name)
			}
		}
	}
	for _, ch := range s.chapters {
		slices.SortFunc(ch.metrics, byRank)
		for _, b := range ch.cases {
			slices.SortStableFunc(b.cells, func(x, y *cell) int { return slices.Index(s.systems, x.system) - slices.Index(s.systems, y.system) })
		}
	}
	return s
}

func (s *summary) addSystem(name string) {
	if !slices.Contains(s.systems, name) {
		s.systems = append(s.systems, name)
	}
}

// find returns the element that is wanted, and appends a new one if there is none.
func find[T any](list *[]*T, wanted func(*T) bool, create func() *T) *T {
	if i := slices.IndexFunc(*list, wanted); i >= 0 {
		return (*list)[i]
	}
	*list = append(*list, create())
	return (*list)[len(*list)-1]
}

// ranks put what readers look for first in front; anything else follows by name.
var ranks = []string{"MB/s", "records/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "broker CPU s/GB", "all CPU s/GB", "load CPU s/GB"}

func byRank(a, b string) int {
	rank := func(m string) int {
		if i := slices.Index(ranks, m); i >= 0 {
			return i
		}
		return len(ranks)
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// ratio compares a metric of two cells: turn by turn where both have the turn, so that what the machine did to both cancels
// out, else by their medians. There is none (n is 0) where a side is missing or zero.
func ratio(a, b *cell, metric string) spread {
	if a == nil || b == nil {
		return spread{}
	}
	var r []float64
	for turn, values := range a.turns {
		x, ok := values[metric]
		y, also := b.turns[turn][metric]
		if ok && also && y > 0 {
			r = append(r, x/y)
		}
	}
	if len(r) > 0 {
		return spreadOf(r)
	}
	x, y := spreadOf(a.values(metric)), spreadOf(b.values(metric))
	if x.n == 0 || y.median <= 0 {
		return spread{}
	}
	v := x.median / y.median
	return spread{median: v, min: v, max: v, n: 1}
}

// peerOf is the system of ours that others in a case are compared with: the one whose acknowledgement means the same, or the
// only one. Nil where there is none: what is not alike is not compared.
func (s *summary) peerOf(b *bench, other *cell) *cell {
	var alike, any []*cell
	for _, c := range b.cells {
		if !strings.HasPrefix(c.system, ours) {
			continue
		}
		any = append(any, c)
		if d := s.durability[c.system]; d != "" && d == s.durability[other.system] {
			alike = append(alike, c)
		}
	}
	switch {
	case len(alike) > 0:
		return alike[0]
	case len(any) == 1 && (s.durability[other.system] == "" || s.durability[any[0].system] == ""):
		return any[0]
	}
	return nil
}

func sortedKeys[K interface{ ~int | ~string | ~float64 }, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
