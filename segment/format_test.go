package segment

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

var exampleHeader = FileHeader{
	Kind: kindOpened, HasPred: true, Incarnation: 0x1122334455667789, Base: 0x20000000, Capacity: 0x10000000,
	PredBase: 0x10000000, PredEnd: 0x10a3c118, Synced: 0x10a3c118, Created: 1790000000123,
}

// TestFormatPage: the example of the format page is what the code writes and reads.
func TestFormatPage(t *testing.T) {
	text, err := os.ReadFile("../docs/format/commitlog.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```hex\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 2)
	var parts [2][]byte
	for i, b := range blocks {
		for _, line := range strings.Split(strings.TrimSpace(b[1]), "\n") {
			cols := strings.Split(line, "  ")
			raw, err := hex.DecodeString(strings.ReplaceAll(cols[1], " ", ""))
			require.NoError(t, err, line)
			require.Equal(t, fmt.Sprintf("%02x", len(parts[i])), cols[0], line)
			parts[i] = append(parts[i], raw...)
		}
	}
	block := make([]byte, FileHeaderLen)
	copy(block, parts[0])
	h, err := DecodeFileHeader(block)
	require.NoError(t, err)
	require.Equal(t, exampleHeader, h)
	require.Equal(t, parts[0], appendFileHeader(nil, &h)[:len(parts[0])])
	copy(block[sealAt:], parts[1])
	s, ok := decodeSeal(block, &h)
	require.True(t, ok)
	require.Equal(t, seal{Incarnation: h.Incarnation, Base: h.Base, End: 0x20001288}, s)
	require.Equal(t, parts[1], appendSeal(nil, s))
}

var update = flag.Bool("update", false, "write testdata/v1.hex anew (only ever for a new version)")

const fixture = "testdata/v1.hex"

// TestFixture: a log written by version 1 opens for ever. Its first file was full, the
// second one closed, the third one killed with a torn frame at its end.
func TestFixture(t *testing.T) {
	if *update {
		writeFixture(t)
	}
	dir := t.TempDir()
	loadFixture(t, dir)
	o := testOptions(t, dir)
	o.FileBytes = 8192
	l, rec, got := open(t, o, 0)
	require.Len(t, got, 5)
	for i, s := range got {
		require.Equal(t, int64(i), s.base)
		require.Equal(t, 700+i*100, s.size)
	}
	require.Empty(t, rec.Corrupt)
	require.Equal(t, uint64(4096), rec.Start)
	require.Equal(t, got[4].pos+uint64(FrameLen(frame.HeaderLen, 1100)), rec.End)
	require.EqualValues(t, FrameLen(frame.HeaderLen, 1200), rec.Torn)
	put(t, l, testEntry(5, 100, true))
	require.NoError(t, l.Close())
	_, _, got = open2(t, o, 0)
	require.Len(t, got, 6)
}

func loadFixture(t *testing.T, dir string) {
	text, err := os.ReadFile(fixture)
	require.NoError(t, err)
	var data []byte
	name := ""
	flush := func() {
		if name != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var at, size int
		if n, _ := fmt.Sscanf(line, "file %s %d", &name, &size); n == 2 {
			data = make([]byte, size)
			continue
		}
		col := strings.Fields(line)
		if col[0] == "end" {
			flush()
			continue
		}
		_, err := fmt.Sscanf(col[0], "%x", &at)
		require.NoError(t, err)
		raw, err := hex.DecodeString(col[1])
		require.NoError(t, err)
		copy(data[at:], raw)
	}
}

func writeFixture(t *testing.T) {
	fs := NewFaultFS(OSFS{}, nil)
	o := testOptions(t, t.TempDir())
	o.FileBytes, o.FS = 8192, fs
	l, _, _ := open(t, o, 0)
	for i := range 4 {
		put(t, l, testEntry(int64(i), 700+i*100, false))
	}
	require.NoError(t, l.Close())
	l, _, _ = open(t, o, 0)
	put(t, l, testEntry(4, 1100, false))
	torn := put(t, l, testEntry(5, 1200, false))
	kill(t, l, fs)
	patch(t, o, torn.pos+500, []byte("torn"))
	var out bytes.Buffer
	names, err := filepath.Glob(filepath.Join(o.Dir, "*.log"))
	require.NoError(t, err)
	for _, n := range names {
		b, err := os.ReadFile(n)
		require.NoError(t, err)
		fmt.Fprintf(&out, "file %s %d\n", filepath.Base(n), len(b))
		for at := 0; at < len(b); at += 32 {
			if row := b[at : at+32]; !bytes.Equal(row, make([]byte, 32)) {
				fmt.Fprintf(&out, "%04x %x\n", at, row)
			}
		}
		fmt.Fprintln(&out, "end")
	}
	require.NoError(t, os.MkdirAll("testdata", 0o755))
	require.NoError(t, os.WriteFile(fixture, out.Bytes(), 0o644))
}

func TestFileHeaderRefused(t *testing.T) {
	good := appendFileHeader(nil, &exampleHeader)
	change := func(h FileHeader) []byte { return appendFileHeader(nil, &h) }
	_, err := DecodeFileHeader(good[:100])
	require.ErrorIs(t, err, ErrFormat)
	_, err = DecodeFileHeader(make([]byte, FileHeaderLen))
	require.ErrorIs(t, err, ErrFormat)
	for _, edit := range []func(*FileHeader){
		func(h *FileHeader) { h.Kind = 2 },
		func(h *FileHeader) { h.Base++ },
		func(h *FileHeader) { h.Base = 1 << 63 },
		func(h *FileHeader) { h.Capacity = 1 << 50 },
		func(h *FileHeader) { h.Capacity = 0 },
		func(h *FileHeader) { h.PredBase = h.Base },
		func(h *FileHeader) { h.PredEnd = h.PredBase },
		func(h *FileHeader) { h.PredEnd = h.Base + 8 },
	} {
		h := exampleHeader
		edit(&h)
		_, err := DecodeFileHeader(change(h))
		require.ErrorIs(t, err, ErrFormat)
	}
	for i := range headerBytes {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		h, err := DecodeFileHeader(bad)
		require.NoError(t, err, "the copy counts")
		require.Equal(t, exampleHeader, h)
		bad[headerCopyAt+i] ^= 0x40
		_, err = DecodeFileHeader(bad)
		require.Error(t, err, "byte %d", i)
	}
}

// FuzzFileHeader: nothing panics, and what decodes encodes to the same meaning.
func FuzzFileHeader(f *testing.F) {
	f.Add(appendFileHeader(nil, &exampleHeader))
	f.Add(appendFileHeader(nil, &FileHeader{Capacity: 8192, Incarnation: 1}))
	f.Add(make([]byte, FileHeaderLen))
	f.Add([]byte("TBseg"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeFileHeader(b)
		if err != nil {
			return
		}
		_, _ = decodeSeal(b, &h)
		again, err := DecodeFileHeader(appendFileHeader(nil, &h))
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}

// FuzzOpen puts rubbish over a log, a file with any header, and opens it: Open must not
// panic, must show only intact frames in order, and must find the same when it opens the
// log again.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{}, uint32(0), uint32(0))
	f.Add([]byte("rubbish"), uint32(5000), uint32(100))
	f.Add(appendFileHeader(nil, &exampleHeader)[:headerBytes], uint32(0), uint32(0))
	h := testEntry(3, 100, false)
	h.Header.Position, h.Header.Incarnation = 5000, 1
	f.Add(append(frame.Encode(nil, &h.Header, h.Payload), h.Payload...), uint32(5000), uint32(7000))
	dir := f.TempDir()
	o := testOptions(f, filepath.Join(dir, "log"))
	o.FileBytes = 16384
	l, _, _ := open(f, o, 0)
	for i := range 40 {
		put(f, l, testEntry(int64(i), 300+i*30, i%5 == 0))
	}
	require.NoError(f, l.Close())
	f.Fuzz(func(t *testing.T, b []byte, at, cut uint32) {
		copyDir := t.TempDir()
		names, err := os.ReadDir(o.Dir)
		require.NoError(t, err)
		for i, n := range names {
			data, err := os.ReadFile(filepath.Join(o.Dir, n.Name()))
			require.NoError(t, err)
			if i == int(at/16384)%len(names) {
				copy(data[at%16384:], b)
				data = data[:len(data)-int(cut)%(len(data)+1)]
			}
			require.NoError(t, os.WriteFile(filepath.Join(copyDir, n.Name()), data, 0o644))
		}
		o := o
		o.Dir = copyDir
		var pos uint64
		var got []shown
		visit := func(f Frame) error {
			require.Greater(t, f.Position, pos)
			require.NoError(t, frame.Verify(&f.Header, f.Payload))
			pos = f.Position
			got = append(got, show(&f.Header, f.Payload))
			return nil
		}
		l, rec, err := Open(o, 0, visit)
		if err != nil {
			require.ErrorIs(t, err, ErrVersion)
			return
		}
		require.NoError(t, l.Close())
		first := got
		pos, got = 0, nil
		l, again, err := Open(o, 0, visit)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.Equal(t, first, got)
		require.Equal(t, rec.End, again.End)
	})
}

// memFile is a file for reading alone.
type memFile struct {
	File
	*bytes.Reader
}

func (m memFile) ReadAt(p []byte, off int64) (int, error) { return m.Reader.ReadAt(p, off) }

// FuzzScanner: on any bytes the scanner ends, stays within the file, and takes for a
// frame only what is intact and stands where its header says.
func FuzzScanner(f *testing.F) {
	var block []byte
	pos := uint64(FileHeaderLen)
	for i := range 3 {
		e := testEntry(int64(i), 100+i, false)
		e.Header.Position, e.Header.Incarnation = pos, 7
		block = append(frame.Encode(block, &e.Header, e.Payload), e.Payload...)
		for len(block)%8 != 0 {
			block = append(block, 0)
		}
		pos = FileHeaderLen + uint64(len(block))
	}
	f.Add(block, uint64(7))
	f.Add(append([]byte("TBfrTBfr"), block...), uint64(0))
	f.Add(block[:len(block)-9], uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, incarnation uint64) {
		data := append(make([]byte, FileHeaderLen), b...)
		s := scanner{f: memFile{Reader: bytes.NewReader(data)}, limit: uint64(len(data)), incarnation: incarnation}
		for pos := uint64(FileHeaderLen); pos < s.limit; {
			next, ok, err := s.resync(pos)
			require.NoError(t, err)
			if !ok {
				return
			}
			require.GreaterOrEqual(t, next, pos)
			h, hlen, ok, err := s.header(next)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, next, h.Position)
			p, reason, err := s.payload(next, &h, hlen)
			require.NoError(t, err)
			require.Len(t, p, int(h.PayloadLen))
			if reason == nil {
				require.NoError(t, frame.Verify(&h, p))
			}
			pos = next + uint64(FrameLen(hlen, len(p)))
			require.LessOrEqual(t, pos, s.limit)
		}
	})
}
