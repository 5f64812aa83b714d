package batch

import (
	"bufio"
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var goldenCodecs = []struct {
	name  string
	codec Codec
	raw   bool
}{{"none", None, false}, {"gzip", Gzip, false}, {"snappy", Snappy, false}, {"snappy-raw", Snappy, true}, {"lz4", LZ4, false}, {"zstd", Zstd, false}}

var goldenRecords = []Record{
	{Offset: 1000, Timestamp: 1790000000000, Key: []byte("key"), Value: []byte(strings.Repeat("value ", 20)), Headers: []RecordHeader{{Key: "h", Value: []byte("v")}, {Key: "null"}}},
	{Offset: 1001, Timestamp: 1790000000123},
	{Offset: 1004, Timestamp: 1789999999000, Key: []byte{}, Value: []byte{}},
}

func goldenBatch(codec Codec, raw bool) []byte {
	return build(codec, BuilderOptions{BaseOffset: 1000, LeaderEpoch: 7, ProducerID: 4001, ProducerEpoch: 2, FirstSequence: 40, Transactional: true, RawSnappy: raw}, goldenRecords)
}

// docBatch is the example of docs/format/batch.md.
func docBatch() []byte {
	b := build(None, BuilderOptions{BaseOffset: 1000, LeaderEpoch: 7}, []Record{
		{Offset: 1000, Timestamp: 1790000000000, Key: []byte("k"), Value: []byte("hello"), Headers: []RecordHeader{{Key: "h", Value: []byte("v")}}},
		{Offset: 1001, Timestamp: 1790000000123},
	})
	return b
}

// TestFixturesReadForEver: testdata/v2.hex holds batches of each codec as they were once
// written.
func TestFixturesReadForEver(t *testing.T) {
	f, err := os.Open("testdata/v2.hex")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	got := map[string]string{}
	name := ""
	for sc := bufio.NewScanner(f); sc.Scan(); {
		switch line := sc.Text(); {
		case line == "":
			name = ""
		case name == "":
			name = line
		default:
			got[name] += line
		}
	}
	require.Len(t, got, len(goldenCodecs))
	for _, c := range goldenCodecs {
		b, err := hex.DecodeString(got[c.name])
		require.NoError(t, err)
		require.NoError(t, CheckCRC(b), c.name)
		require.Equal(t, goldenRecords, collect(t, b), c.name)
		h, err := ParseHeader(b)
		require.NoError(t, err)
		require.Equal(t, []int64{1000, 1004, 4001, 2, 44, 7, 3, 1790000000123}, []int64{h.BaseOffset, h.LastOffset(), h.ProducerID,
			int64(h.ProducerEpoch), int64(h.LastSequence()), int64(h.LeaderEpoch), int64(h.RecordCount), h.MaxTimestamp}, c.name)
		require.True(t, h.IsTransactional())
		require.Equal(t, c.codec, h.Codec())
		today := goldenBatch(c.codec, c.raw) // its compressed bytes may differ
		require.Equal(t, goldenRecords, collect(t, today), c.name)
		require.Equal(t, b[21:HeaderLen], today[21:HeaderLen], c.name)
	}
}

func TestDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../docs/format/batch.md")
	require.NoError(t, err)
	m := regexp.MustCompile("(?s)```hex\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, m)
	var digits strings.Builder
	for line := range strings.Lines(string(m[1])) {
		d, _, _ := strings.Cut(line, "  ")
		digits.WriteString(strings.ReplaceAll(d, " ", ""))
	}
	b, err := hex.DecodeString(digits.String())
	require.NoError(t, err)
	require.Equal(t, docBatch(), b)
	require.NoError(t, CheckCRC(b))
	require.Len(t, collect(t, b), 2)
}
