package wal

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

var update = flag.Bool("update", false, "write the golden files again; fixtures of formats only where there is none")

// craft returns the bytes of object 3 of a stream: a batch of two records of one partition, and one of another. With combined footers it
// also has those of objects 1 and 2.
func craft(t testing.TB, combined bool) []byte {
	o := options(bucket.NewMemory())
	o.setDefaults()
	w := &Writer{o: o, ctx: context.Background(), slots: make(chan struct{}, 1), dead: make(chan struct{}), indexed: noIndex, id: attemptID{1, 2, 3}}
	w.next, w.acked, w.floor = 3, 3, 1
	if combined {
		w.o.CombineEvery = 3
		f := footer{created: 1, incarnation: stream.Incarnation, end: headerLen}
		w.live = []object{{seq: 1, footer: f.append(nil)}, {seq: 2, footer: f.append(nil)}}
	}
	b := w.NewBuilder()
	fill(t, b, makeBatch(t, partition(1), 4, 100, 2, 4), makeBatch(t, partition(2), 0, 7, 1, 3))
	u := w.begin(b)
	defer u.stop()
	u.h.attempt = attemptID{0xaa, 0xbb, 0xcc}
	return bytes.Clone(w.compose(u))
}

func craftSeal(t testing.TB) []byte {
	b, err := encodeSeal(header{broker: 7, stream: checksum([]byte("run-a")), seq: 4, floor: 1, attempt: attemptID{9, 8, 7}}, "life-2")
	require.NoError(t, err)
	return b
}

// decodeObject reads a whole object as a reader of a sealed stream does.
func decodeObject(t testing.TB, b []byte, seq uint64) (header, tail, []Entry) {
	mem := bucket.NewMemory()
	_, err := mem.Put(ctx(t), tailOp, stream.Key(seq), bucket.BytesBody(b), bucket.Condition{})
	require.NoError(t, err)
	h, err := parseHeader(b)
	require.NoError(t, err)
	require.True(t, h.of(stream, seq))
	x, err := readTail(ctx(t), mem, tailOp, stream.Key(seq), seq, int64(len(b)))
	require.NoError(t, err)
	f, err := decodeFooter(x.footer)
	require.NoError(t, err)
	require.Equal(t, []string{"cluster", "life-1", "run-a"}, []string{f.cluster, f.clusterIncarnation, f.incarnation})
	var entries []Entry
	require.NoError(t, f.walkParts(func(p partHead) error {
		e, err := decodePart(p.bytes)
		require.NoError(t, err)
		require.Equal(t, []any{p.id, p.len}, []any{e.ID, e.Len})
		require.Equal(t, e.CRC, checksum(b[p.off:p.off+p.len]))
		entries = append(entries, e)
		return nil
	}))
	return h, x, entries
}

func checkCrafted(t testing.TB, b []byte) tail {
	h, x, entries := decodeObject(t, b, 3)
	require.Equal(t, header{broker: 7, stream: h.stream, seq: 3, floor: 1, acked: 3, writer: attemptID{1, 2, 3}, attempt: attemptID{0xaa, 0xbb, 0xcc}}, h)
	require.Len(t, entries, 2)
	require.Equal(t, []int64{100, 102, 2, 7, 8, 1}, []int64{entries[0].Start, entries[0].End, entries[0].Records, entries[1].Start, entries[1].End, entries[1].Records})
	return x
}

func fixture(t testing.TB, name string, now []byte) []byte {
	path := "testdata/" + name
	if _, err := os.Stat(path); *update && errors.Is(err, os.ErrNotExist) {
		var out strings.Builder
		for s := hex.EncodeToString(now); len(s) > 0; s = s[min(64, len(s)):] {
			out.WriteString(s[:min(64, len(s))] + "\n")
		}
		require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	raw, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	require.NoError(t, err)
	return raw
}

// TestOldFormatsOpenForEver reads what earlier versions wrote. Files are added here, never changed.
func TestOldFormatsOpenForEver(t *testing.T) {
	obj := fixture(t, "object-v1.hex", craft(t, false))
	checkCrafted(t, obj)
	require.Equal(t, craft(t, false), obj, "what is written now is the same")

	obj = fixture(t, "object-combined-v1.hex", craft(t, true))
	x := checkCrafted(t, obj)
	list, err := decodeCombined(obj[x.combinedOff:x.footerOff], 3)
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 2}, []uint64{list[0].seq, list[1].seq})

	seal := fixture(t, "seal-v1.hex", craftSeal(t))
	h, cluster, err := decodeSeal(seal)
	require.NoError(t, err)
	require.Equal(t, "life-2", cluster)
	require.True(t, h.of(stream, 4))
	require.EqualValues(t, 1, h.floor)
	require.Equal(t, craftSeal(t), seal)
}

