package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The checker must find what it is there for.
func TestCheckerFinds(t *testing.T) {
	s := slot{"t", 0}
	value := func(seq int) string { return fmt.Sprintf("p/t-0 %d .", seq) }
	// whole is a history of five acknowledged records, and what a reader at the end gets.
	whole := func() (*history, map[int64]string) {
		h, read := newHistory(), map[int64]string{}
		for i := range 5 {
			h.acknowledged("p", s, int64(i), value(i))
			read[int64(i)] = value(i)
		}
		return h, read
	}
	batch := func(high, start int64, offsets ...int64) *kgo.FetchPartition {
		p := &kgo.FetchPartition{HighWatermark: high, LogStartOffset: start}
		for _, o := range offsets {
			p.Records = append(p.Records, &kgo.Record{Topic: s.topic, Offset: o, Value: []byte(value(int(o)))})
		}
		return p
	}
	newView := func(h *history) *view {
		return &view{c: &crowd{h: h}, name: "c", next: map[slot]int64{}, high: map[slot]int64{}, start: map[slot]int64{}}
	}
	for want, spoil := range map[string]func(h *history, read map[int64]string){
		"": func(h *history, read map[int64]string) {
			v := newView(h)
			v.take(s, batch(3, 0, 0, 1, 2))
			v.take(s, batch(5, 0, 3, 4))
		},
		"lost":           func(_ *history, read map[int64]string) { delete(read, 4) },
		"hole":           func(_ *history, read map[int64]string) { delete(read, 2) },
		"two contents":   func(h *history, _ map[int64]string) { h.told("c", s, 3, value(7)) },
		"two offsets":    func(h *history, _ map[int64]string) { h.told("c", s, 9, value(3)) },
		"out of order":   func(_ *history, read map[int64]string) { read[5] = value(4) },
		"strange record": func(_ *history, read map[int64]string) { read[5] = "?" },
		"start":          func(h *history, _ map[int64]string) { h.deleting(s, 2); h.deleted(s, 2) },
		"high watermark went back": func(h *history, _ map[int64]string) {
			v := newView(h)
			v.take(s, batch(5, 0))
			v.take(s, batch(4, 0))
		},
		"start went back": func(h *history, _ map[int64]string) {
			v := newView(h)
			v.take(s, batch(5, 2))
			v.take(s, batch(5, 1))
		},
		"consumer jumped": func(h *history, _ map[int64]string) {
			v := newView(h)
			v.take(s, batch(5, 0, 0, 1))
			v.take(s, batch(5, 0, 3))
		},
		"consumer says loss": func(h *history, _ map[int64]string) {
			newView(h).failed(s, &kgo.ErrDataLoss{Topic: s.topic, ConsumedTo: 4, ResetTo: 2})
		},
		"commit went back":     func(h *history, _ map[int64]string) { h.position(s, 2, 3) },
		"skipped by the group": func(h *history, _ map[int64]string) { h.delivered(s, 0); h.committed(s, 2) },
	} {
		t.Run(want, func(t *testing.T) {
			h, read := whole()
			spoil(h, read)
			h.whole(s, 0, 5, read)
			h.groupWhole()
			found := strings.Join(h.found(), "\n")
			if want == "" {
				require.Empty(t, found)
			} else {
				require.Contains(t, found, want+": ")
			}
		})
	}
}
