// Package varint reads what others have written: numbers, lengths and strings off bytes that may be damaged or made to do harm.
//
// A Reader goes through a slice once. Numbers are varints as encoding/binary writes them, or fixed and big-endian. Each has limits that the
// caller names, and no count announces more elements than there are bytes for, so that nobody allocates for what isn't there. The first
// fault sticks: from then on everything reads as zero, and the caller looks once, at the end (Done, Bad). Nothing is copied but strings, and
// nothing panics.
package varint

import "encoding/binary"

// Reader reads from the bytes that it was made of.
type Reader struct {
	b   []byte
	bad bool
}

// Read begins with the first of b, which must stay as it is while slices that Bytes returned are in use.
func Read(b []byte) Reader { return Reader{b: b} }

func (r *Reader) fail() { r.bad, r.b = true, nil }

// Uvarint reads an unsigned number of most at most.
func (r *Reader) Uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Varint reads a signed number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// Between reads a signed number in [lo, hi].
func (r *Reader) Between(lo, hi int64) int64 {
	v := r.Varint()
	if v < lo || v > hi {
		r.fail()
		return 0
	}
	return v
}

// Count reads how many of something follow that take at least size bytes each.
func (r *Reader) Count(size int) int {
	n := r.Uvarint(uint64(len(r.b)))
	if n > uint64(len(r.b)/size) {
		r.fail()
		return 0
	}
	return int(n)
}

// Bytes returns the next n bytes, not a copy; nil where there are fewer.
func (r *Reader) Bytes(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail()
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// Prefixed reads a length and returns as many bytes, not a copy.
func (r *Reader) Prefixed() []byte { return r.Bytes(int(r.Uvarint(uint64(len(r.b))))) }

// String reads a length of most at most and as many bytes.
func (r *Reader) String(most int) string { return string(r.Bytes(int(r.Uvarint(uint64(most))))) }

// Uint8 reads a byte.
func (r *Reader) Uint8() uint8 {
	if b := r.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint32 reads four bytes.
func (r *Reader) Uint32() uint32 {
	if b := r.Bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// Rest returns what was not read yet.
func (r *Reader) Rest() []byte { return r.b }

// Bad reports whether there was a fault.
func (r *Reader) Bad() bool { return r.bad }

// Done reports whether everything was read, and nothing was wrong.
func (r *Reader) Done() bool { return !r.bad && len(r.b) == 0 }
