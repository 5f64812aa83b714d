package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error of the decoders: the bytes are not the message they
// are said to be.
var ErrMalformed = errors.New("malformed request")

// wire reads Kafka's primitive types from a slice. The first fault sticks: everything read
// afterwards is zero, so callers check once at the end, and loops over announced counts stay
// short because array caps every count by the bytes that are left.
type wire struct {
	b    []byte
	off  int
	flex bool
	err  error
	n    int // array elements announced so far
}

// maxElements bounds the array elements of one message. They take more memory than bytes on the
// wire, so a size-capped message of nothing but empty elements must not become gigabytes. It is room
// for a hundred thousand partitions.
const maxElements = 1 << 17

func (w *wire) fail(what string) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: %s at byte %d of %d", ErrMalformed, what, w.off, len(w.b))
	}
}

func (w *wire) left() int { return len(w.b) - w.off }

// span returns the next n bytes; their capacity is cut so that no append runs into what follows.
func (w *wire) span(n int) []byte {
	if w.err != nil || n < 0 || n > w.left() {
		w.fail("too short")
		return nil
	}
	s := w.b[w.off : w.off+n : w.off+n]
	w.off += n
	return s
}

func (w *wire) int8() int8 {
	if s := w.span(1); s != nil {
		return int8(s[0])
	}
	return 0
}

func (w *wire) int16() int16 {
	if s := w.span(2); s != nil {
		return int16(binary.BigEndian.Uint16(s))
	}
	return 0
}

func (w *wire) int32() int32 {
	if s := w.span(4); s != nil {
		return int32(binary.BigEndian.Uint32(s))
	}
	return 0
}

func (w *wire) int64() int64 {
	if s := w.span(8); s != nil {
		return int64(binary.BigEndian.Uint64(s))
	}
	return 0
}

func (w *wire) uuid() (id [16]byte) {
	copy(id[:], w.span(16))
	return id
}

// uvarint reads an unsigned varint of at most 32 bits.
func (w *wire) uvarint() uint32 {
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		s := w.span(1)
		if s == nil {
			return 0
		}
		if shift == 28 && s[0] > 0x0f {
			break
		}
		v |= uint32(s[0]&0x7f) << shift
		if s[0] < 0x80 {
			return v
		}
	}
	w.fail("varint over 32 bits")
	return 0
}

// strLen reads the length of a string, -1 for null.
func (w *wire) strLen() int {
	if w.flex {
		return int(int64(w.uvarint()) - 1)
	}
	return int(w.int16())
}

// str reads a string that must not be null.
func (w *wire) str() []byte {
	n := w.strLen()
	if n < 0 {
		w.fail("null or negative length of a string that can't be null")
		return nil
	}
	return w.span(n)
}

// nullStr reads a string; ok is false when it is null.
func (w *wire) nullStr() (s []byte, ok bool) {
	n := w.strLen()
	if n == -1 {
		return nil, false
	}
	s = w.span(n)
	return s, w.err == nil
}

// nullBytes reads bytes, nil when null. Empty bytes are not nil.
func (w *wire) nullBytes() []byte {
	var n int64
	if w.flex {
		n = int64(w.uvarint()) - 1
	} else {
		n = int64(w.int32())
	}
	if n == -1 {
		return nil
	}
	if n > int64(w.left()) {
		w.fail("length of bytes past the end")
		return nil
	}
	return w.span(int(n))
}

// array reads the count of an array that must not be null, each element of which takes at
// least size bytes.
func (w *wire) array(size int) int {
	var n int64
	if w.flex {
		n = int64(w.uvarint()) - 1
	} else {
		n = int64(w.int32())
	}
	if w.err != nil {
		return 0
	}
	if n < 0 {
		w.fail("null or negative count of an array that can't be null")
		return 0
	}
	if n*int64(size) > int64(w.left()) {
		w.fail("array count past the end")
		return 0
	}
	if w.n += int(n); w.n > maxElements {
		w.fail("too many array elements")
		return 0
	}
	return int(n)
}

