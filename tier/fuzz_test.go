package tier

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
)

// FuzzObject reads hostile bytes as a data object: trailer, directory, and sections that nothing protects when the checksums are
// made right.
func FuzzObject(f *testing.F) {
	obj := craft(f)
	f.Add(obj, uint16(0))
	f.Add(obj[100:], uint16(100))
	f.Add(craft(f, Section{Type: 77}), uint16(0))
	f.Fuzz(func(t *testing.T, tail []byte, before uint16) {
		off := int64(before)
		o, more, err := parseTail(tail, off, off+int64(len(tail)))
		if err != nil || more < off {
			return
		}
		for i := range o.Blocks {
			require.LessOrEqual(t, o.Blocks[i].Off+o.Blocks[i].Stored, o.FooterOff)
		}
	})
}

func FuzzDirectory(f *testing.F) {
	obj := craft(f)
	tr, err := parseTrailer(obj[len(obj)-trailerLen:], int64(len(obj)))
	require.NoError(f, err)
	f.Add(obj[len(obj)-trailerLen-tr.dirLen:len(obj)-trailerLen], int64(len(obj)))
	f.Fuzz(func(t *testing.T, dir []byte, size int64) {
		dir = dir[:len(dir)/dirEntryLen*dirEntryLen]
		size = max(size, int64(len(dir)+trailerLen+len(headMagic)))
		// Made valid as a whole, so that the entries themselves are looked at.
		var sections []Section
		raw := appendFooter(append([]byte{}, dir...), sections, size)
		raw[len(raw)-trailerLen+3] = byte(len(dir))
		raw[len(raw)-trailerLen+2] = byte(len(dir) >> 8)
		tr, err := parseTrailer(raw[len(raw)-trailerLen:], size)
		if err != nil {
			return
		}
		crc := checksum(raw[:len(raw)-12])
		copy(raw[len(raw)-12:], []byte{byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)})
		got, err := parseDirectory(raw[len(raw)-tr.dirLen-trailerLen:], tr)
		if err != nil {
			return
		}
		for _, s := range got {
			require.True(t, s.Off >= 0 && s.Len >= 0 && s.Off+s.Len <= size)
		}
	})
}

func FuzzBlockTable(f *testing.F) {
	l := newLayout(ObjectSpec{End: 100}, 1)
	l.blocks = []Block{{Base: 0, Last: 9, Off: 8, Stored: 100, Plain: 100, MaxTimestamp: 7, Records: 10, Batches: 2}, {Base: 10, Last: 99, Off: 108, Stored: 70, Plain: 70, Records: 90, Batches: 1}}
	f.Add(appendBlocks(nil, l.blocks), int64(178))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, int64(1<<40))
	f.Fuzz(func(t *testing.T, b []byte, end int64) {
		blocks, err := decodeBlocks(b, end)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(blocks), len(b))
		again, err := decodeBlocks(appendBlocks(nil, blocks), end)
		require.NoError(t, err)
		require.Equal(t, blocks, again)
		for i := range blocks {
			require.GreaterOrEqual(t, blocks[i].Last, blocks[i].Base)
			if i > 0 {
				require.Greater(t, blocks[i].Base, blocks[i-1].Last)
			}
		}
	})
}

func FuzzOffsetIndex(f *testing.F) {
	var x indexBuilder
	x.add(100, 104, 80, 1_700_000_000_000)
	x.add(105, 105, 61, 1_600_000_000_000)
	x.endBlock()
	f.Add(x.done, int64(100), int64(105), int64(141))
	f.Fuzz(func(t *testing.T, b []byte, base, last, plain int64) {
		var sum int64
		blocks := []Block{{Base: base, Last: last, Plain: plain}}
		if err := walkIndex(b, blocks, func(e IndexEntry) bool { sum += e.Size; return true }); err == nil {
			require.Equal(t, plain, sum)
		}
		_, _ = decodeAborted(b)
	})
}

func FuzzIdentity(f *testing.F) {
	obj := craft(f)
	o, _, err := parseTail(obj, 0, int64(len(obj)))
	require.NoError(f, err)
	b, err := o.Identity.encode()
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"format":1,"epochs":[{},{},{}],"end":5}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := decodeIdentity(b)
		if err != nil {
			return
		}
		b, err = i.encode()
		require.NoError(t, err)
		again, err := decodeIdentity(b)
		require.NoError(t, err)
		require.Equal(t, i.End, again.End)
	})
}

// FuzzHead reads hostile bytes as a head, and hostile JSON in a good envelope.
func FuzzHead(f *testing.F) {
	h := sampleHead()
	plain, err := h.JSON()
	require.NoError(f, err)
	f.Add(h.Encode(), false)
	f.Add(plain, true)
	f.Add([]byte(`null`), true)
	f.Add([]byte(`{"format":1,"epochs":[{"epoch":1},{"epoch":1}]}`), true)
	f.Fuzz(func(t *testing.T, b []byte, wrap bool) {
		if wrap {
			b = seal(headFileMagic, b, envelope{})
		}
		h, err := DecodeHead(b)
		if err != nil {
			return
		}
		again, err := DecodeHead(h.Encode())
		require.NoError(t, err)
		x, err := h.JSON()
		require.NoError(t, err)
		y, err := again.JSON()
		require.NoError(t, err)
		require.Equal(t, string(x), string(y))
		// Whatever passes can be worked with.
		h.EpochOf(5)
		c := h.Clone()
		c.trimEpochs()
		c.raiseCeiling()
		require.NoError(t, c.check())
		_, _ = walkExtents(h.Extents, h.Start, 0, func(*Extent) (bool, error) { return true, nil })
	})
}

