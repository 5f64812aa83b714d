package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

const (
	// HeaderLen is the length of a batch without records, in bytes.
	HeaderLen = 61
	// PrefixLen is how many bytes precede what the CRC covers.
	PrefixLen = 21

	lengthSkew   = 12 // bytes up to and with the length field
	magicAt      = 16
	crcAt        = 17
	attributesAt = 21
	maxTimeAt    = 35
)

// Attribute bits.
const (
	codecMask        = 0x07
	bitLogAppendTime = 1 << 3
	bitTransactional = 1 << 4
	bitControl       = 1 << 5
	bitDeleteHorizon = 1 << 6
)

// Codec is a compression codec as numbered in the attributes of a batch.
type Codec int8

// The codecs of Kafka.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String returns Kafka's name of the codec.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec-%d", int8(c))
}

// ParseCodec reads the names that [Codec.String] writes; "" is None.
func ParseCodec(s string) (Codec, error) {
	for c := None; c <= Zstd; c++ {
		if s == c.String() {
			return c, nil
		}
	}
	if s == "" {
		return None, nil
	}
	return 0, fmt.Errorf("%w: %.20q", ErrCodec, s)
}

// Header is the fixed part of a batch, as it stands in the bytes. Timestamps are
// milliseconds since 1970, -1 for none.
type Header struct {
	BaseOffset      int64
	Length          int32
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	FirstTimestamp  int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	FirstSequence   int32
	RecordCount     int32
}

// Size returns how many bytes the whole batch takes.
func (h *Header) Size() int { return int(h.Length) + lengthSkew }

// LastOffset returns the offset of the last record (of the last one ever in it, when the
// batch was compacted).
func (h *Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// Codec returns how the records are compressed; it may be a codec that does not exist.
func (h *Header) Codec() Codec { return Codec(h.Attributes & codecMask) }

// IsLogAppendTime reports whether the max timestamp is that of every record.
func (h *Header) IsLogAppendTime() bool { return h.Attributes&bitLogAppendTime != 0 }

// IsTransactional reports whether the batch belongs to a transaction.
func (h *Header) IsTransactional() bool { return h.Attributes&bitTransactional != 0 }

// IsControl reports whether the records are control records (transaction markers).
func (h *Header) IsControl() bool { return h.Attributes&bitControl != 0 }

// HasProducer reports whether an idempotent producer wrote the batch.
func (h *Header) HasProducer() bool { return h.ProducerID >= 0 }

// LastSequence returns the sequence number of the last record. Sequences wrap to 0 after
// the largest int32. Without a producer it is -1.
func (h *Header) LastSequence() int32 {
	if h.FirstSequence < 0 {
		return -1
	}
	return AddSequence(h.FirstSequence, h.LastOffsetDelta)
}

// AddSequence returns sequence number seq advanced by n >= 0, wrapping as Kafka does.
func AddSequence(seq, n int32) int32 {
	if seq > math.MaxInt32-n {
		return n - (math.MaxInt32 - seq) - 1
	}
	return seq + n
}

// ParseHeader reads the header at the start of b, which may be longer than the batch, or
// hold no more than its header. Only the structure is checked. Errors: ErrShort,
// ErrMagic, ErrCount for a negative count.
func ParseHeader(b []byte) (Header, error) {
	if len(b) <= magicAt {
		return Header{}, ErrShort
	}
	if m := int8(b[magicAt]); m != 2 { // older formats are shorter than HeaderLen
		return Header{}, fmt.Errorf("%w but %d", ErrMagic, m)
	}
	if len(b) < HeaderLen {
		return Header{}, ErrShort
	}
	be := binary.BigEndian
	h := Header{
		BaseOffset:      int64(be.Uint64(b)),
		Length:          int32(be.Uint32(b[8:])),
		LeaderEpoch:     int32(be.Uint32(b[12:])),
		Magic:           2,
		CRC:             be.Uint32(b[crcAt:]),
		Attributes:      int16(be.Uint16(b[attributesAt:])),
		LastOffsetDelta: int32(be.Uint32(b[23:])),
		FirstTimestamp:  int64(be.Uint64(b[27:])),
		MaxTimestamp:    int64(be.Uint64(b[maxTimeAt:])),
		ProducerID:      int64(be.Uint64(b[43:])),
		ProducerEpoch:   int16(be.Uint16(b[51:])),
		FirstSequence:   int32(be.Uint32(b[53:])),
		RecordCount:     int32(be.Uint32(b[57:])),
	}
	if h.Length < HeaderLen-lengthSkew {
		return Header{}, fmt.Errorf("%w: length field %d", ErrShort, h.Length)
	}
	if h.RecordCount < 0 || h.LastOffsetDelta < 0 {
		return Header{}, fmt.Errorf("%w: %d records, last offset delta %d", ErrCount, h.RecordCount, h.LastOffsetDelta)
	}
	return h, nil
}

// Next cuts the first batch off b: one is that batch, whole, and rest what follows it.
// Errors as ParseHeader, and ErrShort when b ends inside of the batch.
func Next(b []byte) (h Header, one, rest []byte, err error) {
	h, err = ParseHeader(b)
	if err != nil {
		return Header{}, nil, nil, err
	}
	n := h.Size()
	if n > len(b) {
		return Header{}, nil, nil, fmt.Errorf("%w: batch of %d bytes in %d", ErrShort, n, len(b))
	}
	return h, b[:n:n], b[n:], nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC computes the checksum of the whole batch b, which must be at least HeaderLen long.
func CRC(b []byte) uint32 { return crc32.Checksum(b[PrefixLen:], castagnoli) }

// CheckCRC compares the checksum of the whole batch b with the stored one. Errors:
// ErrShort, ErrCRC.
func CheckCRC(b []byte) error {
	if len(b) < HeaderLen {
		return ErrShort
	}
	if CRC(b) != binary.BigEndian.Uint32(b[crcAt:]) {
		return ErrCRC
	}
	return nil
}

// Stamp sets base offset and leader epoch of the batch b in place. The CRC does not cover
// them.
func Stamp(b []byte, base int64, epoch int32) {
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[12:], uint32(epoch))
}

// StampAppendTime makes ms the timestamp of every record of the whole batch b, in place:
// it sets the attribute bit and the max timestamp, and computes the CRC anew.
func StampAppendTime(b []byte, ms int64) {
	attributes := binary.BigEndian.Uint16(b[attributesAt:])
	binary.BigEndian.PutUint16(b[attributesAt:], attributes|bitLogAppendTime)
	setMaxTimestamp(b, ms)
}

// setMaxTimestamp changes the max timestamp of the whole batch b, and its CRC.
func setMaxTimestamp(b []byte, ms int64) {
	binary.BigEndian.PutUint64(b[maxTimeAt:], uint64(ms))
	binary.BigEndian.PutUint32(b[crcAt:], CRC(b))
}