// tags reads a tagged-field section and gives each field to fn, which may be nil. fn reads
// from its own wire; what it does not read is skipped.
func (w *wire) tags(fn func(tag uint32, f *wire)) {
	if !w.flex {
		return
	}
	n := w.uvarint()
	for ; n > 0 && w.err == nil; n-- {
		tag := w.uvarint()
		size := w.uvarint()
		if int64(size) > int64(w.left()) {
			w.fail("size of a tagged field past the end")
			return
		}
		s := w.span(int(size))
		if w.err != nil || fn == nil {
			continue
		}
		f := wire{b: s, flex: true}
		fn(tag, &f)
		if f.err != nil {
			w.fail(fmt.Sprintf("tagged field %d", tag))
		}
	}
}

// grow returns s with length n, keeping its elements (and what they own) for reuse.
func grow[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	t := make([]T, n)
	copy(t, s[:cap(s)])
	return t
}

// An interner keeps at most maxInterned names of at most maxInternedLen bytes, the longest
// topic name of Kafka; others are allocated each time.
const (
	maxInterned    = 4096
	maxInternedLen = 249
)

// interner turns bytes into strings without allocating for those seen before.
type interner struct{ m map[string]string }

func (in *interner) get(b []byte) string {
	if s, ok := in.m[string(b)]; ok {
		return s
	}
	if len(b) == 0 || len(b) > maxInternedLen {
		return string(b)
	}
	if in.m == nil || len(in.m) >= maxInterned {
		in.m = make(map[string]string)
	}
	s := string(b)
	in.m[s] = s
	return s
}

func appendUvarint(dst []byte, v uint32) []byte {
	return binary.AppendUvarint(dst, uint64(v))
}

func appendInt16(dst []byte, v int16) []byte { return binary.BigEndian.AppendUint16(dst, uint16(v)) }
func appendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }
func appendInt64(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

// maxString is the longest string of the old encoding; longer ones are cut, they are messages
// for people.
const maxString = 1<<15 - 1

func appendStr(dst []byte, s string, flex bool) []byte {
	if len(s) > maxString {
		s = s[:maxString]
	}
	if flex {
		dst = appendUvarint(dst, uint32(len(s))+1)
	} else {
		dst = appendInt16(dst, int16(len(s)))
	}
	return append(dst, s...)
}

func appendNullStr(dst []byte, s *string, flex bool) []byte {
	if s != nil {
		return appendStr(dst, *s, flex)
	}
	if flex {
		return append(dst, 0)
	}
	return append(dst, 0xff, 0xff)
}

func appendArray(dst []byte, n int, flex bool) []byte {
	if flex {
		return appendUvarint(dst, uint32(n)+1)
	}
	return appendInt32(dst, int32(n))
}

// appendNoTags appends an empty tagged-field section.
func appendNoTags(dst []byte, flex bool) []byte {
	if flex {
		return append(dst, 0)
	}
	return dst
}

// appendLeader appends a tagged field holding a leader and its epoch.
func appendLeader(dst []byte, tag uint32, l *Leader) []byte {
	dst = appendUvarint(dst, tag)
	dst = append(dst, 9)
	dst = appendInt32(dst, l.ID)
	dst = appendInt32(dst, l.Epoch)
	return append(dst, 0)
}

// appendEndpoints appends the tagged-field section that ends Produce and Fetch responses: the
// addresses of brokers, as tag 0.
func appendEndpoints(dst []byte, nodes []NodeEndpoint, flex, known bool) []byte {
	if !known || len(nodes) == 0 {
		return appendNoTags(dst, flex)
	}
	field := appendArray(nil, len(nodes), true)
	for i := range nodes {
		n := &nodes[i]
		field = appendInt32(field, n.ID)
		field = appendStr(field, n.Host, true)
		field = appendInt32(field, n.Port)
		field = appendNullStr(field, n.Rack, true)
		field = append(field, 0)
	}
	dst = append(dst, 1, 0)
	dst = appendUvarint(dst, uint32(len(field)))
	return append(dst, field...)
}
