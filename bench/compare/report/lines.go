package report

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// mostNines ends the axis of percentiles: what few records say about more is chance.
const mostNines = 5

// line is the distribution of one system.
type line struct {
	system string
	points plotter.XYs // nines, ms
	colour color.RGBA
	index  int
}

// lines are the distributions of a case: medians over the turns, quantile by quantile.
func (s *summary) lines(b *bench) []line {
	var out []line
	for _, c := range b.cells {
		l := line{system: c.system}
		l.colour, l.index = s.look(c.system)
		for _, q := range sortedKeys(c.latency) {
			x := nines(q)
			if ms := spreadOf(c.latency[q]).median; ms > 0 && x <= mostNines+1e-9 {
				l.points = append(l.points, plotter.XY{X: x, Y: ms})
			}
		}
		if len(l.points) > 1 {
			out = append(out, l)
		}
	}
	return out
}

// nines is 0 at none, 1 at 90 %, 2 at 99 %; infinite at the largest of all.
func nines(q float64) float64 {
	if q >= 1 {
		return math.Inf(1)
	}
	return -math.Log10(1 - q)
}

func linesPlot(title string, lines []line) *plot.Plot {
	p := newPlot(title)
	p.X.Label.Text = "share of records that were as fast"
	p.Y.Label.Text = "ms"
	p.Y.Scale = plot.LogScale{}
	p.Add(grid{})
	low, high, right := math.Inf(1), 0.0, 1.0
	for _, l := range lines {
		for _, pt := range l.points {
			low, high, right = min(low, pt.Y), max(high, pt.Y), max(right, pt.X)
		}
		pl := &plotter.Line{XYs: l.points, LineStyle: draw.LineStyle{Color: l.colour, Width: vg.Points(1.6), Dashes: dashes(l.index)}}
		marks := &plotter.Scatter{XYs: l.points, GlyphStyle: draw.GlyphStyle{Color: l.colour, Radius: vg.Points(2.6), Shape: shape(l.index)}}
		p.Add(pl, marks)
		p.Legend.Add(l.system, pl, marks)
	}
	p.X.Min, p.X.Max = 0, right
	p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high*1.01)))
	var ticks []plot.Tick
	for _, t := range []struct {
		q     float64
		label string
	}{{0, "0 %"}, {0.5, "50 %"}, {0.9, "90 %"}, {0.99, "99 %"}, {0.999, "99.9 %"}, {0.9999, "99.99 %"}, {0.99999, "99.999 %"}} {
		if x := nines(t.q); x <= right+1e-9 {
			ticks = append(ticks, plot.Tick{Value: x, Label: t.label})
		}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Tick.Marker = plot.TickerFunc(decades)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(2.5)
	p.Legend.ThumbnailWidth = vg.Points(28)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(8), -vg.Points(4)
	return p
}

// decades labels 1, 2 and 5 of each power of ten.
func decades(low, high float64) []plot.Tick {
	var out []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high)+1e-9; e++ {
		for m := 1.0; m < 10; m++ {
			v := m * math.Pow(10, e)
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || m == 2 || m == 5 {
				t.Label = fmt.Sprintf("%g", math.Round(v*1e6)/1e6)
			}
			out = append(out, t)
		}
	}
	return out
}

func dashes(i int) []vg.Length {
	return [][]vg.Length{nil, {vg.Points(6), vg.Points(2)}, {vg.Points(2), vg.Points(2)}, {vg.Points(8), vg.Points(2), vg.Points(2), vg.Points(2)}}[i%4]
}

func shape(i int) draw.GlyphDrawer {
	return []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PyramidGlyph{}, draw.BoxGlyph{}, draw.PlusGlyph{}}[i%7]
}

// grid draws a thin line at each tick with a label.
type grid struct{}

// Plot implements plot.Plotter.
func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := draw.LineStyle{Color: color.Gray{Y: 0xdd}, Width: vg.Points(0.5)}
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		c.StrokeLine2(style, x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
	}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if t.Label != "" {
			c.StrokeLine2(style, c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
	}
}
