package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// slot is one partition of one topic.
type slot struct {
	topic     string
	partition int32
}

func (s slot) String() string { return fmt.Sprintf("%s-%d", s.topic, s.partition) }

// history is what all clients have been told of a cluster. It checks while it is told; what is wrong is collected, and each
// kind of it only a few times.
type history struct {
	began time.Time

	mu     sync.Mutex
	slots  map[slot]*slotHistory
	commit map[slot]*commitHistory
	faults []string
	kinds  map[string]int
}

// slotHistory is what is known of one partition.
type slotHistory struct {
	content map[int64]string // by offset: acknowledged or seen
	offset  map[string]int64 // by value
	source  map[int64]string // who said it first
	acked   map[string]bool
	lastAck time.Time
	// Deletions that were asked for may have happened, those that were confirmed have.
	askedStart, confirmedStart int64
}

// commitHistory is what is known of a group's position in one partition.
type commitHistory struct {
	confirmed, fetched int64
	delivered          map[int64]bool
}

func newHistory() *history {
	return &history{began: time.Now(), slots: map[slot]*slotHistory{}, commit: map[slot]*commitHistory{}, kinds: map[string]int{}}
}

// fault notes something that must not be. Only the first few of a kind are kept.
func (h *history) fault(kind, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faultLocked(kind, format, args...)
}

func (h *history) faultLocked(kind, format string, args ...any) {
	h.kinds[kind]++
	if h.kinds[kind] <= 5 {
		h.faults = append(h.faults, fmt.Sprintf("%7.2fs %s: %s", time.Since(h.began).Seconds(), kind, fmt.Sprintf(format, args...)))
	}
}

func (h *history) found() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.faults)
}

func (h *history) slot(s slot) *slotHistory {
	x := h.slots[s]
	if x == nil {
		x = &slotHistory{content: map[int64]string{}, offset: map[string]int64{}, source: map[int64]string{}, acked: map[string]bool{}}
		h.slots[s] = x
	}
	return x
}

// told notes that a record stands at an offset. Every value is written once, so it has one offset, and each offset one value.
func (h *history) told(who string, s slot, offset int64, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.slot(s)
	if old, ok := x.content[offset]; ok && old != value {
		h.faultLocked("two contents", "%s at %d: %s said %s, %s says %s", s, offset, x.source[offset], short(old), who, short(value))
		return
	}
	if old, ok := x.offset[value]; ok && old != offset {
		h.faultLocked("two offsets", "%s: %s stands at %d (%s) and at %d (%s)", s, short(value), old, x.source[old], offset, who)
		return
	}
	if _, ok := x.content[offset]; !ok {
		x.content[offset], x.offset[value], x.source[offset] = value, offset, who
	}
}

// acked notes an acknowledged record.
func (h *history) acknowledged(who string, s slot, offset int64, value string) {
	h.told(who, s, offset, value)
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.slot(s)
	x.acked[value], x.lastAck = true, time.Now()
}

// late returns the partitions without an acknowledgement after a time.
func (h *history) late(slots []slot, after time.Time) []slot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(slots), func(s slot) bool { return h.slot(s).lastAck.After(after) })
}

// deletable returns the offset in the middle of what is known of a partition.
func (h *history) deletable(s slot) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.slot(s)
	return x.askedStart + (int64(len(x.content))-x.askedStart)/2
}

func (h *history) deleting(s slot, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slot(s).askedStart = max(h.slot(s).askedStart, offset)
}

func (h *history) deleted(s slot, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slot(s).confirmedStart = max(h.slot(s).confirmedStart, offset)
}

// starts returns what the start of a partition may be now: at least from, at most to.
func (h *history) starts(s slot) (from, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.slot(s).confirmedStart, h.slot(s).askedStart
}

func (h *history) group(s slot) *commitHistory {
	c := h.commit[s]
	if c == nil {
		c = &commitHistory{delivered: map[int64]bool{}}
		h.commit[s] = c
	}
	return c
}

func (h *history) delivered(s slot, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.group(s).delivered[offset] = true
}

func (h *history) committed(s slot, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.group(s).confirmed = max(h.group(s).confirmed, offset)
}

// confirmedCommits returns the positions that the group has confirmed so far.
func (h *history) confirmedCommits() map[slot]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[slot]int64{}
	for s, c := range h.commit {
		out[s] = max(c.confirmed, c.fetched)
	}
	return out
}

// position notes a group's position that was read after `least` had been confirmed.
func (h *history) position(s slot, offset, least int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if offset < least {
		h.faultLocked("commit went back", "%s: %d after %d", s, offset, least)
	}
	c := h.group(s)
	c.fetched = max(c.fetched, offset)
}

// whole compares one partition with what was read of it at the end: records from start on, in order of offsets.
func (h *history) whole(s slot, start, end int64, read map[int64]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.slot(s)
	if start < x.confirmedStart || start > x.askedStart {
		h.faultLocked("start", "%s starts at %d; it was deleted up to %d, asked for %d", s, start, x.confirmedStart, x.askedStart)
	}
	for o, v := range x.content {
		if o < start {
			continue
		}
		if got, ok := read[o]; !ok {
			h.faultLocked("lost", "%s at %d: %s is gone (acknowledged: %v, said by %s); it ends at %d", s, o, short(v), x.acked[v], x.source[o], end)
		} else if got != v {
			h.faultLocked("two contents", "%s at %d: %s, at the end %s", s, o, short(v), short(got))
		}
	}
	h.inOrder(s, read)
}

// inOrder checks that each producer's records stand in the order in which they were written, each once.
func (h *history) inOrder(s slot, read map[int64]string) {
	offsets := make([]int64, 0, len(read))
	for o := range read {
		offsets = append(offsets, o)
	}
	slices.Sort(offsets)
	last := map[string]int{}
	for _, o := range offsets {
		name, seq, ok := origin(read[o])
		if !ok {
			h.faultLocked("strange record", "%s at %d: %s", s, o, short(read[o]))
			continue
		}
		if before, ok := last[name]; ok && seq != before+1 {
			h.faultLocked("out of order", "%s at %d: record %d of %s after %d", s, o, seq, name, before)
		}
		last[name] = seq
	}
	for i := 1; i < len(offsets); i++ {
		if offsets[i] != offsets[i-1]+1 {
			h.faultLocked("hole", "%s: %d after %d", s, offsets[i], offsets[i-1])
		}
	}
}

// groupWhole checks that nothing below a group's position was skipped.
func (h *history) groupWhole() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s, c := range h.commit {
		for o := h.slot(s).askedStart; o < max(c.confirmed, c.fetched); o++ {
			if !c.delivered[o] {
				h.faultLocked("skipped by the group", "%s at %d, position %d", s, o, c.confirmed)
			}
		}
	}
}

// first returns the lowest offset that anybody told of.
func (h *history) first(s slot) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	least := int64(-1)
	for o := range h.slot(s).content {
		if least < 0 || o < least {
			least = o
		}
	}
	return max(least, 0)
}

func (h *history) counts() (acked, seen int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.slots {
		acked += len(x.acked)
		seen += len(x.content)
	}
	return acked, seen
}

// origin reads who wrote a value and as which of its records.
func origin(value string) (name string, seq int, ok bool) {
	f := strings.SplitN(value, " ", 3)
	if len(f) != 3 {
		return "", 0, false
	}
	seq, err := strconv.Atoi(f[1])
	return f[0], seq, err == nil
}

func short(value string) string {
	return strconv.Quote(value[:min(len(value), 24)])
}