// documented returns the bytes of the hex blocks of the format's page.
func documented(t *testing.T) [][]byte {
	text, err := os.ReadFile("../../docs/format/wal-object.md")
	require.NoError(t, err)
	var out [][]byte
	for _, m := range regexp.MustCompile("(?s)```hex\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		var raw []byte
		for line := range strings.Lines(m[1]) {
			fields := strings.SplitN(strings.TrimSpace(line), "  ", 3)
			require.GreaterOrEqual(t, len(fields), 2, line)
			at, err := strconv.ParseInt(fields[0], 16, 32)
			require.NoError(t, err)
			require.EqualValues(t, len(raw), at, line)
			b, err := hex.DecodeString(strings.ReplaceAll(fields[1], " ", ""))
			require.NoError(t, err)
			raw = append(raw, b...)
		}
		out = append(out, raw)
	}
	return out
}

func TestDocumentedExamplesDecode(t *testing.T) {
	blocks := documented(t)
	require.Len(t, blocks, 2)
	checkCrafted(t, blocks[0])
	require.Equal(t, fixture(t, "object-v1.hex", nil), blocks[0])
	require.Equal(t, fixture(t, "seal-v1.hex", nil), blocks[1])
}

// TestEveryFlippedBitIsNoticed: no bit outside of the batches may change unseen.
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	obj := craft(t, true)
	mem := bucket.NewMemory()
	x, err := parseTrailer(obj[len(obj)-trailerLen:], int64(len(obj)))
	require.NoError(t, err)
	read := func(b []byte) error {
		_, err := mem.Put(ctx(t), tailOp, stream.Key(3), bucket.BytesBody(b), bucket.Condition{})
		require.NoError(t, err)
		if _, err := parseHeader(b); err != nil {
			return err
		}
		x, err := readTail(ctx(t), mem, tailOp, stream.Key(3), 3, int64(len(b)))
		if err != nil {
			return err
		}
		if c := b[x.combinedOff:x.footerOff]; checksum(c) != x.combinedCRC {
			return tier.ErrCorrupt
		}
		return nil
	}
	require.NoError(t, read(obj))
	for i := range obj {
		if i >= headerLen && int64(i) < x.combinedOff {
			continue
		}
		for bit := range 8 {
			bad := bytes.Clone(obj)
			bad[i] ^= 1 << bit
			require.ErrorIs(t, read(bad), tier.ErrCorrupt, "byte %d", i)
		}
	}
	seal := craftSeal(t)
	for i := range seal {
		bad := bytes.Clone(seal)
		bad[i] ^= 1
		_, _, err := decodeSeal(bad)
		require.ErrorIs(t, err, tier.ErrCorrupt, "byte %d", i)
	}
}

func TestNewerVersions(t *testing.T) {
	obj := craft(t, false)
	for _, at := range []int{8, 10} {
		b := bytes.Clone(obj[:headerLen])
		b[at+1] = 2
		copy(b[76:], be32(checksum(b[:76])))
		_, err := parseHeader(b)
		require.ErrorIs(t, err, tier.ErrFeature)
	}
	for _, at := range []int{48, 50} {
		b := bytes.Clone(obj[len(obj)-trailerLen:])
		b[at+1] = 2
		copy(b[84:], be32(checksum(b[:84])))
		_, err := parseTrailer(b, int64(len(obj)))
		require.ErrorIs(t, err, tier.ErrFeature)
	}
}

func be32(v uint32) []byte { return []byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)} }

func TestBomb(t *testing.T) {
	plain := make([]byte, maxCombined+1)
	bomb := codecs.enc().EncodeAll(plain, be32(5))
	require.Less(t, len(bomb), 1<<20)
	_, err := decodeCombined(bomb, 9)
	require.ErrorIs(t, err, tier.ErrCorrupt)
	_, err = decodeCombined(append(be32(maxCombined+1), bomb[4:]...), 9)
	require.ErrorIs(t, err, tier.ErrCorrupt)
}

