package wal

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// StreamID names a stream: one per run of a broker.
type StreamID struct {
	Broker      int32
	Incarnation string // of the broker's run; 1 to 100 letters, digits and "-_"
}

// String is "broker/incarnation".
func (s StreamID) String() string { return strconv.Itoa(int(s.Broker)) + "/" + s.Incarnation }

const (
	seqDigits      = 20
	maxIncarnation = 100
)

// Valid reports whether s can name a stream.
func (s StreamID) Valid() bool {
	if s.Broker < 0 || s.Incarnation == "" || len(s.Incarnation) > maxIncarnation {
		return false
	}
	for i := range len(s.Incarnation) {
		c := s.Incarnation[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

func (s StreamID) check() error {
	if !s.Valid() {
		return fmt.Errorf("WAL stream %q: no valid name", s.String())
	}
	return nil
}

// Prefix is the prefix below which exactly the stream's objects lie. Its hash spreads streams over the store's key space.
func (s StreamID) Prefix() string {
	b := binary.BigEndian.AppendUint32(nil, uint32(s.Broker))
	b = append(b, s.Incarnation...)
	return fmt.Sprintf("%s%04x/%d/%s/", tier.WALFolder, checksum(b)&0xffff, s.Broker, s.Incarnation)
}

// Key is the key of the object with number seq.
func (s StreamID) Key(seq uint64) string { return fmt.Sprintf("%s%0*d", s.Prefix(), seqDigits, seq) }

// ParseKey reads the key of a stream's object; ok is false for every other key.
func ParseKey(key string) (s StreamID, seq uint64, ok bool) {
	rest, ok := strings.CutPrefix(key, tier.WALFolder)
	if !ok {
		return s, 0, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 4 || len(parts[3]) != seqDigits {
		return s, 0, false
	}
	broker, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil {
		return s, 0, false
	}
	if seq, err = strconv.ParseUint(parts[3], 10, 64); err != nil || seq > maxSeq {
		return s, 0, false
	}
	s = StreamID{Broker: int32(broker), Incarnation: parts[2]}
	return s, seq, s.Valid() && s.Key(seq) == key
}

// maxSeq leaves room to count on.
const maxSeq = math.MaxInt64 - 1

// List returns the streams that the bucket has, in the order of their keys. It asks once per stream. What lies below wal/ and is no
// stream's object is passed over.
func List(ctx context.Context, b bucket.Bucket) ([]StreamID, error) {
	var ids []StreamID
	op := bucket.Op{Class: bucket.ClassSweep, Kind: bucket.KindWAL}
	for after := ""; ; {
		p, err := b.List(ctx, op, tier.WALFolder, after, 1)
		if err != nil {
			return nil, fmt.Errorf("list WAL streams: %w", err)
		}
		if len(p.Items) == 0 {
			return ids, nil
		}
		after = p.Items[0].Key
		if id, _, ok := ParseKey(after); ok {
			ids = append(ids, id)
			after = id.Prefix() + "z" // numbers are digits: the next key belongs to another stream
		}
	}
}

// found is an object of a stream as a listing shows it. Seals have a size of their own.
type found struct {
	seq  uint64
	size int64
}

func (f found) seal() bool { return f.size == sealLen }

// list returns the stream's objects from a number on, in the order of numbers.
func list(ctx context.Context, b bucket.Bucket, op bucket.Op, id StreamID, from uint64) ([]found, error) {
	var out []found
	after := ""
	if from > 0 {
		after = id.Key(from - 1)
	}
	for {
		p, err := b.List(ctx, op, id.Prefix(), after, bucket.MaxList)
		if err != nil {
			return nil, fmt.Errorf("list WAL stream %v: %w", id, err)
		}
		for _, i := range p.Items {
			if got, seq, ok := ParseKey(i.Key); ok && got == id && seq >= from {
				out = append(out, found{seq: seq, size: i.Size})
			}
		}
		if p.Next == "" {
			return out, nil
		}
		after = p.Next
	}
}
