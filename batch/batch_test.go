package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// cloned keeps a record past the callback.
func cloned(r *Record) Record {
	out := *r
	out.Key, out.Value, out.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), nil
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, RecordHeader{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	return out
}

func collect(t require.TestingT, b []byte) []Record {
	var out []Record
	require.NoError(t, Iterate(b, func(r *Record) bool {
		out = append(out, cloned(r))
		return true
	}))
	return out
}

// drawRecords makes up records; some are large, some are empty or null.
func drawRecords(t *rapid.T, base int64) []Record {
	field := rapid.OneOf(rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.SliceOfN(rapid.Byte(), 1, 40),
		rapid.Map(rapid.IntRange(0, 100_000), func(n int) []byte { return bytes.Repeat([]byte("log line "), n/9) }))
	n := rapid.IntRange(1, 40).Draw(t, "records")
	var out []Record
	for i := range n {
		r := Record{Offset: base + int64(i), Timestamp: rapid.Int64Range(-1, math.MaxInt64/2).Draw(t, "ts"),
			Key: field.Draw(t, "key"), Value: field.Draw(t, "value")}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, RecordHeader{Key: rapid.StringN(0, 5, -1).Draw(t, "name"), Value: field.Draw(t, "header")})
		}
		out = append(out, r)
	}
	return out
}

func build(codec Codec, o BuilderOptions, records []Record) []byte {
	b := NewBuilder(codec, o)
	for _, r := range records {
		b.AddAt(r.Offset, r.Timestamp, r.Key, r.Value, r.Headers)
	}
	return b.Bytes()
}

func TestBuildValidateIterate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(codecs).Draw(t, "codec")
		o := BuilderOptions{RawSnappy: rapid.Bool().Draw(t, "raw")}
		if rapid.Bool().Draw(t, "producer") {
			o.ProducerID, o.ProducerEpoch, o.FirstSequence = 77, 3, math.MaxInt32-2
			o.Transactional = rapid.Bool().Draw(t, "transaction")
		}
		want := drawRecords(t, 0)
		b := build(codec, o, want)
		before := bytes.Clone(b)
		h, err := Validate(b, Limits{WalkCompressed: true})
		require.NoError(t, err)
		require.Equal(t, before, b)
		require.Equal(t, len(b), h.Size())
		require.Equal(t, codec, h.Codec())
		require.Equal(t, int32(len(want)), h.RecordCount)
		require.Equal(t, o.ProducerID == 77, h.HasProducer())
		require.Equal(t, o.Transactional, h.IsTransactional())
		require.Equal(t, want, collect(t, b))

		base := rapid.Int64Range(0, 1<<60).Draw(t, "base")
		Stamp(b, base, 9)
		require.NoError(t, CheckCRC(b))
		got := collect(t, b)
		for i := range want {
			want[i].Offset += base
		}
		require.Equal(t, want, got)

		checkLookups(t, b, want)
	})
}

// checkLookups compares FirstAtOrAfter and MaxTimestamp with a search of the records.
func checkLookups(t *rapid.T, b []byte, want []Record) {
	best := want[0]
	for _, r := range want {
		if r.Timestamp > best.Timestamp {
			best = r
		}
	}
	off, ts, err := MaxTimestamp(b)
	require.NoError(t, err)
	require.Equal(t, []int64{best.Offset, best.Timestamp}, []int64{off, ts})
	for range 5 {
		ts := rapid.SampledFrom(want).Draw(t, "lookup").Timestamp + rapid.Int64Range(-1, 1).Draw(t, "off by")
		from := want[0].Offset + rapid.Int64Range(-1, int64(len(want))).Draw(t, "from")
		off, found, ok, err := FirstAtOrAfter(b, ts, from)
		require.NoError(t, err)
		i := 0
		for i < len(want) && (want[i].Timestamp < ts || want[i].Offset < from) {
			i++
		}
		require.Equal(t, i < len(want), ok)
		if ok {
			require.Equal(t, []int64{want[i].Offset, want[i].Timestamp}, []int64{off, found})
		}
	}
}

func TestBatchesWithGaps(t *testing.T) {
	for _, codec := range codecs {
		want := []Record{{Offset: 1002, Timestamp: 50, Key: []byte("a")}, {Offset: 1007, Timestamp: 40, Key: []byte("b")}}
		b := build(codec, BuilderOptions{BaseOffset: 1000}, want)
		require.Equal(t, want, collect(t, b))
		off, ts, ok, err := FirstAtOrAfter(b, 0, 1003)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, []int64{1007, 40}, []int64{off, ts})
		h, err := ParseHeader(b)
		require.NoError(t, err)
		require.Equal(t, int64(1007), h.LastOffset())
		Stamp(b, 0, 0)
		_, err = Validate(b, Limits{})
		require.ErrorIs(t, err, ErrCount, "a producer sends none")
	}
}

func TestBatchWithoutRecords(t *testing.T) {
	for _, codec := range codecs {
		b := NewBuilder(codec, BuilderOptions{}).Bytes()
		require.Empty(t, collect(t, b))
		off, ts, err := MaxTimestamp(b)
		require.NoError(t, err)
		require.Equal(t, []int64{-1, -1}, []int64{off, ts})
		_, err = Validate(b, Limits{})
		require.ErrorIs(t, err, ErrCount)
		empty := bytes.Clone(b[:HeaderLen]) // compaction leaves no compressed nothing
		binary.BigEndian.PutUint32(empty[8:], HeaderLen-lengthSkew)
		require.Empty(t, collect(t, empty))
	}
}

