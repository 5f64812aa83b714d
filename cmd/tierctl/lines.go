package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// What to do with a line that has no timestamp.
const (
	missingPrevious = "previous" // take that of the line before (a stack trace belongs to its line)
	missingNow      = "now"
	missingFail     = "fail"
)

// lineParser takes key and timestamp from a line.
type lineParser struct {
	key      *regexp.Regexp
	stamp    *regexp.Regexp
	parse    timeParser
	missing  string
	previous time.Time

	keyless, stampless int    // lines without a match
	unread             int    // the part of stampless where the pattern matched but the format did not fit
	example            string // the first of those
}

type lineOptions struct {
	keyPattern, timestampPattern, timestampFormat, timezone, missing string
}

func newLineParser(o lineOptions) (*lineParser, error) {
	p := &lineParser{missing: o.missing}
	var err error
	if p.key, err = pattern("key-pattern", o.keyPattern); err != nil {
		return nil, err
	}
	if p.stamp, err = pattern("timestamp-pattern", o.timestampPattern); err != nil {
		return nil, err
	}
	switch o.missing {
	case missingPrevious, missingNow, missingFail:
	default:
		return nil, usagef("--missing-timestamp must be previous, now or fail, not %q", o.missing)
	}
	if p.stamp == nil {
		return p, nil
	}
	loc, err := time.LoadLocation(o.timezone)
	if err != nil {
		return nil, usagef("--timezone: %w", err)
	}
	p.parse, err = newTimeParser(o.timestampFormat, loc)
	return p, err
}

func pattern(flag, text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, usagef("--%s: %w", flag, err)
	}
	return re, nil
}

// found returns the first group that took part in the match, or the whole match
// of a pattern without groups.
func found(re *regexp.Regexp, line []byte) ([]byte, bool) {
	m := re.FindSubmatchIndex(line)
	if m == nil {
		return nil, false
	}
	for i := 2; i+1 < len(m); i += 2 {
		if m[i] >= 0 {
			return line[m[i]:m[i+1]], true
		}
	}
	return line[m[0]:m[1]], true
}

// take returns a line's key, nil when it has none, and its timestamp, zero when
// the record shall get the time it is sent.
func (p *lineParser) take(line []byte) (key []byte, stamp time.Time, err error) {
	if p.key != nil {
		k, ok := found(p.key, line)
		if ok {
			key = bytes.Clone(k)
		} else {
			p.keyless++
		}
	}
	if p.stamp == nil {
		return key, time.Time{}, nil
	}
	text, ok := found(p.stamp, line)
	why := errors.New("no match")
	if ok {
		stamp, why = p.parse(string(text))
	}
	if why == nil {
		p.previous = stamp
		return key, stamp, nil
	}
	p.stampless++
	if ok {
		if p.unread == 0 {
			p.example = clip(text)
		}
		p.unread++
	}
	switch p.missing {
	case missingFail:
		return nil, time.Time{}, fmt.Errorf("no timestamp in %q: %w", clip(line), why)
	case missingPrevious:
		return key, p.previous, nil
	}
	return key, time.Time{}, nil
}

// clip shortens a line for a message.
func clip(line []byte) string {
	const most = 120
	if len(line) > most {
		return string(line[:most]) + "…"
	}
	return string(line)
}
