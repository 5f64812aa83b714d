package segment

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

// onlyFile returns the path of the log file that holds pos.
func fileOf(t testing.TB, o Options, pos uint64) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(o.Dir, "*.log"))
	require.NoError(t, err)
	var best string
	for _, n := range names {
		if base, ok := parseLogName(filepath.Base(n)); ok && base <= pos {
			best = n
		}
	}
	require.NotEmpty(t, best)
	return best
}

// patch changes bytes of the log at a position.
func patch(t testing.TB, o Options, pos uint64, b []byte) {
	t.Helper()
	name := fileOf(t, o, pos)
	base, _ := parseLogName(filepath.Base(name))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, int64(pos-base))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// kill leaves the log as the death of its process would: nothing is sealed.
func kill(t testing.TB, l *Log, fs *FaultFS) {
	t.Helper()
	fs.SetPlan(func(Call) error { return ErrCrashBefore })
	require.NoError(t, fs.Restart(nil, func(Call) error { return ErrCrashBefore }))
	require.Error(t, errors.Join(l.Close(), ErrCrash))
	require.NoError(t, fs.Restart(nil, nil))
}

// TestTornTail cuts the last frame at every byte: the frames before it stay, and what is
// written afterwards is found behind them.
func TestTornTail(t *testing.T) {
	fs := NewFaultFS(OSFS{}, nil)
	o := testOptions(t, t.TempDir())
	o.FS = fs
	l, _, _ := open(t, o, 0)
	var want []shown
	for i := range 3 {
		want = append(want, put(t, l, testEntry(int64(i), 150, false)))
	}
	last := want[2]
	kill(t, l, fs)
	size := FrameLen(frame.HeaderLen, last.size)
	whole := make([]byte, size)
	name := fileOf(t, o, last.pos)
	f, err := os.Open(name)
	require.NoError(t, err)
	_, err = f.ReadAt(whole, int64(last.pos))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	copyOf, err := os.ReadFile(name)
	require.NoError(t, err)

	for n := range size {
		if n >= frame.HeaderLen+last.size {
			break // only padding is missing
		}
		dir := t.TempDir()
		cut := append([]byte(nil), copyOf...)
		rest := cut[int(last.pos)+n : int(last.pos)+size]
		for i := range rest {
			rest[i] = ^rest[i] // what a recycled file may hold
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(name)), cut, 0o644))
		o := testOptions(t, dir)
		o.FS = NewFaultFS(OSFS{}, nil) // spares the disk the syncs
		l, rec, got := open(t, o, 0)
		require.Equal(t, want[:2], got, "cut at byte %d", n)
		require.Equal(t, last.pos, rec.End)
		require.Empty(t, rec.Corrupt)
		require.Equal(t, n >= frame.HeaderLen+frame.CoveredPayload, rec.Torn > 0, "cut at byte %d: %d", n, rec.Torn)
		more := put(t, l, testEntry(9, 100, true))
		require.NoError(t, l.Close())
		_, rec, got = open2(t, o, 0)
		require.Equal(t, append(want[:2:2], more), got)
		require.Empty(t, rec.Corrupt)
	}
}

// TestCorruptionBelowSynced damages synced frames in every way: the rest is still shown,
// and each damage is reported.
func TestCorruptionBelowSynced(t *testing.T) {
	o := testOptions(t, t.TempDir())
	l, _, _ := open(t, o, 0)
	var all []shown
	for i := range 40 {
		all = append(all, put(t, l, testEntry(int64(i), 4000, false)))
	}
	require.NoError(t, l.Close())
	damage := map[int][]byte{}
	hit := func(k int, off uint64, b []byte) {
		damage[k] = b
		patch(t, o, all[k].pos+off, b)
	}
	hit(3, 50, []byte{0xff})                     // header
	hit(4, 1000, []byte("damage"))               // payload: the id is known
	hit(5, 0, bytes.Repeat([]byte{0xaa}, 4096))  // all of it
	hit(39, 200, []byte("the last, sealed one")) // known to be synced by the seal alone
	_, rec, got := open2(t, o, 0)
	var want []shown
	for i, s := range all {
		if damage[i] == nil {
			want = append(want, s)
		}
	}
	require.Equal(t, want, got)
	require.Zero(t, rec.Torn)
	// 3 and 5 lose their headers; 5's damage is one with the bytes up to frame 6.
	require.Len(t, rec.Corrupt, 4)
	require.Equal(t, all[3].pos, rec.Corrupt[0].Position)
	require.Zero(t, rec.Corrupt[0].ID)
	require.Equal(t, all[4].pos, rec.Corrupt[1].Position)
	require.Equal(t, frame.PartitionID{Topic: testTopic, Partition: 4}, rec.Corrupt[1].ID)
	require.Equal(t, filepath.Base(fileOf(t, o, all[4].pos)), rec.Corrupt[1].File)
	require.Equal(t, all[5].pos, rec.Corrupt[2].Position)
	require.Equal(t, all[39].pos, rec.Corrupt[3].Position)
	require.Equal(t, all[39].pos+uint64(FrameLen(92, 4000)), rec.End)
	// Damage stays damage, and the log goes on behind it.
	_, again, got := open2(t, o, 0)
	require.Equal(t, want, got)
	require.Equal(t, rec.Corrupt, again.Corrupt)
	// Behind a checkpoint nobody looks at it.
	_, rec, got = open2(t, o, all[6].pos)
	require.Equal(t, want[3:], got)
	require.Len(t, rec.Corrupt, 1)
}