func TestAppendTime(t *testing.T) {
	for _, codec := range codecs {
		b := build(codec, BuilderOptions{}, []Record{{Offset: 0, Timestamp: 5}, {Offset: 1, Timestamp: 9}})
		Stamp(b, 40, 2)
		StampAppendTime(b, 1234)
		require.NoError(t, CheckCRC(b))
		for _, r := range collect(t, b) {
			require.Equal(t, int64(1234), r.Timestamp)
		}
		off, ts, err := MaxTimestamp(b)
		require.NoError(t, err)
		require.Equal(t, []int64{40, 1234}, []int64{off, ts})
		off, _, ok, err := FirstAtOrAfter(b, 1234, 41)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, int64(41), off)
		_, _, ok, err = FirstAtOrAfter(b, 1235, 40)
		require.NoError(t, err)
		require.False(t, ok)
	}
}

func TestNextCutsBatches(t *testing.T) {
	one := build(None, BuilderOptions{}, []Record{{Value: []byte("x")}})
	two := build(Zstd, BuilderOptions{BaseOffset: 1}, []Record{{Offset: 1, Value: []byte("y")}})
	all := append(bytes.Clone(one), two...)
	_, got, rest, err := Next(all)
	require.NoError(t, err)
	require.Equal(t, one, got)
	require.Equal(t, two, rest)
	h, got, rest, err := Next(rest)
	require.NoError(t, err)
	require.Equal(t, two, got)
	require.Equal(t, int64(1), h.BaseOffset)
	require.Empty(t, rest)
	for n := range len(two) {
		_, _, _, err := Next(two[:n])
		require.ErrorIs(t, err, ErrShort)
	}
}

func TestSequencesWrap(t *testing.T) {
	for _, c := range []struct{ seq, n, want int32 }{
		{0, 0, 0}, {5, 4, 9}, {math.MaxInt32, 0, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 2, 5, 2},
	} {
		h := Header{FirstSequence: c.seq, LastOffsetDelta: c.n}
		require.Equal(t, c.want, h.LastSequence())
	}
	require.Equal(t, int32(-1), (&Header{FirstSequence: -1, LastOffsetDelta: 4}).LastSequence())
}

// TestAgainstKmsg: the protocol library reads what we build, and we read what it builds,
// compressed by its own code.
func TestAgainstKmsg(t *testing.T) {
	kinds := map[Codec]kgo.CompressionCodec{None: kgo.NoCompression(), Gzip: kgo.GzipCompression(),
		Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression()}
	want := []Record{
		{Offset: 0, Timestamp: 1790000000000, Key: []byte("key"), Value: bytes.Repeat([]byte("value "), 20_000)},
		{Offset: 1, Timestamp: 1790000000007, Headers: []RecordHeader{{Key: "h", Value: []byte("v")}, {Key: "null"}}},
		{Offset: 2, Timestamp: 1789999999999, Key: []byte{}, Value: []byte{}},
	}
	for codec, kind := range kinds {
		t.Run(codec.String(), func(t *testing.T) {
			b := build(codec, BuilderOptions{ProducerID: 5, ProducerEpoch: 1, FirstSequence: 10}, want)
			var rb kmsg.RecordBatch
			require.NoError(t, rb.ReadFrom(b))
			require.Equal(t, int64(5), rb.ProducerID)
			plain, err := kgo.DefaultDecompressor().Decompress(rb.Records, kgo.CompressionCodecType(rb.Attributes&7))
			require.NoError(t, err)
			first := kmsg.NewRecord()
			require.NoError(t, first.ReadFrom(plain))
			require.Equal(t, want[0].Value, first.Value)
			require.Equal(t, int64(1790000000007), rb.MaxTimestamp)

			c, err := kgo.DefaultCompressor(kind)
			require.NoError(t, err)
			rb.Records = plain
			if codec != None {
				out, used := c.Compress(new(bytes.Buffer), plain)
				require.Equal(t, kgo.CompressionCodecType(codec), used)
				rb.Records = out
			}
			rb.Length = int32(len(rb.Records) + HeaderLen - lengthSkew)
			theirs := rb.AppendTo(nil)
			binary.BigEndian.PutUint32(theirs[crcAt:], CRC(theirs))
			_, err = Validate(theirs, Limits{WalkCompressed: true})
			require.NoError(t, err)
			require.Equal(t, want, collect(t, theirs))
		})
	}
}

func TestNoAllocations(t *testing.T) {
	b := benchBatch(None, 64<<10)
	l := Limits{CreateTime: true, Now: 1790000000000, MaxBefore: -1, MaxAfter: time.Hour, NeedKeys: true}
	require.Zero(t, testing.AllocsPerRun(20, func() {
		if _, err := Validate(b, l); err != nil {
			t.Error(err)
		}
	}))
	for _, codec := range codecs {
		b := benchBatch(codec, 256<<10)
		allocs := testing.AllocsPerRun(20, func() {
			if err := Iterate(b, func(*Record) bool { return true }); err != nil {
				t.Error(err)
			}
		})
		require.Less(t, allocs, 30.0, "%s: allocations must not grow with the records", codec)
	}
}

// benchBatch makes a batch of about size bytes before compression, of log lines with keys.
func benchBatch(codec Codec, size int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := NewBuilder(codec, BuilderOptions{})
	for i := 0; b.Len() < size-150; i++ {
		line := fmt.Sprintf("2026-11-02T10:%02d:%02d.%03dZ host-%d service[%d]: request %x took %d ms", i/60%60, i%60,
			rnd.IntN(1000), rnd.IntN(20), rnd.IntN(30000), rnd.Uint64(), rnd.IntN(900))
		b.Add(1790000000000+int64(i), []byte("key"), []byte(line), []RecordHeader{{Key: "trace", Value: []byte("on")}})
	}
	return b.Bytes()
}
