package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var exampleTopic = TopicID{0x6f, 0x1d, 0x0c, 0x52, 0x8e, 0x41, 0x4b, 0x7a, 0x9c, 0x33, 0x05, 0xaf, 0x77, 0x21, 0xd8, 0x10}

// exampleBatch returns a v2 batch at the given offset with n bytes instead of records.
func exampleBatch(base int64, n int) []byte {
	b := make([]byte, batchHeaderLen+n)
	be := binary.BigEndian
	be.PutUint64(b, uint64(base))
	be.PutUint32(b[8:], uint32(len(b)-12))
	be.PutUint32(b[12:], 7)
	b[16] = 2
	for i := 21; i < len(b); i++ {
		b[i] = byte(i)
	}
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

func exampleHeader() Header {
	return Header{
		Type: Data, Incarnation: 0x1122334455667788, Position: 4096, Synced: 2048,
		ID: PartitionID{Topic: exampleTopic, Partition: 3}, Epoch: 7, BaseOffset: 1000,
		RecordCount: 5, AppendTime: 1790000000123,
	}
}

// golden frames: header and payload. They are also in testdata/v1.hex and must decode
// for ever.
func goldenFrames() []Header {
	data := exampleHeader()
	ext := exampleHeader()
	ext.Extensions = []Extension{{Type: 1, Value: []byte("abc")}, {Type: 2, Value: []byte{}}}
	ext.Flags = 0x80
	epoch := exampleHeader()
	epoch.Type, epoch.RecordCount = EpochStart, 0
	trunc := epoch
	trunc.Type = Truncate
	drop := epoch
	drop.Type = DropPartition
	return []Header{data, ext, epoch, trunc, drop}
}

func goldenPayload(h *Header) []byte {
	switch h.Type {
	case Data:
		return exampleBatch(h.BaseOffset, 10)
	case Truncate:
		return AppendTruncate(nil, 990)
	}
	return []byte{}
}

func readHex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	require.NoError(t, err)
	return b
}

func TestGoldenFixtureDecodesForEver(t *testing.T) {
	text, err := os.ReadFile("testdata/v1.hex")
	require.NoError(t, err)
	b := readHex(t, string(text))
	for _, want := range goldenFrames() {
		payload := goldenPayload(&want)
		want.PayloadLen = uint32(len(payload))
		h, n, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, want, h)
		require.Equal(t, want.EncodedLen(), n)
		require.Equal(t, payload, b[n:n+int(h.PayloadLen)])
		require.NoError(t, Verify(&h, b[n:n+int(h.PayloadLen)]))
		require.Equal(t, b[:n], Encode(nil, &want, payload), "the writer changed")
		b = b[n+int(h.PayloadLen):]
	}
	require.Empty(t, b)
}

