package tier

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

func TestKeys(t *testing.T) {
	key := dataKey(testID, 1234, 56)
	require.Regexp(t, `^data/5a16/0102030405060708090a0b0c0d0e0f10/7/00000000000000001234-0000000056-[0-9a-f]{24}\.tbd$`, key)
	require.NoError(t, bucket.CheckKey(key))
	n, ok := ParseDataKey(key)
	require.True(t, ok)
	require.Equal(t, DataName{ID: testID, Base: 1234, Epoch: 56, UID: n.UID}, n)
	require.Less(t, dataKey(testID, 9, 9), dataKey(testID, 10, 1))

	id, ok := ParseHeadKey(HeadKey(testID))
	require.True(t, ok)
	require.Equal(t, testID, id)
	_, epoch, ok := parsePageKey(pageKey(testID, 3))
	require.True(t, ok)
	require.EqualValues(t, 3, epoch)
	version, ok := parseHistoryKey(HistoryKey(testID, 77))
	require.True(t, ok)
	require.EqualValues(t, 77, version)

	for _, bad := range []string{
		"", "data/", "data/5a16/0102030405060708090a0b0c0d0e0f10/7/x.tbd", strings.Replace(key, "5a16", "5a17", 1),
		strings.Replace(key, "/7/", "/07/", 1), strings.Replace(key, "/7/", "/-7/", 1), strings.ToUpper(key), key + "x", key + "/x",
		strings.Replace(key, "0000001234", "000000+234", 1), strings.Replace(key, "0000000056", "9999999999", 1), HeadKey(testID),
	} {
		_, ok := ParseDataKey(bad)
		require.False(t, ok, bad)
	}
	for _, bad := range []string{"head/", "head/5a16/0102030405060708090a0b0c0d0e0f10", HeadKey(testID) + "/", HeadKey(testID) + "x", key} {
		_, ok := ParseHeadKey(bad)
		require.False(t, ok, bad)
	}
}

// object uploads one object with n batches and returns it opened.
func (w *world) object(n int) (*Object, Extent) {
	w.claim()
	w.write(n)
	src := w.pending(w.h)
	e, err := w.a.Upload(ctx(w.t), w.spec(w.h, src), src)
	require.NoError(w.t, err)
	o, err := OpenObject(ctx(w.t), w.b, coldOp, e.Key)
	require.NoError(w.t, err)
	return o, e
}

func TestObjectSections(t *testing.T) {
	w := newWorld(t, 3)
	w.write(2)
	w.batches, w.recs = nil, nil
	w.next = 0
	o, e := w.object(50)
	i := o.Identity
	require.Equal(t, e.Size, o.Size)
	require.Equal(t, []int64{e.FooterOff, e.IndexOff}, []int64{o.FooterOff, o.IndexOff})
	require.Equal(t, testID, i.ID())
	require.Equal(t, []any{"cluster", "life-1", "logs", int64(0), w.next, int64(50), int64(len(w.recs))}, []any{i.Cluster, i.ClusterIncarnation, i.Topic, i.Start, i.End, i.Batches, i.Records})
	require.Equal(t, []EpochRange{{1, 0, w.next}}, i.Epochs)
	require.Equal(t, w.h.Epochs, i.History)
	require.Equal(t, []string{FlagNoAborted}, i.Flags)
	p, err := o.Producers(ctx(t))
	require.NoError(t, err)
	require.Equal(t, "producers", string(p))
	txns, err := o.Aborted(ctx(t))
	require.NoError(t, err)
	require.Empty(t, txns)

	k := 0
	require.NoError(t, o.OffsetIndex(ctx(t), func(x IndexEntry) bool {
		b, blk := w.batches[k], o.Blocks[x.Block]
		require.Equal(t, []int64{b.base, b.last, int64(len(b.bytes)), b.info.MaxTimestamp}, []int64{x.Base, x.Last, x.Size, x.MaxTimestamp})
		raw := make([]byte, x.Size)
		_, _, err := w.b.Get(ctx(t), coldOp, o.Key, blk.Off+x.Pos, x.Size, raw)
		require.NoError(t, err)
		require.Equal(t, b.bytes, raw)
		k++
		return true
	}))
	require.Equal(t, 50, k)
	for _, b := range o.Blocks {
		require.True(t, b.Stored <= 2000 || b.Batches == 1)
	}
	k = 0
	require.NoError(t, o.Batches(ctx(t), w.batches[10].base+1, w.batches[20].base, func(b []byte, h *batch.Header) error {
		require.Equal(t, w.batches[10+k].bytes, b)
		k++
		return nil
	}))
	require.Equal(t, 10, k)
}

