package main

import (
	"bytes"
	"fmt"
	"strings"
)

const (
	// records is how many records each round trip has.
	records = 500
	// firstTime is the timestamp of the first; each following one is a second later.
	firstTime = 1_600_000_000_000
	// partition is the one of three that is written.
	partition = 1
)

type header struct {
	key   string
	value []byte
}

type record struct {
	offset, time int64
	key, value   []byte // nil when null
	headers      []header
}

// dataset is what every client writes and expects. ../js/dataset.mjs makes the same.
func dataset() []record {
	all := make([]record, records)
	for i := range all {
		r := record{offset: int64(i), time: firstTime + int64(i)*1000}
		switch i % 7 {
		case 3:
		case 5:
			r.key = []byte{}
		default:
			r.key = fmt.Appendf(nil, "key-%06d", i)
		}
		if i%50 != 49 {
			r.value = fmt.Appendf(nil, "%d:%s", i, strings.Repeat(string(rune('a'+i%26)), i*37%2000))
		}
		if i%3 == 0 {
			r.headers = []header{{"name", fmt.Appendf(nil, "header %d", i)}, {"bytes", []byte{0, 255, byte(i)}}}
		}
		all[i] = r
	}
	return all
}

// compare says how what was read differs from what was written, if it does. loose is for a
// client that does not tell null from empty.
func compare(want, got []record, loose bool) error {
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (loose || (a == nil) == (b == nil)) }
	if len(want) != len(got) {
		return fmt.Errorf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		w, g := &want[i], &got[i]
		switch {
		case w.offset != g.offset:
			return fmt.Errorf("record %d: offset %d, want %d", i, g.offset, w.offset)
		case w.time != g.time:
			return fmt.Errorf("record %d: timestamp %d, want %d", i, g.time, w.time)
		case !same(w.key, g.key):
			return fmt.Errorf("record %d: key %q, want %q", i, g.key, w.key)
		case !same(w.value, g.value):
			return fmt.Errorf("record %d: another value: %.40q, want %.40q", i, g.value, w.value)
		case len(w.headers) != len(g.headers):
			return fmt.Errorf("record %d: %d headers, want %d", i, len(g.headers), len(w.headers))
		}
		for j, h := range w.headers {
			if h.key != g.headers[j].key || !same(h.value, g.headers[j].value) {
				return fmt.Errorf("record %d: header %d is %v, want %v", i, j, g.headers[j], h)
			}
		}
	}
	return nil
}
