package report

import (
	"bytes"
	"fmt"
	"image/color"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// plotFile is a plot that was written.
type plotFile struct{ file, alt string }

// barPlots are the metrics that get bars, with the words for their axes.
var barPlots = []struct{ metric, name, axis string }{
	{Rate, "rate", "MB/s of payload"},
	{BrokerCPU, "cpu", "processor seconds of the broker per GB"},
	{P99, "p99", "ms, 99th percentile"},
	{Recovered, "ready", "s until it serves again"},
	{PeakMemory, "memory", "MiB resident at most"},
	{PutsPerRoll, "puts", "requests that write per 64 MiB rolled"},
	{GetsPerRead, "gets", "requests that read per 4 MiB replayed"},
}

// colours can be told apart by those who don't see red or green, and on paper (Okabe and Ito); yellow is too light for lines.
var colours = []color.RGBA{
	{0x00, 0x72, 0xB2, 0xff}, {0xD5, 0x5E, 0x00, 0xff}, {0x00, 0x9E, 0x73, 0xff}, {0xCC, 0x79, 0xA7, 0xff},
	{0xE6, 0x9F, 0x00, 0xff}, {0x56, 0xB4, 0xE9, 0xff}, {0x77, 0x77, 0x77, 0xff}, {0xBB, 0xBB, 0xBB, 0xff},
}

// look is how a system is drawn, the same in all plots of a run.
func (s *summary) look(system string) (color.RGBA, int) {
	i := max(0, slices.Index(s.systems, system))
	return colours[i%len(colours)], i
}

const plotWidth = 7.5 * vg.Inch

// newPlot is an empty plot in the style of all.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	sans := func(size vg.Length) font.Font {
		return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
	}
	p.Title.Text = title
	p.Title.Padding = vg.Points(8)
	p.Title.TextStyle.Font = sans(11)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font = sans(9)
		a.Label.Padding = vg.Points(4)
		a.Tick.Label.Font = sans(9)
		a.LineStyle.Width = vg.Points(0.5)
		a.Tick.LineStyle.Width = vg.Points(0.5)
	}
	p.Legend.TextStyle.Font = sans(9)
	return p
}

// writePlots writes the plots of all scenarios and returns them by scenario.
func writePlots(s *summary, dir string) (map[string][]plotFile, error) {
	out := map[string][]plotFile{}
	taken := map[string]bool{}
	add := func(ch *chapter, p *plot.Plot, height vg.Length, name, alt string) error {
		file := unique(taken, slug(ch.name+"-"+name)) + ".svg"
		out[ch.name] = append(out[ch.name], plotFile{file: file, alt: strings.NewReplacer("[", "(", "]", ")").Replace(alt)})
		text, err := svg(p, height)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return writeFile(filepath.Join(dir, file), text)
	}
	for _, ch := range s.chapters {
		for _, m := range barPlots {
			for i, b := range s.bars(ch, m.metric) {
				name := m.name
				if i > 0 {
					name = fmt.Sprintf("%s-%d", m.name, i+1)
				}
				p, height := b.plot(fmt.Sprintf("%s: %s", ch.name, m.metric), m.axis)
				if err := add(ch, p, height, name, ch.name+", "+m.metric); err != nil {
					return nil, err
				}
			}
		}
		for _, b := range ch.cases {
			lines := s.lines(b)
			if len(lines) == 0 {
				continue
			}
			if err := add(ch, linesPlot(ch.name+": "+b.name, lines), 3.8*vg.Inch, "latency-"+b.name, ch.name+", "+b.name+", latency by percentile"); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// svg draws a plot with a margin.
func svg(p *plot.Plot, height vg.Length) ([]byte, error) {
	c, err := draw.NewFormattedCanvas(plotWidth, height, "svg")
	if err != nil {
		return nil, err
	}
	whole := draw.New(c)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	p.Draw(draw.Crop(whole, vg.Points(6), -vg.Points(14), vg.Points(6), -vg.Points(6)))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// slug is a name for a file.
func slug(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= 60 {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}

func unique(taken map[string]bool, name string) string {
	for n, base := 2, name; taken[name] || name == ""; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	taken[name] = true
	return name
}