func TestUploadRefusesWrongBatches(t *testing.T) {
	w := newWorld(t, 3)
	w.claim()
	w.write(6)
	try := func(src sliceSource, change func(*ObjectSpec)) error {
		spec := w.spec(w.h, w.batches)
		spec.AllowBefore = false
		if change != nil {
			change(&spec)
		}
		_, err := w.a.Upload(ctx(t), spec, src)
		return err
	}
	all := sliceSource(w.batches)
	require.NoError(t, try(all, nil))
	require.ErrorIs(t, try(nil, nil), ErrNotContiguous)
	require.ErrorIs(t, try(all[1:], nil), ErrNotContiguous)
	require.ErrorIs(t, try(all[:5], nil), ErrNotContiguous)
	require.ErrorIs(t, try(append(append(sliceSource{}, all[:2]...), all[3:]...), nil), ErrNotContiguous)
	require.ErrorIs(t, try(append(append(sliceSource{}, all[:2]...), all[1:]...), nil), ErrNotContiguous)
	require.ErrorIs(t, try(all, func(s *ObjectSpec) { s.End-- }), ErrNotContiguous)
	require.ErrorIs(t, try(all, func(s *ObjectSpec) { s.Start = all[0].last }), ErrNotContiguous)
	if all[0].last > all[0].base {
		require.NoError(t, try(all, func(s *ObjectSpec) { s.Start, s.AllowBefore = all[0].last, true }))
	}
	require.ErrorIs(t, try(all, func(s *ObjectSpec) { s.Start, s.AllowBefore = all[1].base, true }), ErrNotContiguous)
	require.NoError(t, try(append(append(sliceSource{}, all[:2]...), all[3:]...), func(s *ObjectSpec) { s.Sparse = true }))

	bad := sliceSource{all[0]}
	bad[0].bytes = bytes.Clone(all[0].bytes)
	bad[0].bytes[len(bad[0].bytes)-1] ^= 1
	require.ErrorIs(t, try(append(bad, all[1:]...), nil), batch.ErrCRC)
	bad[0].bytes = all[0].bytes[:len(all[0].bytes)-1]
	require.Error(t, try(append(bad, all[1:]...), nil))
}

// fickle gives other batches in its second pass.
type fickle struct {
	passes []sliceSource
	n      int
	err    error
}

func (f *fickle) Batches(yield func([]byte, BatchInfo) error) error {
	p := f.passes[min(f.n, len(f.passes)-1)]
	f.n++
	if err := p.Batches(yield); err != nil {
		return err
	}
	if f.n > 1 {
		return f.err
	}
	return nil
}

func TestUploadNoticesASourceThatChanges(t *testing.T) {
	w := newWorld(t, 3)
	w.claim()
	w.write(6)
	all := sliceSource(w.batches)
	other := append(sliceSource{}, all...)
	other[2].bytes = bytes.Clone(other[2].bytes)
	other[2].bytes[70] ^= 1
	sad := errors.New("disk is sad")
	for name, f := range map[string]*fickle{
		"shorter": {passes: []sliceSource{all, all[:5]}}, "longer": {passes: []sliceSource{all, append(append(sliceSource{}, all...), all[5])}},
		"other bytes": {passes: []sliceSource{all, other}}, "fails": {passes: []sliceSource{all}, err: sad},
	} {
		e, err := w.a.Upload(ctx(t), w.spec(w.h, all), f)
		require.Error(t, err, name)
		require.NotEmpty(t, e.Key)
		_, err = w.mem.Stat(ctx(t), coldOp, e.Key)
		require.ErrorIs(t, err, bucket.ErrNotFound, name)
	}
}

