package partition

import (
	"context"
	"math"
	"slices"

	"github.com/tierbroker/tierbroker/tier/wal"
)

// What of the stream still matters: the objects with parts that no head covers yet. Below the lowest of them is the floor,
// which every object carries; a successor doesn't look below it, and the sweep deletes what lies there.

type liveObject struct {
	parts int
	bytes int64
	users []*Partition
}

// streamPart is a part that the head doesn't cover yet.
type streamPart struct {
	seq uint64
	to  int64
}

// note remembers that the heads of an object's partitions don't cover it yet.
func (st *stream) note(seq uint64, parts []streamed, bytes int64) {
	l := &liveObject{parts: len(parts), bytes: bytes}
	st.mu.Lock()
	st.live[seq] = l
	for i := range parts {
		l.users = append(l.users, parts[i].p)
	}
	st.mu.Unlock()
	for i := range parts {
		p := parts[i].p
		p.mu.Lock()
		p.inStream = append(p.inStream, streamPart{seq, parts[i].to})
		p.releaseParts(p.tiered)
		if p.unneeded {
			p.releaseParts(math.MaxInt64)
		}
		p.mu.Unlock()
	}
}

// releaseParts forgets the parts that the head covers. The caller holds p.mu.
func (p *Partition) releaseParts(to int64) {
	n := 0
	for n < len(p.inStream) && p.inStream[n].to <= to {
		p.set.stream.release(p.inStream[n].seq)
		n++
	}
	if n > 0 {
		p.inStream = slices.Delete(p.inStream, 0, n)
	}
}

// releaseAll forgets all parts, also of objects that are being made: no head will ever need them.
func (p *Partition) releaseAll() {
	p.mu.Lock()
	p.unneeded = true
	p.releaseParts(math.MaxInt64)
	p.mu.Unlock()
}

func (st *stream) release(seq uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if l := st.live[seq]; l != nil {
		if l.parts--; l.parts <= 0 {
			delete(st.live, seq)
		}
	}
}

// setFloor tells the writer, and with its next object everybody, below which number nothing matters any more.
func (st *stream) setFloor(w *wal.Writer) {
	st.mu.Lock()
	floor := w.Next()
	for seq := range st.live {
		floor = min(floor, seq)
	}
	st.mu.Unlock()
	w.SetFloor(floor)
}

// Bounds of what a successor has to read, beyond which partitions are rolled although they aren't due.
const (
	maxStreamLive    = 1 << 30
	maxStreamObjects = 600 // a minute's, at one each 100 ms
)

// pinning returns the partitions whose parts keep the stream from getting shorter, when it is too long.
func (st *stream) pinning() []*Partition {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.writer == nil || len(st.live) == 0 {
		return nil
	}
	seqs := make([]uint64, 0, len(st.live))
	bytes := int64(0)
	for seq, l := range st.live {
		seqs = append(seqs, seq)
		bytes += l.bytes
	}
	slices.Sort(seqs)
	span := st.writer.Next() - seqs[0]
	if bytes <= maxStreamLive && span <= maxStreamObjects {
		return nil
	}
	var ps []*Partition
	for _, seq := range seqs {
		if seq > seqs[0]+span/2 {
			break
		}
		ps = append(ps, st.live[seq].users...)
	}
	slices.SortFunc(ps, func(a, b *Partition) int { return a.id.Compare(b.id) })
	return slices.Compact(ps)
}

// shorten has the partitions rolled that keep the stream long.
func (s *Set) shorten() {
	if s.stream == nil {
		return
	}
	for _, p := range s.stream.pinning() {
		p.mu.Lock()
		if len(p.inStream) > 0 && p.serving() {
			p.rollForced = true
			s.notePending(p)
			s.kickRoll(p)
		}
		p.mu.Unlock()
	}
}

// sweep deletes the stream's objects below its floor.
func (st *stream) sweep(ctx context.Context, now int64) error {
	st.mu.Lock()
	w := st.writer
	st.mu.Unlock()
	if w == nil {
		return nil
	}
	st.setFloor(w)
	_, err := w.Sweep(ctx, now)
	return err
}

// StreamStats describe a broker's WAL stream.
type StreamStats struct {
	wal.Stats
	QueuedBytes   int64 // stored locally, and not under way to the bucket
	PendingBytes  int64 // of these, and of what is under way
	NeededObjects int   // with batches that heads don't cover yet
	NeededBytes   int64
}

// Stream describes the WAL stream; ok is false while there is none.
func (s *Set) Stream() (x StreamStats, ok bool) {
	st := s.stream
	if st == nil {
		return x, false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.writer == nil {
		return x, false
	}
	x = StreamStats{Stats: st.writer.Stats(), QueuedBytes: st.queued, PendingBytes: st.pending, NeededObjects: len(st.live)}
	for _, l := range st.live {
		x.NeededBytes += l.bytes
	}
	return x, true
}
