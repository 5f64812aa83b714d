package report

import (
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// mostRows is how many rows a plot of bars has before a further one is begun.
const mostRows = 44

// bars is a plot of rows from top to bottom: the name of a case, then a bar for each system, labelled with its name, so that
// nobody has to tell colours apart.
type bars struct{ rows []row }

// row is a bar, or the heading of those below it.
type row struct {
	heading string
	system  string
	value   spread
	colour  color.RGBA
}

// bars makes the plots of a metric, none if nobody has it.
func (s *summary) bars(ch *chapter, metric string) []*bars {
	var out []*bars
	for _, b := range ch.cases {
		rows := []row{{heading: b.name}}
		for _, c := range b.cells {
			if v := spreadOf(c.values(metric)); v.n > 0 {
				colour, _ := s.look(c.system)
				rows = append(rows, row{system: c.system, value: v, colour: colour})
			}
		}
		if len(rows) == 1 {
			continue
		}
		if len(out) == 0 || len(out[len(out)-1].rows)+len(rows) > mostRows {
			out = append(out, &bars{})
		}
		last := out[len(out)-1]
		last.rows = append(last.rows, rows...)
	}
	return out
}

func (b *bars) plot(title, axis string) (*plot.Plot, vg.Length) {
	p := newPlot(title)
	p.X.Label.Text = axis
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, float64(len(b.rows))
	p.Add(b)
	p.X.Max *= 1.22 // room for the figures behind the bars
	if p.X.Max <= 0 {
		p.X.Max = 1
	}
	var ticks []plot.Tick
	for i, r := range b.rows {
		if r.system != "" {
			ticks = append(ticks, plot.Tick{Value: b.y(i), Label: r.system})
		}
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Tick.Marker = plot.TickerFunc(roundTicks)
	p.Y.Tick.LineStyle.Width = 0
	p.Y.Tick.Length = 0
	p.Y.Padding = 0
	return p, vg.Points(70 + 15*float64(len(b.rows)))
}

// y is the middle of the i-th row from the top.
func (b *bars) y(i int) float64 { return float64(len(b.rows)-i) - 0.5 }

// DataRange implements plot.DataRanger.
func (b *bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	for _, r := range b.rows {
		xmax = max(xmax, r.value.max)
	}
	return 0, xmax, 0, float64(len(b.rows))
}

// Plot implements plot.Plotter.
func (b *bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := text.Style{Color: color.Black, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, 8), YAlign: draw.YCenter, Handler: p.TextHandler}
	bold := style
	bold.Font = font.From(font.Font{Typeface: "Liberation", Variant: "Sans", Weight: 2}, 9)
	bold.YAlign = draw.YCenter
	whisker := draw.LineStyle{Color: color.Black, Width: vg.Points(0.8)}
	for i, r := range b.rows {
		mid := b.y(i)
		if r.system == "" {
			c.FillText(bold, vg.Point{X: x(0) + vg.Points(2), Y: y(mid - 0.08)}, r.heading)
			continue
		}
		top, bottom := y(mid+0.36), y(mid-0.36)
		to := x(r.value.median)
		c.FillPolygon(r.colour, []vg.Point{{X: x(0), Y: bottom}, {X: x(0), Y: top}, {X: to, Y: top}, {X: to, Y: bottom}})
		if r.value.n > 1 {
			from, end, cap := x(r.value.min), x(r.value.max), vg.Points(2.5)
			c.StrokeLine2(whisker, from, y(mid), end, y(mid))
			c.StrokeLine2(whisker, from, y(mid)-cap, from, y(mid)+cap)
			c.StrokeLine2(whisker, end, y(mid)-cap, end, y(mid)+cap)
			to = max(to, end)
		}
		c.FillText(style, vg.Point{X: to + vg.Points(4), Y: y(mid)}, number(r.value))
	}
}

// roundTicks labels four to nine steps of 1, 2 or 5 times a power of ten.
func roundTicks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10(high-low)))
	for _, f := range []float64{0.1, 0.2, 0.5, 1} {
		if (high-low)/(step*f) < 9 {
			step *= f
			break
		}
	}
	var out []plot.Tick
	for i := math.Ceil(low / step); i*step <= high*(1+1e-9) && len(out) < 20; i++ {
		out = append(out, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'g', 6, 64)})
	}
	return out
}