func TestUploadBodyMayBeLeftUnread(t *testing.T) {
	w := newWorld(t, 3)
	w.claim()
	w.write(30)
	l := newLayout(w.spec(w.h, w.batches), 2000)
	require.NoError(t, sliceSource(w.batches).Batches(l.add))
	require.NoError(t, l.finish("c", "i"))
	body := &objectBody{l: l, src: sliceSource(w.batches)}
	for _, n := range []int{0, 1, 100, 5000} {
		r, err := body.Open()
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, r, int64(n))
		require.NoError(t, err)
		require.NoError(t, r.Close())
	}
	r, err := body.Open()
	require.NoError(t, err)
	all, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.EqualValues(t, body.Size(), len(all))
	require.Equal(t, body.CRC32C(), checksum(all))
}

// craft builds an object by hand, from one batch and the given sections besides the usual ones.
func craft(t testing.TB, extra ...Section) []byte {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{BaseOffset: 100, LeaderEpoch: 3})
	b.Add(1_700_000_000_000, []byte("key"), []byte("hello"), nil)
	b.Add(1_700_000_000_005, nil, []byte("world"), nil)
	raw := bytes.Clone(b.Bytes())
	l := newLayout(ObjectSpec{ID: testID, Topic: "logs", Epoch: 3, Start: 100, End: 102, LogStart: 40, Now: 1_700_000_001_000,
		Producers: []byte{0xaa, 0xbb}, Epochs: []EpochStart{{0, 0, "run-a"}, {3, 90, "run-b"}}}, 1<<20)
	require.NoError(t, l.add(raw, BatchInfo{AppendTime: 1_700_000_000_900}))
	require.NoError(t, l.finish("cluster-x", "life-1"))
	obj := append([]byte(headMagic), raw...)
	if len(extra) == 0 {
		return append(obj, l.tail...)
	}
	var dir []Section
	tr, err := parseTrailer(l.tail[len(l.tail)-trailerLen:], l.size)
	require.NoError(t, err)
	dir, err = parseDirectory(l.tail[len(l.tail)-trailerLen-tr.dirLen:], tr)
	require.NoError(t, err)
	obj = append(obj, l.tail[:len(l.tail)-trailerLen-tr.dirLen]...)
	for _, s := range extra {
		s.Off, s.Len, s.CRC = int64(len(obj)), 3, checksum([]byte("???"))
		obj = append(obj, "???"...)
		dir = append(dir, s)
	}
	return appendFooter(obj, dir, int64(len(obj)+len(dir)*dirEntryLen+trailerLen))
}

func TestUnknownSections(t *testing.T) {
	obj := craft(t, Section{Type: 999})
	o, _, err := parseTail(obj, 0, int64(len(obj)))
	require.NoError(t, err)
	require.Len(t, o.Sections, 6)
	require.Equal(t, "unknown section", o.Sections[5].Type.String())
	obj = craft(t, Section{Type: 999, Required: true})
	_, _, err = parseTail(obj, 0, int64(len(obj)))
	require.ErrorIs(t, err, ErrFeature)
	// Known to the format but not to this version: the same.
	obj = craft(t, Section{Type: SectionWrappedKeys, Required: true})
	_, _, err = parseTail(obj, 0, int64(len(obj)))
	require.ErrorIs(t, err, ErrFeature)
}

