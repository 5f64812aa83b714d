package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"
)

const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

// table is what people see of a listing.
type table struct {
	head []string
	rows [][]string
}

func newTable(head ...string) *table { return &table{head: head} }

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ToUpper(strings.Join(t.head, "\t")))
	for _, row := range t.rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// print writes a result in the form that was asked for.
func (g *globals) print(cmd *cobra.Command, v any, tables ...*table) error {
	return g.printTo(cmd.OutOrStdout(), v, tables...)
}

func (g *globals) printTo(w io.Writer, v any, tables ...*table) error {
	switch g.Output {
	case outputJSON:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	case outputYAML:
		return writeYAML(w, v)
	}
	for i, t := range tables {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := t.write(w); err != nil {
			return err
		}
	}
	return nil
}

// writeYAML goes through JSON, so that both forms have the same names.
func writeYAML(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(data, &node); err != nil {
		return err
	}
	blockStyle(&node)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&node); err != nil {
		return err
	}
	return e.Close()
}

// blockStyle takes off the braces and quotes that JSON brought; the encoder
// quotes what needs it.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		blockStyle(c)
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// number prints an offset, an id or a count; what isn't known is -1.
func number[N int | int32 | int64](n N) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(int64(n), 10)
}

// size prints bytes for people.
func size(n int64) string {
	if n < 0 {
		return "-"
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return strconv.FormatInt(n, 10) + " B"
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + units[i]
}

// age prints a time span in ms for people.
func age(ms int64) string {
	if ms <= 0 {
		return "-"
	}
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
}

// moment prints a time in ms since 1970.
func moment(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

func formatRange(start, end int64) string { return fmt.Sprintf("[%d, %d)", start, end) }

func hex32(v uint32) string { return fmt.Sprintf("%08x", v) }

// sinceMs is the age of a moment, by a clock of 0 for this machine's.
func sinceMs(now, moment int64) int64 {
	if now == 0 {
		now = time.Now().UnixMilli()
	}
	return now - moment
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
