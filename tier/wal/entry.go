package wal

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/varint"
)

// Entry is one part of a WAL object: a run of batches of one partition, whose offsets follow each other.
type Entry struct {
	ID            frame.PartitionID
	Topic         string
	Epoch         int32  // of the partition's ownership
	Start, End    int64  // offsets, End excluded
	Seq           uint64 // number of the object
	Key           string // of the object
	Size          int64  // of the object, bytes
	Off, Len      int64  // where the batches lie in it, bytes
	CRC           uint32 // CRC32C of [Off, Off+Len)
	MaxTimestamp  int64  // milliseconds, as all times; -1 when unknown
	MaxAppendTime int64
	RetentionTime int64 // see tier.RetentionTime
	Bytes         int64 // of the batches
	Records       int64
	Batches       []BatchInfo
}

// BatchInfo tells what a batch's header says, so that producer state can be rebuilt without reading the batch.
type BatchInfo struct {
	Base, Last    int64 // offsets
	Pos           int32 // where it begins in its part, bytes
	Size          int32
	MaxTimestamp  int64
	AppendTime    int64 // 0 or less when unknown
	ProducerID    int64 // -1 for none
	ProducerEpoch int16
	FirstSequence int32
	Records       int32
}

// Extent describes the entry for a head, without copying a byte.
func (e *Entry) Extent() tier.Extent {
	return tier.Extent{
		Start: e.Start, End: e.End, Kind: tier.KindWAL, Key: e.Key, Size: e.Size, Off: e.Off, Len: e.Len, CRC: e.CRC,
		MaxTimestamp: e.MaxTimestamp, MaxAppendTime: e.MaxAppendTime, RetentionTime: e.RetentionTime, Bytes: e.Bytes, Records: e.Records, Epoch: e.Epoch,
	}
}

// Cut returns the entry for the offsets in [from, to) only; ok is false when it has none of them. Batches are kept whole: bytes,
// records and times count those that reach into the range. Place and checksum stay those of the whole part.
func (e *Entry) Cut(from, to int64) (c Entry, ok bool) {
	from, to = max(from, e.Start), min(to, e.End)
	if from >= to {
		return Entry{}, false
	}
	if from == e.Start && to == e.End {
		return *e, true
	}
	c = *e
	c.Start, c.End, c.Batches = from, to, nil
	for i := range e.Batches {
		if b := &e.Batches[i]; b.Last >= from && b.Base < to {
			c.Batches = append(c.Batches, *b)
		}
	}
	c.sum()
	return c, true
}

// sum computes what follows from the batches.
func (e *Entry) sum() {
	e.MaxTimestamp, e.MaxAppendTime, e.RetentionTime, e.Bytes, e.Records = -1, -1, -1, 0, 0
	for i := range e.Batches {
		b := &e.Batches[i]
		e.MaxTimestamp = max(e.MaxTimestamp, b.MaxTimestamp)
		if b.AppendTime > 0 {
			e.MaxAppendTime = max(e.MaxAppendTime, b.AppendTime)
		}
		e.RetentionTime = max(e.RetentionTime, tier.RetentionTime(b.MaxTimestamp, b.AppendTime))
		e.Bytes += int64(b.Size)
		e.Records += int64(b.Records)
	}
}

const (
	maxFooter   = 64 << 20
	maxTopic    = 1024
	maxCluster  = 256
	minPartLen  = 1 + 16 + 5 + 4 + 2 // bytes that the shortest part takes in a footer
	minBatchLen = 8
)

// footer is what a data object says about itself and its parts.
type footer struct {
	created            int64 // milliseconds
	cluster            string
	clusterIncarnation string
	incarnation        string // of the broker's run
	end                int64  // where the parts end in the object
	parts              []byte // encoded, see walkParts
	count              int
}

func (f *footer) append(dst []byte) []byte {
	dst = binary.AppendVarint(dst, f.created)
	dst = appendString(dst, f.cluster)
	dst = appendString(dst, f.clusterIncarnation)
	dst = appendString(dst, f.incarnation)
	dst = binary.AppendUvarint(dst, uint64(f.end))
	dst = binary.AppendUvarint(dst, uint64(f.count))
	return append(dst, f.parts...)
}

func decodeFooter(b []byte) (f footer, err error) {
	d := varint.Read(b)
	f.created = d.Varint()
	f.cluster = d.String(maxCluster)
	f.clusterIncarnation = d.String(maxCluster)
	f.incarnation = d.String(maxIncarnation)
	f.end = int64(d.Uvarint(MaxObject))
	f.count = d.Count(minPartLen)
	f.parts = d.Rest()
	if d.Bad() || len(b) > maxFooter {
		return f, corrupt("footer", "its %d bytes are none", len(b))
	}
	return f, nil
}