func TestShortTailsAskForMore(t *testing.T) {
	obj := craft(t)
	size := int64(len(obj))
	for off := int64(0); off <= size-trailerLen; off++ {
		o, more, err := parseTail(obj[off:], off, size)
		require.NoError(t, err)
		if more == off {
			require.Len(t, o.Blocks, 1)
		} else {
			require.Less(t, more, off)
		}
	}
	mem := bucket.NewMemory()
	_, err := mem.Put(ctx(t), coldOp, "k", bucket.BytesBody(obj), bucket.Condition{})
	require.NoError(t, err)
	for off := int64(0); off <= size-trailerLen; off += 7 {
		o, err := openObject(ctx(t), mem, coldOp, "k", size, off)
		require.NoError(t, err)
		require.Equal(t, "logs", o.Identity.Topic)
	}
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	obj := craft(t)
	size := int64(len(obj))
	o, _, err := parseTail(obj, 0, size)
	require.NoError(t, err)
	for i := o.IndexOff; i < size; i++ {
		for bit := range 8 {
			bad := bytes.Clone(obj)
			bad[i] ^= 1 << bit
			_, _, err := parseTail(bad, 0, size)
			reserved := i >= size-trailerLen && errors.Is(err, ErrFeature)
			require.True(t, errors.Is(err, ErrCorrupt) || reserved, "byte %d: %v", i, err)
		}
	}
}

func TestBlocksKeepExtremes(t *testing.T) {
	blocks := []Block{
		{Base: 5, Last: 5, Off: 8, Stored: 61, Plain: 61, CRC: 1, MaxTimestamp: math.MinInt64, Records: 1, Batches: 1},
		{Base: 6, Last: 1 << 40, Off: 69, Stored: 100, Plain: 100, CRC: math.MaxUint32, MaxTimestamp: math.MaxInt64, Records: 2, Batches: 1},
		{Base: 1 << 41, Last: maxOffset - 1, Off: 169, Stored: 100, Plain: 100, MaxTimestamp: -1, Records: 2, Batches: 1},
	}
	got, err := decodeBlocks(appendBlocks(nil, blocks), 269)
	require.NoError(t, err)
	require.Equal(t, blocks, got)
	txns := []AbortedTxn{{ProducerID: 5, First: 10, Last: 20, LastStableOffset: 10}, {ProducerID: math.MaxInt64, First: math.MinInt64}}
	back, err := decodeAborted(appendAborted(nil, txns))
	require.NoError(t, err)
	require.Equal(t, txns, back)
}

func fixture(t testing.TB, name string) []byte {
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	if !strings.HasSuffix(name, ".hex") {
		return b
	}
	var raw []byte
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		part, err := hex.DecodeString(strings.Join(strings.Fields(line), ""))
		require.NoError(t, err)
		raw = append(raw, part...)
	}
	return raw
}

// TestOldFormatsOpenForEver reads what earlier versions wrote. Files are added here, never changed.
func TestOldFormatsOpenForEver(t *testing.T) {
	obj := fixture(t, "object-v1.hex")
	o, _, err := parseTail(obj, 0, int64(len(obj)))
	require.NoError(t, err)
	require.Equal(t, frame.PartitionID{Topic: testID.Topic, Partition: 7}, o.Identity.ID())
	require.Equal(t, []EpochStart{{0, 0, "run-a"}, {3, 90, "run-b"}}, o.Identity.History)
	s := newScatter([][]byte{obj[8:o.FooterOff]})
	require.Equal(t, -1, verifyBlocks(&s, o.Blocks))
	require.Equal(t, craft(t), obj, "what is written now is the same")

	h, err := DecodeHead(fixture(t, "head-v1.hex"))
	require.NoError(t, err)
	want, err := sampleHead().JSON()
	require.NoError(t, err)
	got, err := h.JSON()
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))

	p, err := DecodePage(fixture(t, "page-v1.hex"))
	require.NoError(t, err)
	require.Equal(t, samplePage(), p)
}