func TestDocumentedExampleDecodes(t *testing.T) {
	text, err := os.ReadFile("../docs/format/frame.md")
	require.NoError(t, err)
	m := regexp.MustCompile("(?s)```hex\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, m, "no hex block")
	var dump strings.Builder
	for _, line := range strings.Split(string(m[1]), "\n") {
		if _, rest, ok := strings.Cut(line, "  "); ok {
			bytesOnly, _, _ := strings.Cut(rest, "  ")
			dump.WriteString(bytesOnly + " ")
		}
	}
	b := readHex(t, dump.String())
	h, n, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, Truncate, h.Type)
	require.Equal(t, uint64(4096), h.Position)
	require.Equal(t, PartitionID{Topic: exampleTopic, Partition: 3}, h.ID)
	require.NoError(t, Verify(&h, b[n:]))
	end, err := TruncateEnd(b[n:])
	require.NoError(t, err)
	require.Equal(t, int64(990), end)
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Header{
			Type:        Type(rapid.IntRange(1, 4).Draw(t, "type")),
			Flags:       rapid.Byte().Draw(t, "flags"),
			Incarnation: rapid.Uint64().Draw(t, "incarnation"),
			Position:    rapid.Uint64().Draw(t, "position"),
			Synced:      rapid.Uint64().Draw(t, "synced"),
			ID: PartitionID{Topic: TopicID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic")),
				Partition: rapid.Int32Min(0).Draw(t, "partition")},
			Epoch:       rapid.Int32().Draw(t, "epoch"),
			BaseOffset:  rapid.Int64Min(0).Draw(t, "base"),
			RecordCount: rapid.Int32Min(0).Draw(t, "count"),
			AppendTime:  rapid.Int64().Draw(t, "time"),
			KeyID:       rapid.Uint32().Draw(t, "key"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "extensions") {
			h.Extensions = append(h.Extensions, Extension{
				Type: rapid.Uint16Max(ExtRequired-1).Draw(t, "ext"), Value: rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "value")})
		}
		payload := rapid.SliceOfN(rapid.Byte(), 0, 21).Draw(t, "payload")
		switch h.Type {
		case Truncate:
			payload = AppendTruncate(nil, rapid.Int64Min(0).Draw(t, "end"))
		case Data:
			payload = append(payload, rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "more")...)
		}
		prefix := []byte("before")
		b := Encode(prefix, &h, payload)
		require.Equal(t, len(prefix)+h.EncodedLen(), len(b))
		b = append(b, payload...)[len(prefix):]
		got, n, err := Decode(b)
		require.NoError(t, err)
		h.PayloadLen = uint32(len(payload))
		require.Equal(t, h, got)
		require.Equal(t, h.EncodedLen(), n)
	})
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	for _, h := range goldenFrames() {
		payload := goldenPayload(&h)
		good := append(Encode(nil, &h, payload), payload...)
		for bit := range len(good) * 8 {
			b := bytes.Clone(good)
			b[bit/8] ^= 1 << (bit % 8)
			got, n, err := Decode(b)
			if err == nil {
				err = Verify(&got, b[n:])
			}
			require.Error(t, err, "bit %d of %s", bit, h.Type)
			require.NotErrorIs(t, err, ErrVersion, "bit %d", bit)
		}
	}
}

func TestShortInput(t *testing.T) {
	h := exampleHeader()
	payload := exampleBatch(h.BaseOffset, 10)
	b := append(Encode(nil, &h, payload), payload...)
	for n := range HeaderLen + CoveredPayload {
		_, _, err := Decode(b[:n])
		require.ErrorIs(t, err, ErrShort, "%d bytes", n)
	}
	got, n, err := Decode(b[:HeaderLen+CoveredPayload])
	require.NoError(t, err)
	require.ErrorIs(t, Verify(&got, b[n:len(b)-1]), ErrShort)
	_, _, err = Decode(make([]byte, 200))
	require.ErrorIs(t, err, ErrMagic)
	_, _, err = Decode([]byte("nope"))
	require.ErrorIs(t, err, ErrMagic)
}

// reseal gives an edited header a right checksum again.
func reseal(b []byte) []byte {
	hlen := int(binary.BigEndian.Uint16(b[12:]))
	binary.BigEndian.PutUint32(b[4:], checksum(b[8:hlen], b[hlen:]))
	return b
}

func TestNewerProgramsFramesCanBeSteppedOver(t *testing.T) {
	h := exampleHeader()
	payload := exampleBatch(h.BaseOffset, 10)
	whole := func(h Header) []byte { return append(Encode(nil, &h, payload), payload...) }

	version := whole(h)
	version[8] = 2
	typ := h
	typ.Type = 9
	required := h
	required.Extensions = []Extension{{Type: ExtRequired | 5, Value: []byte("x")}}
	for name, b := range map[string][]byte{"version": reseal(version), "type": whole(typ), "extension": whole(required)} {
		got, n, err := Decode(b)
		require.ErrorIs(t, err, ErrVersion, name)
		require.Equal(t, len(b), n+int(got.PayloadLen), name)
	}
}

