package report

import (
	"fmt"
	"math"
	"strings"
)

// page is the report in Markdown: aims first, then a section for each scenario, then what it was measured on.
func page(r *Run, s *summary, plots map[string][]plotFile) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Beside others: the %s run\n\n", orUnknown(r.Name))
	fmt.Fprintf(&b, "Measured on %s in %s with `%s`. This page and its plots are made from `results.json` (`compare -report DIR` makes them again).\n\n",
		r.Started.UTC().Format("2006-01-02"), minutes(r.Seconds), orUnknown(r.Command))
	b.WriteString("Figures are medians over the turns with the least and the largest behind them. A ratio is taken turn by turn, and then its median: in one turn both had the same machine.\n\n")
	writeAims(&b, judge(s))
	if len(s.chapters) == 0 {
		b.WriteString("There are no results.\n\n")
	}
	for _, ch := range s.chapters {
		writeChapter(&b, s, ch, plots[ch.name])
	}
	writeMachine(&b, r)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func writeAims(b *strings.Builder, js []judged) {
	b.WriteString("## Aims\n\n| what | aim | measured | |\n|---|---|---|---|\n")
	for _, j := range js {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", escape(j.what), escape(j.goal), escape(j.text), j.verdict)
	}
	b.WriteString("\n")
}

func writeChapter(b *strings.Builder, s *summary, ch *chapter, plots []plotFile) {
	fmt.Fprintf(b, "## %s\n\n", title(ch.name))
	for _, p := range plots {
		fmt.Fprintf(b, "![%s](%s)\n\n", p.alt, p.file)
	}
	if len(ch.metrics) > 0 {
		b.WriteString("| case | system |")
		for _, m := range ch.metrics {
			fmt.Fprintf(b, " %s |", escape(m))
		}
		b.WriteString(" ours by theirs |\n|---|---|" + strings.Repeat("---|", len(ch.metrics)+1) + "\n")
	}
	for _, c := range ch.cases {
		for i, cell := range c.cells {
			if len(cell.turns) == 0 {
				continue
			}
			name := ""
			if i == 0 || firstWithValues(c) == cell {
				name = c.name
			}
			fmt.Fprintf(b, "| %s | %s |", escape(name), escape(cell.system))
			for _, m := range ch.metrics {
				fmt.Fprintf(b, " %s |", number(spreadOf(cell.values(m))))
			}
			fmt.Fprintf(b, " %s |\n", escape(ratios(s, ch, c, cell)))
		}
	}
	b.WriteString("\n")
	writeErrors(b, ch)
}

func firstWithValues(b *bench) *cell {
	for _, c := range b.cells {
		if len(c.turns) > 0 {
			return c
		}
	}
	return nil
}

// ratios says how ours compares in the metrics that readers look for.
func ratios(s *summary, ch *chapter, b *bench, c *cell) string {
	if strings.HasPrefix(c.system, ours) {
		return ""
	}
	mine := s.peerOf(b, c)
	if mine == nil {
		return ""
	}
	var out []string
	for _, m := range ch.metrics {
		switch m {
		case Rate, BrokerCPU, P50, P99, PeakMemory, IdleMemory, Recovered:
			if q := ratio(mine, c, m); q.n > 0 {
				out = append(out, fmt.Sprintf("%s %s", strings.TrimSuffix(strings.TrimSuffix(m, " s/GB"), " ms"), number(q)))
			}
		}
	}
	if len(out) == 0 {
		return ""
	}
	return mine.system + ": " + strings.Join(out, ", ")
}

func writeErrors(b *strings.Builder, ch *chapter) {
	any := false
	for _, c := range ch.cases {
		for _, cell := range c.cells {
			for _, e := range cell.errors {
				any = true
				fmt.Fprintf(b, "- %s, %s: %s\n", c.name, cell.system, oneLine(e))
			}
		}
	}
	if any {
		b.WriteString("\n")
	}
}

func writeMachine(b *strings.Builder, r *Run) {
	m := r.Machine
	b.WriteString("## What it was measured on\n\n| | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"processor", fmt.Sprintf("%s, %d cores", orUnknown(m.CPU), m.Cores)}, {"memory", fmt.Sprintf("%d MiB", m.MemoryMiB)}, {"kernel", orUnknown(m.Kernel)},
		{"file system", orUnknown(m.FileSystem)}, {"disk", orUnknown(m.Disk)}, {"processors of each", orUnknown(r.Pinning)},
		{"tierbroker", orUnknown(r.Commit)}, {"Go", orUnknown(r.Go)}, {"command", "`" + orUnknown(r.Command) + "`"},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", row[0], escape(row[1]))
	}
	b.WriteString("\n")
	if len(r.Systems) == 0 {
		return
	}
	b.WriteString("| system | version | an acknowledgement means | settings |\n|---|---|---|---|\n")
	for _, s := range r.Systems {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", escape(s.Name), escape(orUnknown(s.Version)), escape(orUnknown(s.Durability)), escape(strings.Join(s.Settings, "; ")))
	}
	b.WriteString("\n")
}

// number is a median with its spread, or nothing where nothing was measured.
func number(s spread) string {
	switch {
	case s.n == 0:
		return ""
	case s.n == 1 || short(s.min) == short(s.max):
		return short(s.median)
	}
	return fmt.Sprintf("%s (%s..%s)", short(s.median), short(s.min), short(s.max))
}

// short is a number with two or three digits that count, and thousands set apart.
func short(v float64) string {
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a >= 1e15:
		return fmt.Sprintf("%.2g", v)
	case a < 0.0995:
		return fmt.Sprintf("%.2g", v)
	case a < 9.995:
		return fmt.Sprintf("%.2f", v)
	case a < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	digits := fmt.Sprintf("%.0f", a)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if v < 0 {
		return "-" + digits
	}
	return digits
}

// unit is a metric's name where the number stands before it.
func unit(metric string) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(metric, "p99 "), "peak "), "ready ")
}

func title(s string) string {
	if s == "" {
		return "(no name)"
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func minutes(seconds float64) string {
	if seconds < 120 {
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.0f min", seconds/60)
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// escape keeps a text within its cell of a table.
func escape(s string) string { return strings.ReplaceAll(oneLine(s), "|", `\|`) }

// mostError is the longest text of an error in a page; results.json has all of it.
const mostError = 300

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > mostError {
		s = strings.ToValidUTF8(s[:mostError], "") + "…"
	}
	return s
}
