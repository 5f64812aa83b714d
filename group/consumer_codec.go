package group

import (
	"encoding/binary"
	"slices"
)

// The values of consumer-group records, in Kafka's compact form: lengths are one more than they are, as uvarints, with 0
// for null; every structure ends with its tagged fields.

// encoder appends fields.
type encoder struct{ b []byte }

// newValue begins a value of version 0, the only one there is of these records.
func newValue() *encoder { return &encoder{[]byte{0, 0}} }

func (e *encoder) int8(v int8)     { e.b = append(e.b, byte(v)) }
func (e *encoder) int32(v int32)   { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64)   { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *encoder) uvarint(v int)   { e.b = binary.AppendUvarint(e.b, uint64(v)) }
func (e *encoder) id(v [16]byte)   { e.b = append(e.b, v[:]...) }
func (e *encoder) string(s string) { e.uvarint(len(s) + 1); e.b = append(e.b, s...) }
func (e *encoder) bytes(s []byte)  { e.uvarint(len(s) + 1); e.b = append(e.b, s...) }
func (e *encoder) noTags()         { e.uvarint(0) }

func (e *encoder) nullable(s *string) {
	if s == nil {
		e.uvarint(0)
		return
	}
	e.string(*s)
}

func (e *encoder) strings(in []string) {
	e.uvarint(len(in) + 1)
	for _, s := range in {
		e.string(s)
	}
}

func (e *encoder) assignment(a assignment) {
	e.uvarint(len(a) + 1)
	for _, t := range a {
		e.id(t.topic)
		e.uvarint(len(t.parts) + 1)
		for _, p := range t.parts {
			e.int32(p)
		}
		e.noTags()
	}
}

// decoder reads fields; after the first that can't be read all are zero and bad is set.
type decoder struct {
	b   []byte
	bad bool
}

// openValue begins to read a value of version 0.
func openValue(b []byte) *decoder {
	d := &decoder{b: b}
	if v := d.take(2); v == nil || v[0] != 0 || v[1] != 0 {
		d.bad = true
	}
	return d
}

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) int8() int8 {
	if v := d.take(1); v != nil {
		return int8(v[0])
	}
	return 0
}

func (d *decoder) int32() int32 {
	if v := d.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if v := d.take(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// length reads a compact length of things of at least size bytes each: -1 is null. What it returns is bounded by the
// bytes that are left.
func (d *decoder) length(size int) int {
	n := d.uvarint()
	if n == 0 || d.bad {
		return -1
	}
	if n-1 > uint64(len(d.b)/size) {
		d.bad = true
		return -1
	}
	return int(n - 1)
}

func (d *decoder) nullable() *string {
	n := d.length(1)
	if n < 0 {
		return nil
	}
	s := string(d.take(n))
	return &s
}

func (d *decoder) string() string {
	s := d.nullable()
	if s == nil {
		d.bad = true
		return ""
	}
	return *s
}

func (d *decoder) bytes() []byte {
	n := d.length(1)
	if n < 0 {
		d.bad = true
		return nil
	}
	return slices.Clone(d.take(n))
}

func (d *decoder) strings() []string {
	n := d.length(1)
	if n < 0 {
		d.bad = true
		return nil
	}
	out := make([]string, 0, n)
	for range n {
		out = append(out, d.string())
	}
	return out
}

func (d *decoder) id() (id [16]byte) {
	copy(id[:], d.take(16))
	return id
}

// assignment reads partitions by topic into their one form: sorted, without doubles or empty topics.
func (d *decoder) assignment() assignment {
	n := d.length(18)
	if n < 0 {
		d.bad = true
		return nil
	}
	var out assignment
	for range n {
		topic := d.id()
		k := d.length(4)
		for range max(k, 0) {
			out = out.with(topic, d.int32())
		}
		d.tags(nil)
	}
	return out.normal()
}

// tags reads tagged fields; each is given to known, which says what it makes of it.
func (d *decoder) tags(known func(tag uint64, field *decoder)) {
	for range d.length2() {
		tag := d.uvarint()
		size := d.uvarint()
		if d.bad || size > uint64(len(d.b)) {
			d.bad = true
			return
		}
		field := &decoder{b: d.take(int(size))}
		if known != nil {
			known(tag, field)
			d.bad = d.bad || field.bad
		}
	}
}

// length2 reads the plain count of tagged fields, each of at least two bytes.
func (d *decoder) length2() int {
	n := d.uvarint()
	if n > uint64(len(d.b)/2) {
		d.bad = true
		return 0
	}
	return int(n)
}

// end tells whether all was read, with the tagged fields that end a value.
func (d *decoder) end() bool {
	d.tags(nil)
	return !d.bad && len(d.b) == 0
}