// TestDamagedFileHeader: the second copy of the header counts when the first is damaged;
// with both gone the frames still tell, and the damage is reported.
func TestDamagedFileHeader(t *testing.T) {
	o := testOptions(t, t.TempDir())
	l, _, _ := open(t, o, 0)
	var all []shown
	for i := range 40 {
		all = append(all, put(t, l, testEntry(int64(i), 4000, false)))
	}
	require.NoError(t, l.Close())
	base, _ := parseLogName(filepath.Base(fileOf(t, o, all[20].pos)))
	require.NotZero(t, base)
	patch(t, o, base, make([]byte, 100))
	_, rec, got := open2(t, o, 0)
	require.Equal(t, all, got)
	require.Empty(t, rec.Corrupt)
	patch(t, o, base+headerCopyAt, make([]byte, 100))
	_, rec, got = open2(t, o, 0)
	require.Equal(t, all, got)
	require.Equal(t, []Corruption{{File: logName(base), Position: base, Reason: "file header is damaged"}}, rec.Corrupt)
	// A file that is gone is reported, too.
	require.NoError(t, os.Remove(filepath.Join(o.Dir, logName(base))))
	_, rec, got = open2(t, o, 0)
	require.Less(t, len(got), len(all))
	require.Equal(t, []Corruption{{File: logName(base), Position: base, Reason: "file is missing"}}, rec.Corrupt)
}

// TestRecycledFile: the frames of a file's earlier life are never shown, wherever the new
// life ends.
func TestRecycledFile(t *testing.T) {
	fs := NewFaultFS(OSFS{}, nil)
	o := testOptions(t, t.TempDir())
	o.FS = fs
	l, _, _ := open(t, o, 0)
	n := int64(0)
	fill := func(files int) {
		for start := len(l.Files()); len(l.Files()) < start+files; n++ {
			put(t, l, testEntry(n, 1000, n%50 == 0))
		}
	}
	fill(3)
	require.NoError(t, l.Sync(t.Context()))
	recycled := map[string]bool{}
	for range 3 {
		h := (*l.files.Load())[0].h
		require.NoError(t, l.Drop(l.Files()[0].Base))
		waitFor(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.trash) == 0
		})
		recycled[fmt.Sprintf("%p", h)] = true
	}
	var want []shown
	for i := range 30 {
		want = append(want, put(t, l, testEntry(1000+int64(i), 3000, false)))
	}
	again := false
	for _, f := range *l.files.Load() {
		again = again || recycled[fmt.Sprintf("%p", f.h)]
	}
	require.True(t, again, "no file was recycled")
	kill(t, l, fs)
	_, rec, got := open2(t, o, want[0].pos)
	require.Equal(t, want, got)
	require.Empty(t, rec.Corrupt)
	require.Zero(t, rec.Torn)
}

// TestUnreadableSector: what the disk can't read is reported, never cut off as torn.
func TestUnreadableSector(t *testing.T) {
	fs := NewFaultFS(OSFS{}, nil)
	o := testOptions(t, t.TempDir())
	o.FS = fs
	l, _, _ := open(t, o, 0)
	var all []shown
	for i := range 10 {
		all = append(all, put(t, l, testEntry(int64(i), 4000, false)))
	}
	kill(t, l, fs)
	o.FS = badSector{FS: fs, off: int64(all[9].pos) &^ 4095}
	l, rec, got := open(t, o, 0)
	require.Equal(t, all[:9], got)
	require.Len(t, rec.Corrupt, 1)
	require.Equal(t, all[9].pos, rec.Corrupt[0].Position)
	require.Zero(t, rec.Torn)
	require.NoError(t, l.Close())
	// The disk has thought better of it.
	o.FS = fs
	_, rec, got = open2(t, o, 0)
	require.Equal(t, all, got)
	require.Empty(t, rec.Corrupt)
}

// badSector can't read one page of any file.
type badSector struct {
	FS
	off int64
}

func (b badSector) Open(path string, create bool) (File, error) {
	f, err := b.FS.Open(path, create)
	return badFile{File: f, off: b.off}, err
}

type badFile struct {
	File
	off int64
}

func (f badFile) ReadAt(p []byte, off int64) (int, error) {
	if off < f.off+4096 && off+int64(len(p)) > f.off {
		return 0, syscall.EIO
	}
	return f.File.ReadAt(p, off)
}

func TestVisitErrorEndsOpen(t *testing.T) {
	o := testOptions(t, t.TempDir())
	l, _, _ := open(t, o, 0)
	s := put(t, l, testEntry(1, 100, true))
	require.NoError(t, l.Close())
	stop := errors.New("stop")
	_, _, err := Open(o, 0, func(Frame) error { return stop })
	require.ErrorIs(t, err, stop)
	_, _, got := open2(t, o, 0)
	require.Equal(t, []shown{s}, got)
	rec, err := Inspect(o, 0, func(f Frame) error { require.Equal(t, s, show(&f.Header, f.Payload)); return nil })
	require.NoError(t, err)
	require.Equal(t, s.pos+uint64(FrameLen(92, 100)), rec.End)
}

// TestEmptyLives: opening again and again leaves no files behind.
func TestEmptyLives(t *testing.T) {
	o := testOptions(t, t.TempDir())
	for range 10 {
		l, rec, got := open(t, o, 0)
		require.Empty(t, got)
		require.Empty(t, rec.Corrupt)
		require.Len(t, l.Files(), 1)
		require.NoError(t, l.Close())
	}
	names, err := filepath.Glob(filepath.Join(o.Dir, "*"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(names), 1+maxSpares+1, "%v", names)
}