// appendPart encodes one part. Its place follows from the lengths of the parts before it.
func appendPart(dst []byte, e *Entry) []byte {
	var scratch [32]byte
	body := append(make([]byte, 0, 64+24*len(e.Batches)), e.ID.Topic[:]...)
	body = binary.AppendUvarint(body, uint64(e.ID.Partition))
	body = appendString(body, e.Topic)
	body = binary.AppendUvarint(body, uint64(e.Epoch))
	body = binary.AppendUvarint(body, uint64(e.Len))
	body = binary.BigEndian.AppendUint32(body, e.CRC)
	body = binary.AppendUvarint(body, uint64(e.Start))
	body = binary.AppendUvarint(body, uint64(len(e.Batches)))
	var ts, appended, pid int64
	for i := range e.Batches {
		b := &e.Batches[i]
		body = binary.AppendUvarint(body, uint64(b.Last-b.Base))
		body = binary.AppendUvarint(body, uint64(b.Size))
		body = binary.AppendVarint(body, b.MaxTimestamp-ts)
		body = binary.AppendVarint(body, b.AppendTime-appended)
		body = binary.AppendVarint(body, b.ProducerID-pid)
		body = binary.AppendVarint(body, int64(b.ProducerEpoch))
		body = binary.AppendVarint(body, int64(b.FirstSequence))
		body = binary.AppendUvarint(body, uint64(b.Records))
		ts, appended, pid = b.MaxTimestamp, b.AppendTime, b.ProducerID
	}
	dst = append(dst, binary.AppendUvarint(scratch[:0], uint64(len(body)))...)
	return append(dst, body...)
}

// partHead is the beginning of a part in a footer: all but its batches.
type partHead struct {
	id    frame.PartitionID
	off   int64
	len   int64
	bytes []byte // the encoded part
}

// walkParts calls fn for each part. They must fill the object from its header to the end that the footer names.
func (f *footer) walkParts(fn func(p partHead) error) error {
	d := varint.Read(f.parts)
	off, end := int64(headerLen), f.end
	for i := range f.count {
		body := d.Prefixed()
		p := varint.Read(body)
		h := partHead{off: off, bytes: body}
		copy(h.id.Topic[:], p.Bytes(16))
		h.id.Partition = int32(p.Uvarint(math.MaxInt32))
		p.Bytes(int(p.Uvarint(maxTopic)))
		p.Uvarint(math.MaxInt32)
		h.len = int64(p.Uvarint(uint64(max(end-off, 0))))
		if d.Bad() || p.Bad() || h.len == 0 {
			return corrupt("footer", "part %d of %d is wrong", i, f.count)
		}
		if err := fn(h); err != nil {
			return err
		}
		off += h.len
	}
	if !d.Done() || off != end {
		return corrupt("footer", "%d parts end at byte %d instead of %d", f.count, off, end)
	}
	return nil
}

// decodePart reads one part; Seq, Key, Size and Off are the caller's to set.
func decodePart(body []byte) (Entry, error) {
	d := varint.Read(body)
	var e Entry
	copy(e.ID.Topic[:], d.Bytes(16))
	e.ID.Partition = int32(d.Uvarint(math.MaxInt32))
	e.Topic = d.String(maxTopic)
	e.Epoch = int32(d.Uvarint(math.MaxInt32))
	e.Len = int64(d.Uvarint(MaxObject))
	e.CRC = d.Uint32()
	e.Start = int64(d.Uvarint(maxOffset))
	n := d.Count(minBatchLen)
	e.Batches = make([]BatchInfo, 0, n)
	next, pos := e.Start, int64(0)
	var ts, appended, pid int64
	for i := range n {
		b := BatchInfo{Base: next, Pos: int32(pos)}
		b.Last = next + int64(d.Uvarint(uint64(maxOffset-next)))
		size := int64(d.Uvarint(uint64(e.Len - pos)))
		b.Size = int32(size)
		b.MaxTimestamp = ts + d.Varint() // wraps as the writer's difference did
		b.AppendTime = appended + d.Varint()
		b.ProducerID = pid + d.Varint()
		b.ProducerEpoch = int16(d.Between(math.MinInt16, math.MaxInt16))
		b.FirstSequence = int32(d.Between(math.MinInt32, math.MaxInt32))
		b.Records = int32(d.Uvarint(math.MaxInt32))
		if d.Bad() || size < batch.HeaderLen || b.Last == maxOffset {
			return Entry{}, corrupt("footer", "batch %d of %d of a part of %v is wrong", i, n, e.ID)
		}
		next, pos = b.Last+1, pos+size
		ts, appended, pid = b.MaxTimestamp, b.AppendTime, b.ProducerID
		e.Batches = append(e.Batches, b)
	}
	e.End = next
	if !d.Done() || pos != e.Len || n == 0 {
		return Entry{}, corrupt("footer", "part of %v: %d batches fill %d of %d bytes", e.ID, n, pos, e.Len)
	}
	if e.Len > MaxPart && n > 1 {
		return Entry{}, fmt.Errorf("part of %v: %w", e.ID, corrupt("footer", "%d bytes in %d batches", e.Len, n))
	}
	e.sum()
	return e, nil
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

const maxOffset = math.MaxInt64 - 1 // so that the next offset exists