func TestInvalidFields(t *testing.T) {
	h := exampleHeader()
	payload := exampleBatch(h.BaseOffset, 10)
	for name, edit := range map[string]func(h *Header){
		"partition": func(h *Header) { h.ID.Partition = -1 },
		"offset":    func(h *Header) { h.BaseOffset = -1 },
		"count":     func(h *Header) { h.RecordCount = -1 },
		"control":   func(h *Header) { h.Type = EpochStart },
		"truncate":  func(h *Header) { h.Type = Truncate },
	} {
		e := h
		edit(&e)
		_, n, err := Decode(append(Encode(nil, &e, payload), payload...))
		require.ErrorIs(t, err, ErrInvalid, name)
		require.Zero(t, n)
	}
	long := append(Encode(nil, &h, payload), payload[:21]...)
	binary.BigEndian.PutUint32(long[88:], MaxPayload+1)
	_, _, err := Decode(reseal(long))
	require.ErrorIs(t, err, ErrInvalid)

	wrong := h
	wrong.PayloadLen, wrong.BaseOffset = uint32(len(payload)), 1001
	require.ErrorIs(t, Verify(&wrong, payload), ErrInvalid)
	_, err = TruncateEnd([]byte{1})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = TruncateEnd(AppendTruncate(nil, -1))
	require.ErrorIs(t, err, ErrInvalid)
}

func TestNoAllocations(t *testing.T) {
	h := exampleHeader()
	payload := exampleBatch(h.BaseOffset, 10)
	buf := make([]byte, 0, 256)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b := append(Encode(buf, &h, payload), payload...)
		got, n, err := Decode(b)
		if err != nil || Verify(&got, b[n:]) != nil {
			t.Error("bad frame")
		}
	}))
}

func TestIDs(t *testing.T) {
	id := PartitionID{Topic: exampleTopic, Partition: 3}
	require.Equal(t, "bx0MUo5BS3qcMwWvdyHYEA/3", id.String())
	back, err := ParsePartitionID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, back)
	for _, s := range []string{"", "x", "bx0MUo5BS3qcMwWvdyHYEA", "bx0MUo5BS3qcMwWvdyHYEA/", "bx0MUo5BS3qcMwWvdyHYEA/-1",
		"bx0MUo5BS3qcMwWvdyHYEA/03", "bx0MUo5BS3qcMwWvdyHYEA/2147483648", "bx0MUo5BS3qcMwWvdyHYEB/3", "bx0MUo5BS3qcMwWvdyHY+A/3"} {
		_, err := ParsePartitionID(s)
		require.Error(t, err, "%q", s)
	}
	text, err := exampleTopic.MarshalText()
	require.NoError(t, err)
	var topic TopicID
	require.NoError(t, topic.UnmarshalText(text))
	require.Equal(t, exampleTopic, topic)
	require.True(t, TopicID{}.IsZero())
	require.Equal(t, -1, PartitionID{Topic: exampleTopic, Partition: 2}.Compare(id))
	require.Equal(t, 1, id.Compare(PartitionID{Partition: 9}))
}

func FuzzDecode(f *testing.F) {
	for _, h := range goldenFrames() {
		payload := goldenPayload(&h)
		f.Add(append(Encode(nil, &h, payload), payload...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderLen { // most mutations break the checksum: repair it to reach what is behind
			if hlen := int(binary.BigEndian.Uint16(b[12:])); hlen >= HeaderLen && hlen <= len(b) {
				b = bytes.Clone(b)
				rest := b[hlen:min(len(b), hlen+CoveredPayload)]
				binary.BigEndian.PutUint32(b[4:], checksum(b[8:hlen], rest))
			}
		}
		h, n, err := Decode(b)
		if err != nil {
			return
		}
		if n != h.EncodedLen() || n > len(b) {
			t.Fatalf("header length %d of %d", n, h.EncodedLen())
		}
		payload := b[n:min(len(b), n+int(h.PayloadLen))]
		if err := Verify(&h, payload); err == nil {
			again := append(Encode(nil, &h, payload), payload...)
			h2, n2, err := Decode(again)
			if err != nil || n2 != n || h2.ID != h.ID || h2.Position != h.Position {
				t.Fatalf("not stable: %v", err)
			}
		}
	})
}

func BenchmarkEncodeDecode(b *testing.B) {
	h := exampleHeader()
	payload := exampleBatch(h.BaseOffset, 1000)
	buf := make([]byte, 0, 2048)
	for b.Loop() {
		out := append(Encode(buf, &h, payload), payload[:21]...)
		if _, _, err := Decode(out); err != nil {
			b.Fatal(err)
		}
	}
}
