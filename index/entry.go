package index

import (
	"encoding/binary"
	"math"

	"github.com/tierbroker/tierbroker/varint"
)

// Entry says where a batch is: its offsets, the position of its frame in the CommitLog,
// the length of the frame's header and of the payload behind it, in bytes. Timestamps are
// milliseconds since 1970.
type Entry struct {
	Base, Last   int64
	Position     uint64
	HeaderLen    uint16
	Length       uint32
	MaxTimestamp int64
	Epoch        int32
	Records      int32
	AppendTime   int64
}

// appendEntry encodes all of e but Last, which is in the key.
func appendEntry(dst []byte, e *Entry) []byte {
	dst = binary.AppendUvarint(dst, uint64(e.Last-e.Base))
	dst = binary.AppendUvarint(dst, e.Position)
	dst = binary.AppendUvarint(dst, uint64(e.HeaderLen))
	dst = binary.AppendUvarint(dst, uint64(e.Length))
	dst = binary.AppendVarint(dst, e.MaxTimestamp)
	dst = binary.AppendVarint(dst, int64(e.Epoch))
	dst = binary.AppendVarint(dst, int64(e.Records))
	return binary.AppendVarint(dst, e.AppendTime-e.MaxTimestamp) // usually small; may wrap, and wraps back
}

// decodeEntry reads an entry from its key and value.
func decodeEntry(key, val []byte) (Entry, bool) {
	if len(key) != entryKeyLen {
		return Entry{}, false
	}
	e := Entry{Last: int64(binary.BigEndian.Uint64(key[prefixLen:]))}
	r := varint.Read(val)
	e.Base = e.Last - int64(r.Uvarint(math.MaxInt64))
	e.Position = r.Uvarint(math.MaxUint64)
	e.HeaderLen = uint16(r.Uvarint(math.MaxUint16))
	e.Length = uint32(r.Uvarint(math.MaxUint32))
	e.MaxTimestamp = r.Between(math.MinInt64, math.MaxInt64)
	e.Epoch = int32(r.Between(math.MinInt32, math.MaxInt32))
	e.Records = int32(r.Between(math.MinInt32, math.MaxInt32))
	e.AppendTime = e.MaxTimestamp + r.Between(math.MinInt64, math.MaxInt64)
	if !r.Done() || e.Base < 0 || e.Last < 0 {
		return Entry{}, false
	}
	return e, true
}

// decodeCheckpoint reads the checkpoint's value; extra is a part of it.
func decodeCheckpoint(val []byte) (pos uint64, extra []byte, ok bool) {
	if len(val) < 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(val), val[8:], true
}

// decodeFileUse reads the key and value of a file use.
func decodeFileUse(key, val []byte) (base uint64, last int64, ok bool) {
	if len(key) != fileKeyLen || len(val) != 8 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), int64(binary.BigEndian.Uint64(val)), true
}