// FuzzFooter reads hostile bytes as a footer.
func FuzzFooter(f *testing.F) {
	obj := craft(f, false)
	_, x, _ := decodeObject(f, obj, 3)
	f.Add(x.footer)
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeFooter(b)
		if err != nil {
			return
		}
		var parts []byte
		n := 0
		err = d.walkParts(func(p partHead) error {
			e, err := decodePart(p.bytes)
			if err != nil {
				return err
			}
			require.Positive(t, e.Len)
			require.Less(t, e.Start, e.End)
			_, _ = e.Cut(e.Start+1, e.End-1)
			parts, n = appendPart(parts, &e), n+1
			return nil
		})
		if err != nil {
			return
		}
		// What was understood is written in the same way, but for numbers that were spelled longer than need be.
		again := footer{created: d.created, cluster: d.cluster, clusterIncarnation: d.clusterIncarnation, incarnation: d.incarnation, end: d.end, count: n, parts: parts}
		x, err := decodeFooter(again.append(nil))
		require.NoError(t, err)
		require.NoError(t, x.walkParts(func(partHead) error { return nil }))
	})
}

// FuzzCombined reads hostile bytes as combined footers, packed and not.
func FuzzCombined(f *testing.F) {
	obj := craft(f, true)
	_, x, _ := decodeObject(f, obj, 3)
	f.Add(obj[x.combinedOff:x.footerOff], uint64(3), false)
	f.Add([]byte{1, 1, 7, 1, 0}, uint64(3), true)
	f.Fuzz(func(t *testing.T, b []byte, seq uint64, pack bool) {
		if pack {
			b = codecs.enc().EncodeAll(b, be32(uint32(len(b))))
		}
		list, err := decodeCombined(b, seq)
		if err != nil {
			return
		}
		for i, n := range list {
			require.Less(t, n.seq, seq)
			require.True(t, i == 0 || n.seq > list[i-1].seq)
		}
	})
}

// FuzzEnds reads hostile headers, trailers and seals.
func FuzzEnds(f *testing.F) {
	obj := craft(f, false)
	f.Add(obj[:headerLen], int64(len(obj)), true)
	f.Add(obj[len(obj)-trailerLen:], int64(len(obj)), true)
	f.Add(craftSeal(f), int64(0), true)
	f.Fuzz(func(t *testing.T, b []byte, size int64, sum bool) {
		if sum { // with right checksums the numbers inside are looked at
			b = bytes.Clone(b)
			if len(b) == trailerLen {
				copy(b[84:], be32(checksum(b[:84])))
			} else if len(b) >= headerLen {
				copy(b[76:], be32(checksum(b[:76])))
			}
			if len(b) == sealLen {
				copy(b[sealLen-4:], be32(checksum(b[:sealLen-4])))
			}
		}
		if h, err := parseHeader(b); err == nil {
			var out [headerLen]byte
			h.put(out[:])
			again, err := parseHeader(out[:])
			require.NoError(t, err)
			require.Equal(t, h, again)
		}
		if x, err := parseTrailer(b, size); err == nil {
			require.LessOrEqual(t, x.combinedOff, x.footerOff)
			require.LessOrEqual(t, x.footerOff, size-trailerLen)
		}
		_, _, _ = decodeSeal(b)
	})
}

// FuzzObject puts hostile bytes where an object of a sealed stream should be, and reads the stream.
func FuzzObject(f *testing.F) {
	f.Add(craft(f, true), true)
	f.Add(craft(f, false), false)
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		mem := bucket.NewMemory()
		_, err := mem.Put(ctx(t), tailOp, stream.Key(3), bucket.BytesBody(b), bucket.Condition{})
		require.NoError(t, err)
		if sealed {
			_, err := mem.Put(ctx(t), tailOp, stream.Key(4), bucket.BytesBody(craftSeal(t)), bucket.Condition{})
			require.NoError(t, err)
		}
		s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
		if err != nil {
			return
		}
		_, _ = s.Entries(ctx(t), partition(1))
	})
}

func FuzzKeys(f *testing.F) {
	f.Add(stream.Key(0))
	f.Add(stream.Key(maxSeq))
	f.Fuzz(func(t *testing.T, key string) {
		if id, seq, ok := ParseKey(key); ok {
			require.Equal(t, key, id.Key(seq))
			require.NoError(t, bucket.CheckKey(key))
		}
	})
}
