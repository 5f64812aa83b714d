package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// BuilderOptions are the header fields of the batches that a [Builder] makes. The zero
// value gives what a plain producer sends.
type BuilderOptions struct {
	BaseOffset  int64
	LeaderEpoch int32
	// ProducerID, ProducerEpoch and FirstSequence are used when ProducerID is not 0 or
	// Idempotent is set; else the batch has no producer.
	ProducerID    int64
	ProducerEpoch int16
	FirstSequence int32
	Idempotent    bool
	Transactional bool
	Control       bool
	// RawSnappy makes one raw block instead of xerial's framing.
	RawSnappy bool
}

// Builder makes batches: for tests and tools, and wherever tierbroker writes records of
// its own. It is not safe for concurrent use.
type Builder struct {
	codec     Codec
	o         BuilderOptions
	records   []byte
	body      []byte // of the record that is added
	count     int32
	lastDelta int32
	first     int64
	maxTime   int64
}

// NewBuilder returns an empty builder.
func NewBuilder(codec Codec, o BuilderOptions) *Builder {
	return &Builder{codec: codec, o: o, lastDelta: -1}
}

// Add appends a record. ts is in milliseconds since 1970; a nil key or value is null.
// Nothing is kept of the arguments.
func (b *Builder) Add(ts int64, key, value []byte, headers []RecordHeader) {
	b.add(b.lastDelta+1, ts, key, value, headers)
}

// AddAt appends a record with an offset of its own, which must be above that of the
// record before it, and less than 2^31 above the base offset: the batch then has gaps, as
// compacted ones do.
func (b *Builder) AddAt(offset, ts int64, key, value []byte, headers []RecordHeader) {
	b.add(int32(offset-b.o.BaseOffset), ts, key, value, headers)
}

func (b *Builder) add(delta int32, ts int64, key, value []byte, headers []RecordHeader) {
	if b.count == 0 {
		b.first, b.maxTime = ts, ts
	}
	b.maxTime = max(b.maxTime, ts)
	body := append(b.body[:0], 0)
	body = binary.AppendVarint(body, ts-b.first)
	body = binary.AppendVarint(body, int64(delta))
	body = appendField(body, key)
	body = appendField(body, value)
	body = binary.AppendVarint(body, int64(len(headers)))
	for _, h := range headers {
		body = binary.AppendVarint(body, int64(len(h.Key)))
		body = append(body, h.Key...)
		body = appendField(body, h.Value)
	}
	b.body = body
	b.records = binary.AppendVarint(b.records, int64(len(body)))
	b.records = append(b.records, body...)
	b.lastDelta = delta
	b.count++
}

func appendField(dst, val []byte) []byte {
	if val == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(val)))
	return append(dst, val...)
}

// Count returns how many records were added.
func (b *Builder) Count() int { return int(b.count) }

// Len returns the size of the batch without compression, in bytes.
func (b *Builder) Len() int { return HeaderLen + len(b.records) }

// Reset makes the builder empty, for a batch with the same options.
func (b *Builder) Reset() {
	b.records, b.count, b.lastDelta = b.records[:0], 0, -1
}

// Bytes returns the batch; the caller owns it. An empty builder gives a batch without
// records, which a producer may not send.
func (b *Builder) Bytes() []byte {
	out := make([]byte, HeaderLen, HeaderLen+len(b.records))
	out = appendCompressed(out, b.codec, b.records, b.o.RawSnappy)
	be := binary.BigEndian
	be.PutUint64(out, uint64(b.o.BaseOffset))
	be.PutUint32(out[8:], uint32(len(out)-lengthSkew))
	be.PutUint32(out[12:], uint32(b.o.LeaderEpoch))
	out[magicAt] = 2
	be.PutUint16(out[attributesAt:], b.attributes())
	be.PutUint32(out[23:], uint32(max(b.lastDelta, 0)))
	first, maxTime := b.first, b.maxTime
	if b.count == 0 {
		first, maxTime = -1, -1
	}
	be.PutUint64(out[27:], uint64(first))
	be.PutUint64(out[maxTimeAt:], uint64(maxTime))
	id, epoch, seq := int64(-1), int16(-1), int32(-1)
	if b.o.ProducerID != 0 || b.o.Idempotent {
		id, epoch, seq = b.o.ProducerID, b.o.ProducerEpoch, b.o.FirstSequence
	}
	be.PutUint64(out[43:], uint64(id))
	be.PutUint16(out[51:], uint16(epoch))
	be.PutUint32(out[53:], uint32(seq))
	be.PutUint32(out[57:], uint32(b.count))
	be.PutUint32(out[crcAt:], CRC(out))
	return out
}

func (b *Builder) attributes() uint16 {
	a := uint16(b.codec) & codecMask
	if b.o.Transactional {
		a |= bitTransactional
	}
	if b.o.Control {
		a |= bitControl
	}
	return a
}

// zstdEncoder is shared: EncodeAll may be called from many goroutines.
var zstdEncoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
})

// appendCompressed appends records in the codec's form. Writing to memory cannot fail, so
// an error is a broken codec library; an unknown codec is the caller's mistake.
func appendCompressed(dst []byte, codec Codec, records []byte, rawSnappy bool) []byte {
	buf := bytes.NewBuffer(dst)
	var err error
	switch codec {
	case None:
		return append(dst, records...)
	case Gzip:
		w := gzip.NewWriter(buf)
		if _, err = w.Write(records); err == nil {
			err = w.Close()
		}
	case Snappy:
		return appendSnappy(dst, records, rawSnappy)
	case LZ4:
		w := lz4.NewWriter(buf)
		if err = w.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err == nil {
			if _, err = w.Write(records); err == nil {
				err = w.Close()
			}
		}
	case Zstd:
		var enc *zstd.Encoder
		if enc, err = zstdEncoder(); err == nil {
			return enc.EncodeAll(records, dst)
		}
	default:
		err = ErrCodec
	}
	if err != nil {
		panic(fmt.Sprintf("batch: build %s: %v", codec, err))
	}
	return buf.Bytes()
}

// xerialChunk is how many bytes the Java library puts into a chunk.
const xerialChunk = 32 << 10

func appendSnappy(dst, records []byte, raw bool) []byte {
	if raw {
		return append(dst, s2.EncodeSnappy(nil, records)...)
	}
	dst = append(dst, xerialMagic...)
	dst = append(dst, 0, 0, 0, 1, 0, 0, 0, 1)
	for len(records) > 0 {
		n := min(len(records), xerialChunk)
		block := s2.EncodeSnappy(nil, records[:n])
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = append(dst, block...)
		records = records[n:]
	}
	return dst
}
