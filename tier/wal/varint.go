package wal

import (
	"encoding/binary"
	"math"
)

// decoder reads numbers from hostile bytes. The first fault sticks; the caller looks at it once at the end.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint(max uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > max {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads how many of something follow that take at least size bytes each: no number can announce more than is there.
func (d *decoder) count(size int) int {
	n := d.uvarint(uint64(len(d.b)))
	if d.bad || n > uint64(len(d.b)/size) {
		d.bad = true
		return 0
	}
	return int(n)
}

// between reads a signed number that must lie in [lo, hi].
func (d *decoder) between(lo, hi int64) int64 {
	v := d.varint()
	if v < lo || v > hi {
		d.bad = true
		return 0
	}
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) uint32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) str(max int) string {
	return string(d.bytes(int(d.uvarint(uint64(max)))))
}

func (d *decoder) done() bool { return !d.bad && len(d.b) == 0 }

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

const maxOffset = math.MaxInt64 - 1 // so that the next offset exists
