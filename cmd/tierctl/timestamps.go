package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// presets are names for common forms of timestamps.
var presets = map[string]string{
	"rfc3339": time.RFC3339Nano,
	"log4j":   "2006-01-02 15:04:05,000",
	"iso":     "2006-01-02 15:04:05.999999999",
	"apache":  "02/Jan/2006:15:04:05 -0700",
	"spark":   "06/01/02 15:04:05",
	"hdfs":    "060102 150405",
	"syslog":  "Jan _2 15:04:05",
	"rfc1123": time.RFC1123,
}

const (
	formatUnix      = "unix"
	formatUnixMilli = "unix-ms"
	formatUnixMicro = "unix-us"
	formatUnixNano  = "unix-ns"
)

var unixFormats = map[string]time.Duration{
	formatUnix: time.Second, formatUnixMilli: time.Millisecond, formatUnixMicro: time.Microsecond, formatUnixNano: time.Nanosecond,
}

// timeParser turns the text of a timestamp into a time.
type timeParser func(string) (time.Time, error)

// newTimeParser takes a preset, unix, unix-ms, unix-us, unix-ns or a Go layout.
// Times without a zone are in loc.
func newTimeParser(format string, loc *time.Location) (timeParser, error) {
	if unit, ok := unixFormats[format]; ok {
		return func(s string) (time.Time, error) { return parseUnix(s, unit) }, nil
	}
	layout, ok := presets[format]
	if !ok {
		layout = format
		if !strings.ContainsAny(layout, "0123456789") {
			return nil, usagef("--timestamp-format %q is neither a Go layout nor one of %s", format, strings.Join(formatNames(), ", "))
		}
	}
	// Presets and layouts may lack the year, as in syslog: the nearest one is meant.
	yearless := !strings.Contains(layout, "06")
	return func(s string) (time.Time, error) {
		t, err := time.ParseInLocation(layout, s, loc)
		if err != nil {
			return t, err
		}
		if yearless {
			now := time.Now().In(loc)
			t = t.AddDate(now.Year()-t.Year(), 0, 0)
			if t.After(now.AddDate(0, 0, 1)) {
				t = t.AddDate(-1, 0, 0)
			}
		}
		return t, nil
	}, nil
}

func formatNames() []string {
	names := slices.Collect(maps.Keys(presets))
	names = slices.AppendSeq(names, maps.Keys(unixFormats))
	slices.Sort(names)
	return names
}

func parseUnix(s string, unit time.Duration) (time.Time, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a number", s)
	}
	per := int64(time.Second / unit)
	ns := (n % per) * int64(unit)
	if fraction != "" {
		f, err := strconv.ParseFloat("0."+fraction, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("%q is not a number", s)
		}
		ns += int64(f * float64(unit))
	}
	return time.Unix(n/per, ns), nil
}

// position is where consuming begins or ends.
type position struct {
	kind   positionKind
	offset int64 // atOffset
	ms     int64 // atTime, since 1970
}

type positionKind int

const (
	atEarliest positionKind = iota
	atLatest
	atOffset
	atTime
)

// timeLayouts are the ways to write a time on the command line; UTC unless they
// say otherwise.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"}

// parsePosition reads earliest, latest, an offset, a time (RFC 3339 or a date),
// @ and milliseconds since 1970, or a span before now such as -1h.
func parsePosition(flag, s string, now time.Time) (position, error) {
	switch s {
	case "earliest", "start", "beginning":
		return position{kind: atEarliest}, nil
	case "latest", "end":
		return position{kind: atLatest}, nil
	}
	if ms, ok := strings.CutPrefix(s, "@"); ok {
		n, err := strconv.ParseInt(ms, 10, 64)
		if err != nil || n < 0 {
			return position{}, usagef("--%s %q: after @ come milliseconds since 1970", flag, s)
		}
		return position{kind: atTime, ms: n}, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return position{kind: atOffset, offset: n}, nil
	}
	if span, ok := strings.CutPrefix(s, "-"); ok {
		d, err := parseSpan(span)
		if err == nil {
			return position{kind: atTime, ms: now.Add(-d).UnixMilli()}, nil
		}
	}
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, s, time.UTC); err == nil {
			return position{kind: atTime, ms: t.UnixMilli()}, nil
		}
	}
	return position{}, usagef("--%s %q is not earliest, latest, an offset, a time (2015-07-29T19:04:12Z, 2015-07-29), @MILLISECONDS, or a span before now (-90m, -7d)", flag, s)
}

// parseSpan reads Go's durations and whole days.
func parseSpan(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(s)
}
