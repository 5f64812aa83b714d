package index

import (
	"bufio"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

// docExample is what docs/format/index.md shows in bytes.
var docExample = struct {
	id frame.PartitionID
	e  Entry
}{
	id: frame.PartitionID{Topic: frame.TopicID{0x6f, 0x1d, 0x0c, 0x52, 0x8e, 0x41, 0x4b, 0x7a, 0x9c, 0x33, 0x05, 0xaf, 0x77, 0x21, 0xd8, 0x10}, Partition: 3},
	e: Entry{Base: 1000, Last: 1004, Position: 4096, HeaderLen: 92, Length: 500, MaxTimestamp: 1790000000123,
		Epoch: 7, Records: 5, AppendTime: 1790000000125},
}

// documented reads the named hex block of the page: lines of bytes, two spaces, remark.
func documented(t *testing.T, name string) []byte {
	t.Helper()
	page, err := os.ReadFile("../docs/format/index.md")
	require.NoError(t, err)
	m := regexp.MustCompile("(?s)```" + name + "\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, m, name)
	var out []byte
	for sc := bufio.NewScanner(strings.NewReader(string(m[1]))); sc.Scan(); {
		digits, _, _ := strings.Cut(sc.Text(), "  ")
		b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		require.NoError(t, err, sc.Text())
		out = append(out, b...)
	}
	return out
}

func TestDocumentedBytes(t *testing.T) {
	x := docExample
	key, val := documented(t, "entry-key"), documented(t, "entry-value")
	e, ok := decodeEntry(key, val)
	require.True(t, ok)
	require.Equal(t, x.e, e)
	require.Equal(t, x.id, getID(key[1:]))
	require.Equal(t, key, entryKey(nil, x.id, x.e.Last))
	require.Equal(t, val, appendEntry(nil, &x.e))
	require.Equal(t, documented(t, "time-key"), timeKey(nil, x.id, x.e.MaxTimestamp, x.e.Last))
	require.Equal(t, documented(t, "producer-key"), producerKey(nil, x.id, 4001))
	require.Equal(t, documented(t, "file-key"), fileKey(nil, 268435456, x.id))
}

// TestOldStoreOpens: testdata/v1 is a store of format version 1. It must open for ever.
func TestOldStoreOpens(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "index")
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/v1")))
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	e, ok, err := s.Find(docExample.id, 1002)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, docExample.e, e)
	e, ok, err = s.FindTime(docExample.id, docExample.e.MaxTimestamp, 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, docExample.e, e)
	for name, get := range map[string]func(frame.PartitionID) ([]byte, bool, error){"meta": s.Meta, "head": s.Head} {
		val, ok, err := get(docExample.id)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, name, string(val))
	}
	require.NoError(t, s.Producers(docExample.id, func(pid int64, val []byte) bool {
		require.Equal(t, int64(4001), pid)
		require.Equal(t, "producer", string(val))
		return true
	}))
	require.NoError(t, s.FileUse(268435456, func(id frame.PartitionID, last int64) bool {
		require.Equal(t, docExample.id, id)
		require.Equal(t, int64(1004), last)
		return true
	}))
	pos, extra, ok, err := s.Checkpoint()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, uint64(4096), pos)
	require.Equal(t, "extra", string(extra))
	require.NoError(t, s.Close())
}

func TestKeyOrder(t *testing.T) {
	last := ""
	for _, v := range []int64{math.MinInt64, -2, -1, 0, 1, 255, 256, math.MaxInt64} {
		k := string(timeKey(nil, pid(1), v, 0))
		require.Less(t, last, k)
		ts, _, ok := parseTimeKey([]byte(k))
		require.True(t, ok)
		require.Equal(t, v, ts)
		last = k
	}
	high := frame.PartitionID{Topic: frame.TopicID{15: 0xff}, Partition: math.MaxInt32}
	for i := range high.Topic {
		high.Topic[i] = 0xff
	}
	require.Greater(t, string(prefixEnd(nil, kindEntry, high)), string(entryKey(nil, high, math.MaxInt64)))
	require.Equal(t, "f"[0]+1, filePrefixEnd(nil, math.MaxUint64)[0])
}

func FuzzDecodeEntry(f *testing.F) {
	key := entryKey(nil, docExample.id, docExample.e.Last)
	f.Add(key, appendEntry(nil, &docExample.e))
	f.Add(key, []byte{})
	f.Add(key[:9], []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, key, val []byte) {
		e, ok := decodeEntry(key, val)
		if !ok {
			return
		}
		again, ok := decodeEntry(entryKey(nil, getID(key[1:]), e.Last), appendEntry(nil, &e))
		if !ok || again != e {
			t.Fatalf("%+v became %+v", e, again)
		}
	})
}

func FuzzDecodeOther(f *testing.F) {
	f.Add(timeKey(nil, docExample.id, 5, 6), []byte{})
	f.Add(fileKey(nil, 7, docExample.id), make([]byte, 8))
	f.Add([]byte{kindCheckpoint}, make([]byte, 11))
	f.Fuzz(func(t *testing.T, key, val []byte) {
		if ts, last, ok := parseTimeKey(key); ok && (getSigned(key[prefixLen:]) != ts || last == 0 && key[timeKeyLen-1] != 0) {
			t.Fatal("time key")
		}
		if _, _, ok := decodeFileUse(key, val); ok && len(val) != 8 {
			t.Fatal("file use")
		}
		if _, extra, ok := decodeCheckpoint(val); ok && len(extra) != len(val)-8 {
			t.Fatal("checkpoint")
		}
	})
}
