package batch

import (
	"encoding/binary"
	"fmt"
)

// Record is one record of a batch. Timestamp is in milliseconds since 1970, -1 for none.
// Key and Value are nil when null, and not nil when empty.
type Record struct {
	Offset    int64
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []RecordHeader
}

// RecordHeader is a header of a record. Value is nil when null.
type RecordHeader struct {
	Key   string
	Value []byte
}

// record is an encoded record cut into its parts.
type record struct {
	timeDelta   int64
	offsetDelta int32
	key, value  []byte // nil = null
	headerCount int
	headers     []byte // encoded
}

// short decodes a zigzag number of one byte, which nearly all are. Callers test for it
// themselves: a call for each number would take longer than all the rest.
func short(c byte) int32 { return int32(c>>1) ^ -int32(c&1) }

// varint reads a zigzag number of at most 32 bits. n is 0 when b holds no whole one.
func varint(b []byte) (v int32, n int) {
	if len(b) > 1 && b[1] < 0x80 && b[0] >= 0x80 { // lengths up to 8 KiB
		u := uint32(b[0]&0x7f) | uint32(b[1])<<7
		return int32(u>>1) ^ -int32(u&1), 2
	}
	u, n := binary.Uvarint(b[:min(len(b), 5)])
	if n <= 0 || u > 0xffffffff {
		return 0, 0
	}
	w := uint32(u)
	return int32(w>>1) ^ -int32(w&1), n
}

// varlong reads a zigzag number of at most 64 bits.
func varlong(b []byte) (v int64, n int) {
	v, n = binary.Varint(b)
	return v, max(n, 0)
}

// field cuts a length-prefixed field off b; the length -1 is null. ok is false when b
// does not hold it.
func field(b []byte) (val, rest []byte, ok bool) {
	var size int32
	n := 1
	if len(b) > 0 && b[0] < 0x80 {
		size = short(b[0])
	} else if size, n = varint(b); n == 0 {
		return nil, nil, false
	}
	b = b[n:]
	if uint(size) > uint(len(b)) { // also below 0
		return nil, b, size == -1
	}
	return b[:size:size], b[size:], true
}

// parse reads the body of a record: what its length counts. It returns what is wrong with
// it, or "".
func (r *record) parse(b []byte) string {
	if len(b) == 0 {
		return "empty record"
	}
	b = b[1:] // attributes: unused
	var n int
	if len(b) > 0 && b[0] < 0x80 {
		r.timeDelta, n = int64(short(b[0])), 1
	} else if r.timeDelta, n = varlong(b); n == 0 {
		return "bad timestamp delta"
	}
	b = b[n:]
	if len(b) > 0 && b[0] < 0x80 {
		r.offsetDelta, n = short(b[0]), 1
	} else if r.offsetDelta, n = varint(b); n == 0 {
		return "bad offset delta"
	}
	b = b[n:]
	var ok bool
	if r.key, b, ok = field(b); !ok {
		return "bad key length"
	}
	if r.value, b, ok = field(b); !ok {
		return "bad value length"
	}
	if len(b) == 1 && b[0] == 0 {
		r.headerCount, r.headers = 0, nil
		return ""
	}
	count, n := varint(b)
	if n == 0 || count < 0 || int(count) > (len(b)-n)/2 { // a header takes two bytes at least
		return "bad number of headers"
	}
	r.headerCount, r.headers = int(count), b[n:]
	return checkHeaders(r.headers, r.headerCount)
}

func checkHeaders(b []byte, count int) string {
	for range count {
		key, rest, ok := field(b)
		if !ok || key == nil {
			return "bad header key"
		}
		if _, b, ok = field(rest); !ok {
			return "bad header value"
		}
	}
	if len(b) != 0 {
		return fmt.Sprintf("%d bytes too many", len(b))
	}
	return ""
}

// fill makes out the public form of r. Header keys are kept from the previous record when
// they are the same, as they usually are, so that they need no new strings.
func (r *record) fill(h *Header, out *Record) {
	out.Offset = h.BaseOffset + int64(r.offsetDelta)
	out.Timestamp = r.timestamp(h)
	out.Key, out.Value = r.key, r.value
	headers := out.Headers[:cap(out.Headers)]
	b := r.headers
	for i := range r.headerCount {
		key, rest, _ := field(b) // checked by parse
		val, next, _ := field(rest)
		b = next
		if i == len(headers) {
			headers = append(headers, RecordHeader{})
			headers = headers[:cap(headers)]
		}
		if headers[i].Key != string(key) {
			headers[i].Key = string(key)
		}
		headers[i].Value = val
	}
	out.Headers = headers[:r.headerCount]
}

func (r *record) timestamp(h *Header) int64 {
	if h.IsLogAppendTime() {
		return h.MaxTimestamp
	}
	return h.FirstTimestamp + r.timeDelta
}
