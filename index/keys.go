package index

import (
	"encoding/binary"
	"math"

	"github.com/tierbroker/tierbroker/frame"
)

// Kinds of keys: their first byte.
const (
	kindCheckpoint = 'c'
	kindEntry      = 'e'
	kindFileUse    = 'f'
	kindHead       = 'h'
	kindMeta       = 'm'
	kindProducer   = 'p'
	kindTime       = 't'
	kindVersion    = 'v'
)

const (
	idLen       = 20
	prefixLen   = 1 + idLen     // kind, topic id, partition
	entryKeyLen = prefixLen + 8 // also of producer keys
	timeKeyLen  = prefixLen + 16
	fileKeyLen  = 1 + 8 + idLen
	maxKeyLen   = timeKeyLen
)

// Signed numbers are stored with their sign bit flipped, so that bytes sort as they do.
func putSigned(dst []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(v)^(1<<63))
}

func getSigned(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ (1 << 63)) }

func putID(dst []byte, id frame.PartitionID) []byte {
	dst = append(dst, id.Topic[:]...)
	return binary.BigEndian.AppendUint32(dst, uint32(id.Partition))
}

func getID(b []byte) frame.PartitionID {
	return frame.PartitionID{Topic: frame.TopicID(b[:16]), Partition: int32(binary.BigEndian.Uint32(b[16:]))}
}

// prefix is the start of all keys of a kind and partition.
func prefix(dst []byte, kind byte, id frame.PartitionID) []byte {
	return putID(append(dst[:0], kind), id)
}

// prefixEnd is the first key after all that start with prefix.
func prefixEnd(dst []byte, kind byte, id frame.PartitionID) []byte {
	dst = prefix(dst, kind, id)
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i]++
		if dst[i] != 0 {
			return dst[:i+1]
		}
	}
	return dst // not reached: the kind byte is never 0xff
}

func entryKey(dst []byte, id frame.PartitionID, last int64) []byte {
	return binary.BigEndian.AppendUint64(prefix(dst, kindEntry, id), uint64(last))
}

func producerKey(dst []byte, id frame.PartitionID, pid int64) []byte {
	return putSigned(prefix(dst, kindProducer, id), pid)
}

func timeKey(dst []byte, id frame.PartitionID, ts, last int64) []byte {
	return binary.BigEndian.AppendUint64(putSigned(prefix(dst, kindTime, id), ts), uint64(last))
}

// parseTimeKey returns what follows the prefix of a time key.
func parseTimeKey(k []byte) (ts, last int64, ok bool) {
	if len(k) != timeKeyLen {
		return 0, 0, false
	}
	return getSigned(k[prefixLen:]), int64(binary.BigEndian.Uint64(k[prefixLen+8:])), true
}

func fileKey(dst []byte, base uint64, id frame.PartitionID) []byte {
	return putID(filePrefix(dst, base), id)
}

func filePrefix(dst []byte, base uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst[:0], kindFileUse), base)
}

// filePrefixEnd is the first key after all uses of the file.
func filePrefixEnd(dst []byte, base uint64) []byte {
	if base == math.MaxUint64 {
		return append(dst[:0], kindFileUse+1)
	}
	return filePrefix(dst, base+1)
}
