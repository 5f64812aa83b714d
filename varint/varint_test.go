package varint

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadsWhatWasWritten(t *testing.T) {
	b := binary.AppendUvarint(nil, math.MaxUint64)
	b = binary.AppendVarint(b, math.MinInt64)
	b = binary.AppendVarint(b, -5)
	b = append(binary.AppendUvarint(b, 2), "ab"...)
	b = append(binary.AppendUvarint(b, 1), 9)
	b = append(b, 7, 1, 2, 3, 4)
	r := Read(b)
	require.Equal(t, uint64(math.MaxUint64), r.Uvarint(math.MaxUint64))
	require.Equal(t, int64(math.MinInt64), r.Varint())
	require.Equal(t, int64(-5), r.Between(-5, 5))
	require.Equal(t, "ab", r.String(2))
	require.Equal(t, []byte{9}, r.Prefixed())
	require.Equal(t, uint8(7), r.Uint8())
	require.Len(t, r.Rest(), 4)
	require.False(t, r.Done(), "four bytes are left")
	require.Equal(t, uint32(0x01020304), r.Uint32())
	require.True(t, r.Done())
	require.False(t, r.Bad())
}

// Every fault sticks, and everything behind it reads as nothing.
func TestFaultsStick(t *testing.T) {
	for name, read := range map[string]func(*Reader){
		"number above its limit":       func(r *Reader) { r.Uvarint(8) },
		"signed number above its own":  func(r *Reader) { r.Between(-10, -6) },
		"signed number below its own":  func(r *Reader) { r.Between(1, 2) },
		"more elements than bytes":     func(r *Reader) { r.Count(1) },
		"more bytes than there are":    func(r *Reader) { r.Bytes(6) },
		"negative number of bytes":     func(r *Reader) { r.Bytes(-1) },
		"string above its limit":       func(r *Reader) { r.String(8) },
		"string that is cut off":       func(r *Reader) { r.String(9) },
		"length beyond the end":        func(r *Reader) { r.Prefixed() },
		"number that does not end":     func(r *Reader) { *r = Read([]byte{0x80}); r.Uvarint(math.MaxUint64) },
		"signed one that does not end": func(r *Reader) { *r = Read([]byte{0xff}); r.Varint() },
		"number of eleven bytes": func(r *Reader) {
			*r = Read([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
			r.Uvarint(math.MaxUint64)
		},
		"fixed number that is cut off": func(r *Reader) { r.Bytes(2); r.Uint32() },
		"byte beyond the end":          func(r *Reader) { r.Bytes(5); r.Uint8() },
	} {
		r := Read([]byte{9, 1, 2, 3, 4})
		read(&r)
		require.True(t, r.Bad(), name)
		require.False(t, r.Done(), name)
		require.Zero(t, r.Uvarint(math.MaxUint64), name)
		require.Zero(t, r.Varint(), name)
		require.Zero(t, r.Count(1), name)
		require.Empty(t, r.Bytes(0), name)
		require.Empty(t, r.Rest(), name)
		require.Zero(t, r.Uint8(), name)
		require.Zero(t, r.Uint32(), name)
		require.True(t, r.Bad(), name)
	}
}

// A count is bounded by what the smallest elements would take.
func FuzzCount(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0}, 2)
	f.Add([]byte{4, 0, 0, 0, 0, 0, 0}, 2)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size < 1 {
			return
		}
		r := Read(b)
		n := r.Count(size)
		if n < 0 || n > len(b) || n*min(size, len(b)) > len(b) || r.Bad() && n != 0 {
			t.Fatalf("%d elements of %d bytes in %d", n, size, len(b))
		}
	})
}
