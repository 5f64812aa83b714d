package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testNow = int64(1790000000000)

func sample(codec Codec, o BuilderOptions) []byte {
	return build(codec, o, []Record{
		{Offset: 0, Timestamp: testNow, Key: []byte("k"), Value: []byte("v"), Headers: []RecordHeader{{Key: "h", Value: []byte("w")}}},
		{Offset: 1, Timestamp: testNow + 5, Key: []byte("k2"), Value: []byte("v2")},
	})
}

// seal gives an edited batch a right length and checksum again.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-lengthSkew))
	binary.BigEndian.PutUint32(b[crcAt:], CRC(b))
	return b
}

func TestValidateRefuses(t *testing.T) {
	be := binary.BigEndian
	for _, c := range []struct {
		name string
		edit func(b []byte) []byte
		l    Limits
		want error
	}{
		{"format 0", func(b []byte) []byte { b[magicAt] = 0; return b }, Limits{}, ErrMagic},
		{"format 1, short", func(b []byte) []byte { b[magicAt] = 1; return b[:20] }, Limits{}, ErrMagic},
		{"format 3", func(b []byte) []byte { b[magicAt] = 3; return b }, Limits{}, ErrMagic},
		{"nothing", func(b []byte) []byte { return nil }, Limits{}, ErrShort},
		{"cut", func(b []byte) []byte { return b[:len(b)-1] }, Limits{}, ErrShort},
		{"small length", func(b []byte) []byte { be.PutUint32(b[8:], 48); return b }, Limits{}, ErrShort},
		{"negative length", func(b []byte) []byte { be.PutUint32(b[8:], 1<<31); return b }, Limits{}, ErrShort},
		{"two batches", func(b []byte) []byte { return append(b, b...) }, Limits{}, ErrRecord},
		{"flipped bit", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, Limits{}, ErrCRC},
		{"too large", func(b []byte) []byte { return b }, Limits{MaxBytes: 70}, ErrTooLarge},
		{"base offset", func(b []byte) []byte { Stamp(b, 1, 0); return b }, Limits{}, nil}, // overwritten, as in Kafka
		{"no records", func(b []byte) []byte { be.PutUint32(b[57:], 0); return seal(b) }, Limits{}, ErrCount},
		{"negative count", func(b []byte) []byte { be.PutUint32(b[57:], 1<<31); return seal(b) }, Limits{}, ErrCount},
		{"other count", func(b []byte) []byte { be.PutUint32(b[57:], 3); return seal(b) }, Limits{}, ErrCount},
		{"count above records", func(b []byte) []byte { be.PutUint32(b[57:], 3); be.PutUint32(b[23:], 2); return seal(b) }, Limits{}, ErrRecord},
		{"count below records", func(b []byte) []byte { be.PutUint32(b[57:], 1); be.PutUint32(b[23:], 0); return seal(b) }, Limits{}, ErrRecord},
		{"huge count", func(b []byte) []byte { be.PutUint32(b[57:], 1<<30); be.PutUint32(b[23:], 1<<30-1); return seal(b) }, Limits{}, ErrCount},
		{"codec 5", func(b []byte) []byte { b[22] |= 5; return seal(b) }, Limits{}, ErrCodec},
		{"control", func(b []byte) []byte { b[22] |= bitControl; return seal(b) }, Limits{}, ErrRecord},
		{"delete horizon", func(b []byte) []byte { b[22] |= bitDeleteHorizon; return seal(b) }, Limits{}, ErrRecord},
		{"log append time", func(b []byte) []byte { b[22] |= bitLogAppendTime; return seal(b) }, Limits{}, ErrTimestamp},
		{"transactional", func(b []byte) []byte { b[22] |= bitTransactional; return seal(b) }, Limits{}, ErrRecord},
		{"producer without sequence", func(b []byte) []byte { be.PutUint64(b[43:], 1); return seal(b) }, Limits{}, ErrRecord},
		{"bytes after the records", func(b []byte) []byte { return seal(append(b, 0)) }, Limits{}, ErrRecord},
		{"record length", func(b []byte) []byte { b[61]++; return seal(b) }, Limits{}, ErrRecord},
		{"offset delta", func(b []byte) []byte { b[64] = 2; return seal(b) }, Limits{}, ErrRecord},
		{"header count", func(b []byte) []byte { b[69] = 8; return seal(b) }, Limits{}, ErrRecord},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.edit(sample(None, BuilderOptions{}))
			before := bytes.Clone(b)
			_, err := Validate(b, c.l)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, before, b, "refused batches stay as they are")
		})
	}
}

func TestValidateTimestamps(t *testing.T) {
	hour := time.Hour
	for _, codec := range codecs {
		for _, c := range []struct {
			now           int64
			before, after time.Duration
			ok            bool
		}{
			{testNow, 0, 5 * time.Millisecond, true},
			{testNow, 0, 4 * time.Millisecond, false},
			{testNow + 10, 10 * time.Millisecond, hour, true},
			{testNow + 10, 9 * time.Millisecond, hour, false},
			{testNow + 1e12, -1, hour, true},
			{0, hour, -1, true},
			{0, -1, hour, false},
		} {
			l := Limits{CreateTime: true, Now: c.now, MaxBefore: c.before, MaxAfter: c.after}
			_, err := Validate(sample(codec, BuilderOptions{}), l)
			if c.ok {
				require.NoError(t, err, "%s %+v", codec, c)
				continue
			}
			require.ErrorIs(t, err, ErrTimestamp, "%s %+v", codec, c)
			require.NotErrorIs(t, err, ErrRecord)
			l.CreateTime = false
			_, err = Validate(sample(codec, BuilderOptions{}), l)
			require.NoError(t, err, "append-time topics do not care")
		}
		none := build(codec, BuilderOptions{}, []Record{{Timestamp: -1}})
		_, err := Validate(none, Limits{CreateTime: true, Now: testNow, MaxBefore: hour, MaxAfter: hour})
		require.NoError(t, err, "no timestamp at all")
	}
	var re *RecordError
	_, err := Validate(sample(None, BuilderOptions{}), Limits{CreateTime: true, Now: testNow, MaxBefore: 0, MaxAfter: 0})
	require.ErrorAs(t, err, &re)
	require.Equal(t, 1, re.Index)
}

