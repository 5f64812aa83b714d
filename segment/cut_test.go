package segment

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// cutLog writes synced frames into two files and kills the log. It returns the frames, and the path of the last file.
func cutLog(t *testing.T) (o Options, all []shown, name string) {
	t.Helper()
	fs := NewFaultFS(OSFS{}, nil)
	o = testOptions(t, t.TempDir())
	o.FS = fs
	l, _, _ := open(t, o, 0)
	for i := range 25 {
		all = append(all, put(t, l, testEntry(int64(i), 4000, true)))
	}
	kill(t, l, fs)
	return o, all, fileOf(t, o, all[24].pos)
}

// TestCutAfterKill: the last file is cut at every frame and beside it, and before, in, and behind its header. Whatever is
// left of it looks like a log that ends in good order; nothing but its length tells that synced frames are gone.
func TestCutAfterKill(t *testing.T) {
	o, all, name := cutLog(t)
	base, _ := parseLogName(filepath.Base(name))
	whole, err := os.ReadFile(name)
	require.NoError(t, err)
	cuts := []int{0, 1, headerBytes, FileHeaderLen - 1, FileHeaderLen, len(whole) - 1, len(whole) - 4096}
	for _, s := range all {
		if at := int(s.pos - base); s.pos > base {
			cuts = append(cuts, at-8, at, at+1, at+50, at+4000)
		}
	}
	for _, n := range cuts {
		require.NoError(t, os.WriteFile(name, whole[:n], 0o644))
		var want []shown
		for _, s := range all {
			if s.pos < base || int(s.pos-base)+FrameLen(92, s.size) <= n {
				want = append(want, s)
			}
		}
		var got []shown
		rec, err := Inspect(o, 0, func(f Frame) error { got = append(got, show(&f.Header, f.Payload)); return nil })
		require.NoError(t, err)
		require.Equal(t, want, got, "cut at byte %d", n)
		require.NotEmpty(t, rec.Corrupt, "cut at byte %d of %d", n, len(whole))
		last := rec.Corrupt[len(rec.Corrupt)-1]
		require.Equal(t, filepath.Base(name), last.File)
		require.GreaterOrEqual(t, last.Position, want[len(want)-1].pos, "cut at byte %d", n)
		require.Zero(t, last.ID)
	}
	require.NoError(t, os.WriteFile(name, whole, 0o644))
	rec, err := Inspect(o, 0, func(Frame) error { return nil })
	require.NoError(t, err)
	require.Empty(t, rec.Corrupt)
	require.Equal(t, base+FileHeaderLen, rec.Newest)
}

// TestCutOnceReported: the log goes on behind a cut file, and the damage is told once: what the file held is over then.
func TestCutOnceReported(t *testing.T) {
	o, all, name := cutLog(t)
	base, _ := parseLogName(filepath.Base(name))
	at := all[23].pos - base
	require.NoError(t, os.Truncate(name, int64(at)))
	l, rec, got := open(t, o, 0)
	require.Equal(t, all[:23], got)
	require.Len(t, rec.Corrupt, 1)
	require.Contains(t, rec.Corrupt[0].Reason, "has cut the file")
	more := put(t, l, testEntry(99, 100, true))
	require.Greater(t, more.pos, all[24].pos)
	kill(t, l, o.FS.(*FaultFS))
	_, rec, got = open2(t, o, 0)
	require.Equal(t, append(all[:23:23], more), got)
	require.Empty(t, rec.Corrupt)
}

// TestZeroedAfterKill: zeros over what was synced are damage when a frame behind them is left, which knows better. Zeros up
// to the end of all frames look like a torn tail: the file has the size it should have, and nobody in it knows of more.
func TestZeroedAfterKill(t *testing.T) {
	o, all, name := cutLog(t)
	base, _ := parseLogName(filepath.Base(name))
	whole, err := os.ReadFile(name)
	require.NoError(t, err)
	for from := 20; from < len(all); from++ {
		for to := from + 1; to <= len(all); to++ {
			hurt := append([]byte(nil), whole...)
			end := len(hurt)
			if to < len(all) {
				end = int(all[to].pos - base)
			}
			clear(hurt[all[from].pos-base : end])
			require.NoError(t, os.WriteFile(name, hurt, 0o644))
			rec, err := Inspect(o, 0, func(Frame) error { return nil })
			require.NoError(t, err)
			require.Equal(t, to < len(all), len(rec.Corrupt) > 0, "zeros over frames %d to %d: %+v", from, to-1, rec)
		}
	}
}

// TestCrashWhileCutOff: recovery cuts a torn tail off that spans files, and dies or loses its power at every call. What it
// has cut off stays off, and its own shortened file is nobody's damage.
func TestCrashWhileCutOff(t *testing.T) {
	prepare := func(t *testing.T) (*world, []shown) {
		w := newWorld(t, t.TempDir())
		l, _, _ := open(t, w.o, 0)
		var want []shown
		for i := range 4 {
			want = append(want, put(t, l, testEntry(int64(i), 2980, true))) // they end with a page
		}
		for i := range 20 { // not synced
			put(t, l, testEntry(int64(i+10), 3000, false))
		}
		kill(t, l, w.fs)
		// The first of them never came to the disk.
		patch(t, w.o, want[3].pos+uint64(FrameLen(92, 2980)), make([]byte, 3000))
		return w, want
	}
	w, want := prepare(t)
	l, rec, got := open(t, w.o, 0)
	require.Equal(t, want, got)
	require.Positive(t, rec.Torn)
	calls := w.fs.Calls()
	require.NoError(t, l.Close())
	for k := 1; k <= calls; k++ {
		for _, crash := range []error{ErrCrash, ErrCrashBefore, io.ErrShortWrite} {
			w, want := prepare(t)
			w.fs.SetPlan(FailAt(k, crash))
			if l, _, err := Open(w.o, 0, func(Frame) error { return nil }); err == nil {
				kill(t, l, w.fs)
			}
			require.NoError(t, w.fs.Restart(nil, nil))
			l, rec, got := open(t, w.o, 0)
			require.Equal(t, want, got, "call %d: %v", k, crash)
			require.Empty(t, rec.Corrupt, "call %d: %v", k, crash)
			require.NoError(t, l.Close())
		}
	}
}