func FuzzPage(f *testing.F) {
	p := samplePage()
	b, err := p.Encode()
	require.NoError(f, err)
	plain, err := p.JSON()
	require.NoError(f, err)
	f.Add(b, false)
	f.Add(plain, true)
	f.Fuzz(func(t *testing.T, b []byte, wrap bool) {
		if wrap {
			b = seal(pageFileMagic, b, envelope{})
		}
		p, err := DecodePage(b)
		if err != nil {
			return
		}
		r := p.ref("k", 1)
		require.Positive(t, r.Count)
		_, err = p.Encode()
		require.NoError(t, err)
	})
}

func FuzzKeys(f *testing.F) {
	f.Add(dataKey(testID, 5, 6))
	f.Add(pageKey(testID, 6))
	f.Add(HeadKey(testID))
	f.Add(HistoryKey(testID, 4))
	f.Fuzz(func(t *testing.T, key string) {
		if n, ok := ParseDataKey(key); ok {
			require.Contains(t, key, DataPrefix(n.ID))
		}
		if id, ok := ParseHeadKey(key); ok {
			require.Equal(t, key, HeadKey(id))
		}
		parsePageKey(key)
		parseHistoryKey(key)
	})
}

// FuzzCut walks blocks whose checksum is right and whose batches are hostile.
func FuzzCut(f *testing.F) {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{BaseOffset: 10})
	b.Add(1, nil, []byte("x"), nil)
	one := b.Bytes()
	f.Add(append(append([]byte{}, one...), one...), int64(10), int64(11), int64(10), 30)
	f.Fuzz(func(t *testing.T, raw []byte, base, last, offset int64, piece int) {
		if len(raw) == 0 {
			return
		}
		piece = max(1, min(piece, len(raw)))
		var bufs [][]byte
		for i := 0; i < len(raw); i += piece {
			bufs = append(bufs, raw[i:min(i+piece, len(raw))])
		}
		s := newScatter(bufs)
		k := []Block{{Base: base, Last: last, Stored: int64(len(raw))}}
		got, err := cutBatches(&s, k, offset, last, 70)
		if err == nil {
			require.Len(t, flat(got), got.Bytes)
		}
		_, _ = walkBlock(&s, &k[0], offset, last, func(int64, int64) bool { return true }, func([]byte, *batch.Header) (bool, error) { return true, nil })
	})
}

func TestJSONLimits(t *testing.T) {
	big := make([]byte, 0, maxJSONItems*3+10)
	big = append(big, `{"extents":[{}`...)
	for range maxJSONItems {
		big = append(big, `,{}`...)
	}
	big = append(big, `]}`...)
	require.Error(t, checkJSON(big))
	_, err := DecodeHead(seal(headFileMagic, big, envelope{}))
	require.ErrorIs(t, err, ErrCorrupt)
	deep := make([]byte, 100)
	for i := range deep {
		deep[i] = '['
	}
	require.Error(t, checkJSON(deep))
	require.NoError(t, checkJSON([]byte(`{"a":"[[[[[[[[[[[[[[[[[[[[[[[[,,,\"[[[","b":[1,2,{"c":[]}]}`)))
	var v map[string]any
	require.Error(t, decodeJSON([]byte(`]]]`), &v))
	require.NoError(t, json.Unmarshal([]byte(`{}`), &v))

	// A bomb: a few kilobytes that would be gigabytes.
	bomb := seal(headFileMagic, make([]byte, maxPlain+1), envelope{})
	require.Less(t, len(bomb), 1<<20)
	_, err = DecodeHead(bomb)
	require.ErrorIs(t, err, ErrCorrupt)
	bomb[20], bomb[21], bomb[22], bomb[23] = 0, 0, 0, 5 // and one that lies about it
	crc := envelopeCRC(bomb)
	copy(bomb[28:], []byte{byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)})
	_, err = DecodeHead(bomb)
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestFeatureBits(t *testing.T) {
	plain, err := sampleHead().JSON()
	require.NoError(t, err)
	_, err = DecodeHead(seal(headFileMagic, plain, envelope{readFeatures: 4}))
	require.ErrorIs(t, err, ErrFeature)
	h, err := DecodeHead(seal(headFileMagic, plain, envelope{writeFeatures: 4}))
	require.NoError(t, err)
	h.SetETag("x")
	w := newWorld(t, 1)
	_, err = w.a.RaiseCeiling(ctx(t), h.ID, h, h.OwnerOf(), h.Ceiling)
	require.ErrorIs(t, err, ErrFeature)
}
