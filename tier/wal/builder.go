package wal

import (
	"fmt"
	"hash/crc32"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
)

// Part says whose batches follow.
type Part struct {
	ID    frame.PartitionID
	Topic string
	Epoch int32 // of the partition's ownership
}

// Builder collects what becomes one object. It belongs to one goroutine, and to the Writer once it was given to Put.
type Builder struct {
	buf   []byte // header, then the bytes of all parts
	parts []byte // encoded
	count int
	cur   Entry // the part under way; without batches when there is none yet
	begun bool
	next  map[frame.PartitionID]int64
}

func (b *Builder) reset() {
	if cap(b.buf) < headerLen {
		b.buf = make([]byte, headerLen, 64<<10)
	}
	b.buf, b.parts, b.count, b.begun = b.buf[:headerLen], b.parts[:0], 0, false
	b.cur = Entry{Batches: b.cur.Batches[:0]}
	if b.next == nil {
		b.next = map[frame.PartitionID]int64{}
	}
	clear(b.next)
}

// Size is how many bytes the batches and the footer take so far.
func (b *Builder) Size() int { return len(b.buf) + len(b.parts) + 32*len(b.cur.Batches) }

// Empty reports whether no batch was added.
func (b *Builder) Empty() bool { return b.count == 0 && len(b.cur.Batches) == 0 }

// Begin says whose batches the next calls of Add bring. A part without batches leaves no trace.
func (b *Builder) Begin(p Part) {
	b.endPart()
	b.cur.ID, b.cur.Topic, b.cur.Epoch, b.begun = p.ID, p.Topic, p.Epoch, true
}

// Add copies one batch in, as it is stored: base offset and epoch are stamped. h is its header; appendTime is in milliseconds, 0 or
// less when unknown. Batches of a part follow each other without a hole; a hole needs a Begin before it. A part that gets too long goes
// on as another one. ErrNotContiguous and ErrTooLarge change nothing.
func (b *Builder) Add(batchBytes []byte, h *batch.Header, appendTime int64) error {
	e := &b.cur
	if !b.begun || len(batchBytes) != h.Size() || h.LastOffsetDelta < 0 || h.RecordCount < 0 || h.BaseOffset < 0 || h.BaseOffset > maxOffset-int64(h.LastOffsetDelta)-1 || len(e.Topic) > maxTopic || e.Epoch < 0 || e.ID.Partition < 0 {
		return fmt.Errorf("add batch at %d of %v to a WAL object: %d bytes, last offset delta %d: %w", h.BaseOffset, e.ID, len(batchBytes), h.LastOffsetDelta, ErrNotContiguous)
	}
	last, end := h.LastOffset(), b.next[e.ID]
	if len(e.Batches) > 0 && h.BaseOffset != end || h.BaseOffset < end {
		return fmt.Errorf("add batch at %d of %v to a WAL object, %d is next: %w", h.BaseOffset, e.ID, end, ErrNotContiguous)
	}
	if len(b.buf)+len(batchBytes) > MaxObject-maxFooter || len(b.parts) > maxFooter/2 || 40*len(e.Batches) > maxFooter/4 {
		return fmt.Errorf("add batch at %d of %v to a WAL object of %d bytes: %w", h.BaseOffset, e.ID, b.Size(), ErrTooLarge)
	}
	if len(e.Batches) > 0 && e.Len+int64(len(batchBytes)) > MaxPart {
		b.endPart()
	}
	if len(e.Batches) == 0 {
		e.Start = h.BaseOffset
	}
	e.Batches = append(e.Batches, BatchInfo{
		Base: h.BaseOffset, Last: last, Pos: int32(e.Len), Size: int32(len(batchBytes)), MaxTimestamp: h.MaxTimestamp, AppendTime: appendTime,
		ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, FirstSequence: h.FirstSequence, Records: h.RecordCount,
	})
	b.buf = append(b.buf, batchBytes...)
	e.CRC = crc32.Update(e.CRC, castagnoli, batchBytes)
	e.Len += int64(len(batchBytes))
	b.next[e.ID] = last + 1
	return nil
}

// endPart encodes the part under way. The next one is of the same partition unless Begin says otherwise.
func (b *Builder) endPart() {
	e := &b.cur
	if len(e.Batches) > 0 {
		b.parts = appendPart(b.parts, e)
		b.count++
	}
	e.Batches, e.Len, e.CRC, e.Start = e.Batches[:0], 0, 0, 0
}
