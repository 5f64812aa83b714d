package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// set parses v and stores it in c. The error says what is wrong with v and,
// where that helps, what would be right; it doesn't repeat the name.
func (s *Setting) set(c *Config, v string) error {
	if s.check != nil {
		if err := s.check(v); err != nil {
			return err
		}
	}
	switch f := s.field(c).(type) {
	case *string:
		if s.Kind == KindChoice && !slices.Contains(s.Choices, v) {
			return s.choiceError(v)
		}
		if s.Kind == KindPath && v == "" {
			return errors.New("must not be empty")
		}
		*f = v
	case *bool:
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		*f = b
	case *int:
		n, err := s.number(v)
		if err != nil {
			return err
		}
		*f = int(n)
	case *int32:
		n, err := s.number(v)
		if err != nil {
			return err
		}
		*f = int32(n)
	case *Bytes:
		n, err := ParseBytes(v)
		if err != nil {
			return err
		}
		*f = n
		return s.bounds(int64(n), func(n int64) string { return Bytes(n).String() })
	case *time.Duration:
		d, err := ParseDuration(v)
		if err != nil {
			return err
		}
		*f = d
		return s.bounds(int64(d), func(n int64) string { return FormatDuration(time.Duration(n)) })
	case *[]string:
		return s.setList(f, splitList(v))
	case *map[string]string:
		m, err := splitMap(v)
		if err != nil {
			return err
		}
		*f = m
	default:
		return fmt.Errorf("setting %s has a field of type %T", s.Name, f)
	}
	return nil
}

// get renders the value as one would write it.
func (s *Setting) get(c *Config) string {
	switch f := s.field(c).(type) {
	case *string:
		return *f
	case *bool:
		return strconv.FormatBool(*f)
	case *int:
		return strconv.Itoa(*f)
	case *int32:
		return strconv.Itoa(int(*f))
	case *Bytes:
		return f.String()
	case *time.Duration:
		return FormatDuration(*f)
	case *[]string:
		return strings.Join(*f, ",")
	case *map[string]string:
		parts := make([]string, 0, len(*f))
		for _, k := range sortedKeys(*f) {
			parts = append(parts, k+"="+(*f)[k])
		}
		return strings.Join(parts, ";")
	}
	return ""
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func (s *Setting) setList(f *[]string, items []string) error {
	seen := make(map[string]bool, len(items))
	for _, item := range items {
		if s.Choices != nil && !slices.Contains(s.Choices, item) {
			return s.choiceError(item)
		}
		if seen[item] {
			return fmt.Errorf("%q is listed twice", item)
		}
		seen[item] = true
	}
	if s.Choices != nil && len(items) == 0 {
		return fmt.Errorf("must name at least one of %s", strings.Join(s.Choices, ", "))
	}
	*f = items
	return nil
}

func (s *Setting) choiceError(v string) error {
	msg := fmt.Sprintf("%q is none of %s", v, strings.Join(s.Choices, ", "))
	if near := nearest(v, s.Choices); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return errors.New(msg)
}

func (s *Setting) number(v string) (int64, error) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", v)
	}
	return n, s.bounds(n, func(n int64) string { return strconv.FormatInt(n, 10) })
}

func (s *Setting) bounds(n int64, show func(int64) string) error {
	if n == 0 && s.Zero != "" {
		return nil
	}
	switch {
	case n < s.Min:
		return fmt.Errorf("%s is below the least value, %s", show(n), show(s.Min))
	case s.Max != 0 && n > s.Max:
		return fmt.Errorf("%s is above the largest value, %s", show(n), show(s.Max))
	}
	return nil
}

var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", kib}, {"MiB", mib}, {"GiB", gib}, {"TiB", tib}, {"PiB", 1 << 50},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15},
	{"B", 1},
}

// ParseBytes reads a size such as 64MiB, 1.5GiB, 10MB or 4096 (bytes).
// Negative sizes and those above 2^63-1 are errors.
func ParseBytes(v string) (Bytes, error) {
	digits, factor := v, int64(1)
	for _, u := range sizeUnits {
		if cut, ok := strings.CutSuffix(v, u.suffix); ok {
			digits, factor = strings.TrimSpace(cut), u.factor
			break
		}
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil && n >= 0 {
		if n > math.MaxInt64/factor {
			return 0, fmt.Errorf("size %q is too large", v)
		}
		return Bytes(n * factor), nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || f < 0 || math.IsNaN(f) || strings.ContainsAny(digits, "eExX") {
		return 0, fmt.Errorf("%q is not a size such as 64MiB, 1GiB or 4096", v)
	}
	if f*float64(factor) >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q is too large", v)
	}
	return Bytes(f * float64(factor)), nil
}

// String prints the size with the largest binary unit that divides it.
func (b Bytes) String() string {
	if b == 0 {
		return "0"
	}
	for _, u := range []struct {
		suffix string
		factor Bytes
	}{{"TiB", tib}, {"GiB", gib}, {"MiB", mib}, {"KiB", kib}} {
		if b%u.factor == 0 {
			return strconv.FormatInt(int64(b/u.factor), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// ParseDuration reads Go's durations, with days (d) and weeks (w) added, as in
// 7d, 1d12h or 500ms. 0 needs no unit. Negative durations are errors.
func ParseDuration(v string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration such as 500ms, 5m, 1h30m or 7d", v)
	rest, total := v, time.Duration(0)
	for _, u := range []struct {
		suffix string
		factor time.Duration
	}{{"w", 7 * day}, {"d", day}} {
		digits, after, ok := strings.Cut(rest, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 32)
		if err != nil {
			return 0, bad
		}
		if n > uint64(math.MaxInt64/2/u.factor) {
			return 0, fmt.Errorf("duration %q is too long", v)
		}
		total += time.Duration(n) * u.factor
		rest = after
	}
	if rest == "" && rest != v {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return 0, bad
	}
	if total+d < total {
		return 0, fmt.Errorf("duration %q is too long", v)
	}
	return total + d, nil
}

// FormatDuration prints d without the zero parts that Go's String keeps, and
// whole days as days.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	if d%day == 0 && d > day {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if cut, ok := strings.CutSuffix(s, "m0s"); ok {
		s = cut + "m"
	}
	if cut, ok := strings.CutSuffix(s, "h0m"); ok {
		s = cut + "h"
	}
	return s
}

func splitList(v string) []string {
	var items []string
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func splitMap(v string) (map[string]string, error) {
	m := make(map[string]string)
	for pair := range strings.SplitSeq(v, ";") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, val, ok := strings.Cut(pair, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not key=value", pair)
		}
		if _, dup := m[key]; dup {
			return nil, fmt.Errorf("%q is given twice", key)
		}
		m[key] = strings.TrimSpace(val)
	}
	return m, nil
}

func checkAddress(v string) error {
	_, _, err := splitHostPort(v)
	return err
}

func checkAdvertise(v string) error {
	_, _, err := splitAdvertise(v)
	return err
}

func checkPrefix(v string) error {
	if !strings.HasPrefix(v, "/") || !strings.HasSuffix(v, "/") || len(v) < 3 {
		return fmt.Errorf("%q must begin and end with a slash and name something", v)
	}
	return nil
}