func TestValidateKeys(t *testing.T) {
	for _, codec := range codecs {
		b := build(codec, BuilderOptions{}, []Record{{Offset: 0, Key: []byte{}}, {Offset: 1}, {Offset: 2}})
		_, err := Validate(b, Limits{})
		require.NoError(t, err)
		var re *RecordError
		_, err = Validate(b, Limits{NeedKeys: true})
		require.ErrorAs(t, err, &re)
		require.ErrorIs(t, err, ErrRecord)
		require.Equal(t, 1, re.Index)
		require.Contains(t, err.Error(), "record 1")
		_, err = Validate(sample(codec, BuilderOptions{}), Limits{NeedKeys: true})
		require.NoError(t, err)
	}
}

func TestValidateCorrectsMaxTimestamp(t *testing.T) {
	for _, codec := range codecs {
		b := sample(codec, BuilderOptions{})
		right := bytes.Clone(b)
		binary.BigEndian.PutUint64(b[maxTimeAt:], 0)
		seal(b)
		h, err := Validate(b, Limits{WalkCompressed: true})
		require.NoError(t, err)
		require.Equal(t, testNow+5, h.MaxTimestamp)
		require.Equal(t, right, b)
		require.Equal(t, binary.BigEndian.Uint32(b[crcAt:]), h.CRC)
	}
}

func TestDamagedCompressedRecords(t *testing.T) {
	for _, codec := range codecs[1:] {
		good := benchBatch(codec, 20<<10)
		for _, edit := range []func(b []byte) []byte{
			func(b []byte) []byte { return b[:HeaderLen] },
			func(b []byte) []byte { return b[:HeaderLen+3] },
			func(b []byte) []byte { return b[:HeaderLen+17] },
			func(b []byte) []byte { return b[:len(b)/2] },
			func(b []byte) []byte { copy(b[HeaderLen:], "garbage, not compressed"); return b },
			func(b []byte) []byte { binary.BigEndian.PutUint32(b[57:], 1); return b },
		} {
			b := seal(edit(bytes.Clone(good)))
			err := Iterate(b, func(*Record) bool { return true })
			require.ErrorIs(t, err, ErrRecord, "%s", codec)
			h, _ := ParseHeader(b)
			if h.RecordCount > 1 {
				_, err = Validate(b, Limits{NeedKeys: true})
				require.ErrorIs(t, err, ErrRecord, "%s", codec)
				_, _, err = MaxTimestamp(b)
				require.Error(t, err)
				_, _, _, err = FirstAtOrAfter(b, h.MaxTimestamp, 0)
				require.Error(t, err)
			}
		}
	}
}

func TestBombsAreRefused(t *testing.T) {
	zeros := make([]byte, 8<<20)
	for _, codec := range codecs[1:] {
		b := build(codec, BuilderOptions{}, []Record{{Value: zeros}})
		require.Less(t, len(b), len(zeros)/15)
		err := IterateLimit(b, 1<<20, func(*Record) bool { return true })
		require.ErrorIs(t, err, ErrTooLarge, "%s", codec)
		require.NoError(t, IterateLimit(b, 9<<20, func(r *Record) bool { return len(r.Value) == len(zeros) }))
	}
	// Lengths that announce far more than there is must not allocate it.
	lies := [][]byte{
		append(NewBuilder(Snappy, BuilderOptions{RawSnappy: true}).Bytes()[:HeaderLen], 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0),
		append(NewBuilder(Zstd, BuilderOptions{}).Bytes()[:HeaderLen], 0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x20, 1, 0, 0), // 512 MiB
		append(NewBuilder(None, BuilderOptions{}).Bytes()[:HeaderLen], 0xfe, 0xff, 0xff, 0xff, 0x0f),
	}
	for _, b := range lies {
		binary.BigEndian.PutUint32(b[57:], 1)
		seal(b)
		err := Iterate(b, func(*Record) bool { return true })
		require.ErrorIs(t, err, ErrRecord)
	}
}

func TestLargeZstdWindow(t *testing.T) {
	// 16 MiB single-segment frames need a decoder of their own.
	big := bytes.Repeat([]byte("abcdefgh"), 2<<20)
	b := build(Zstd, BuilderOptions{}, []Record{{Value: big}})
	n := 0
	require.NoError(t, Iterate(b, func(r *Record) bool { n = len(r.Value); return true }))
	require.Equal(t, len(big), n)
}

func TestErrorsAndNames(t *testing.T) {
	e := &RecordError{Index: 3, Msg: "bad"}
	require.True(t, errors.Is(e, ErrRecord))
	require.Equal(t, "batch: invalid record: record 3: bad", e.Error())
	for _, c := range codecs {
		got, err := ParseCodec(c.String())
		require.NoError(t, err)
		require.Equal(t, c, got)
	}
	_, err := ParseCodec("brotli")
	require.ErrorIs(t, err, ErrCodec)
	require.Equal(t, "codec-6", Codec(6).String())
}