func sampleExtent(start, end int64, uid string) Extent {
	return Extent{Start: start, End: end, Kind: KindData, Key: DataPrefix(testID) + "00000000000000000100-0000000003-" + uid + ".tbd", Size: 1200, IndexOff: 300, FooterOff: 240,
		MaxTimestamp: 1_700_000_000_005, RunningMax: 1_700_000_000_005, MaxAppendTime: 1_700_000_000_900, RetentionTime: 1_700_000_000_005,
		Bytes: 232, Records: 2, Epoch: 3}
}

func samplePage() *Page {
	v := VoidExtent(102, 110, 3)
	v.RunningMax = 1_700_000_000_005
	return &Page{Format: pageFormat, ID: testID, Extents: []Extent{sampleExtent(100, 102, "0123456789abcdef01234567"), v}}
}

func sampleHead() *Head {
	p := samplePage()
	return &Head{
		Format: headFormat, Cluster: "cluster-x", ClusterIncarnation: "life-1", Topic: "logs", ID: testID, Version: 12, Attempt: "00112233445566778899aabb",
		Epoch: 3, Owner: 1, OwnerIncarnation: "run-b", Start: 101, End: 130, Ceiling: 130 + minHeadroom, LastRoll: 20,
		Epochs:         []EpochStart{{0, 0, "run-a"}, {3, 90, "run-b"}},
		ConfigRevision: 5, SafeClass: "sync", Producers: []byte{1, 2, 3}, MaxTimestamp: 1_700_000_000_005, Bytes: 464, Records: 4, Objects: 3,
		Pending: []PendingStream{{Broker: 1, Incarnation: "run-b", Epoch: 3, From: 17}},
		Pages:   []PageRef{p.ref(PagePrefix(testID)+"0000000003-0123456789abcdef01234567", 400)},
		Extents: []Extent{sampleExtent(110, 130, "89abcdef0123456789abcdef")},
		Dropped: []Dropped{{Key: DataPrefix(testID) + "00000000000000000000-0000000000-0123456789abcdef01234567.tbd", Time: 1_700_000_002_000, Size: 900},
			{Key: PagePrefix(testID) + "0000000000-0123456789abcdef01234567", Page: true, Level: 1, Time: 1_700_000_002_000, Size: 300}},
	}
}

// documented returns the blocks of a kind in a format page.
func documented(t *testing.T, page, kind string) []string {
	text, err := os.ReadFile("../docs/format/" + page)
	require.NoError(t, err)
	var out []string
	for _, m := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	require.NotEmpty(t, out)
	return out
}

func documentedBytes(t *testing.T, page string) []byte {
	var raw []byte
	for line := range strings.Lines(documented(t, page, "hex")[0]) {
		fields := strings.SplitN(strings.TrimSpace(line), "  ", 3)
		require.GreaterOrEqual(t, len(fields), 2, line)
		at, err := strconv.ParseInt(fields[0], 16, 32)
		require.NoError(t, err)
		require.EqualValues(t, len(raw), at, "%s: %s", page, line)
		b, err := hex.DecodeString(strings.ReplaceAll(fields[1], " ", ""))
		require.NoError(t, err)
		raw = append(raw, b...)
	}
	return raw
}

func TestDocumentedExamplesDecode(t *testing.T) {
	obj := documentedBytes(t, "data-object.md")
	require.Equal(t, fixture(t, "object-v1.hex"), obj)
	o, _, err := parseTail(obj, 0, int64(len(obj)))
	require.NoError(t, err)
	require.Len(t, o.Sections, 5)

	for page, name := range map[string]string{"head.md": "head-v1.hex", "page.md": "page-v1.hex"} {
		raw := fixture(t, name)
		require.Equal(t, raw[:envelopeLen], documentedBytes(t, page))
		plain, _, err := unseal("", string(raw[:8]), raw)
		require.NoError(t, err)
		require.JSONEq(t, string(plain), documented(t, page, "json")[0])
	}
}
