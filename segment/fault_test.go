package segment

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// failOp fails every call of one operation on files whose name contains part while on.
type failOp struct {
	op, part string
	err      error
	on       atomic.Bool
	seen     atomic.Int64
}

func (f *failOp) plan(c Call) error {
	if c.Op != f.op || !strings.Contains(filepath.Base(c.Path), f.part) {
		return nil
	}
	f.seen.Add(1)
	if f.on.Load() {
		return f.err
	}
	return nil
}

func faulty(t *testing.T, op string, err error) (Options, *failOp) {
	f := &failOp{op: op, err: err}
	o := testOptions(t, t.TempDir())
	o.FS = NewFaultFS(OSFS{}, f.plan)
	o.RetryInterval = time.Millisecond
	return o, f
}

// TestPoisonByWrite: a failed write loses that write and all that follows, keeps what
// came before, and the log goes on after Reopen.
func TestPoisonByWrite(t *testing.T) {
	for _, fault := range []error{syscall.EIO, io.ErrShortWrite} {
		o, f := faulty(t, "writev", fault)
		l, _, _ := open(t, o, 0)
		kept := put(t, l, testEntry(1, 500, false))
		f.on.Store(true)
		pos1, gen, err := l.Enqueue(testEntry(2, 500, false))
		require.NoError(t, err)
		pos2, _, err := l.Enqueue(testEntry(3, 500, true))
		require.NoError(t, err)
		require.ErrorIs(t, l.Written(pos2, gen), ErrPoisoned)
		require.ErrorIs(t, l.Written(pos1, gen), fault)
		_, _, err = l.Enqueue(testEntry(4, 500, false))
		require.ErrorIs(t, err, ErrPoisoned)
		w := l.Watermarks()
		require.Equal(t, pos1, w.FailedAt)
		require.Equal(t, pos1, w.Written)
		require.Equal(t, gen+1, w.Generation)
		require.ErrorIs(t, w.Err, ErrPoisoned)
		require.ErrorIs(t, l.Sync(t.Context()), ErrPoisoned)
		require.Error(t, l.Reopen(), "the disk still fails")
		ref, ok := l.Acquire(kept.pos)
		require.True(t, ok)
		require.NoError(t, ref.ReadAt(make([]byte, 500), kept.pos), "reads go on")
		_, err = ref.Map(pos1, 100)
		require.ErrorIs(t, err, ErrNotFound)
		ref.Release()
		f.on.Store(false)
		require.NoError(t, l.Reopen())
		require.NoError(t, l.Reopen())
		require.NoError(t, l.Watermarks().Err)
		require.ErrorIs(t, l.Lost(pos1), ErrPoisoned)
		require.ErrorIs(t, l.Written(pos2, gen), ErrPoisoned)
		require.NoError(t, l.Lost(kept.pos))
		next := put(t, l, testEntry(5, 500, true))
		require.Greater(t, next.pos, pos2)
		require.NoError(t, l.Close())
		_, rec, got := open2(t, o, 0)
		require.Equal(t, []shown{kept, next}, got)
		require.Empty(t, rec.Corrupt)
	}
}

// TestPoisonBySync: a failed fdatasync loses all since the last good one, and is never
// repeated on the same pages.
func TestPoisonBySync(t *testing.T) {
	o, f := faulty(t, "sync", syscall.EIO)
	l, _, _ := open(t, o, 0)
	kept := put(t, l, testEntry(1, 500, true))
	written := put(t, l, testEntry(2, 500, false))
	f.on.Store(true)
	before := f.seen.Load()
	pos, gen, err := l.Enqueue(testEntry(3, 500, true))
	require.NoError(t, err)
	require.NoError(t, l.Written(pos, gen))
	require.ErrorIs(t, waitSynced(l, pos, gen), syscall.EIO)
	f.on.Store(false)
	require.Equal(t, written.pos, l.Watermarks().FailedAt)
	require.ErrorIs(t, l.Written(written.pos, gen), ErrPoisoned, "it was in the page cache, and is lost")
	require.Equal(t, before+1, f.seen.Load())
	require.NoError(t, l.Reopen())
	require.Equal(t, before+2, f.seen.Load(), "only the new header is synced")
	next := put(t, l, testEntry(4, 500, true))
	require.NoError(t, l.Close())
	_, _, got := open2(t, o, 0)
	require.Equal(t, []shown{kept, next}, got)
}

// TestLostTwice: Reopen's own fdatasync fails, so that the failure moves down.
func TestLostTwice(t *testing.T) {
	o, f := faulty(t, "writev", syscall.EIO)
	l, _, _ := open(t, o, 0)
	kept := put(t, l, testEntry(1, 500, true))
	async := put(t, l, testEntry(2, 500, false))
	f.on.Store(true)
	pos, gen, err := l.Enqueue(testEntry(3, 500, false))
	require.NoError(t, err)
	require.ErrorIs(t, l.Written(pos, gen), ErrPoisoned)
	require.NoError(t, l.Lost(async.pos))
	o.FS.(*FaultFS).SetPlan(func(c Call) error {
		if c.Op == "sync" {
			return syscall.EIO
		}
		return nil
	})
	require.Error(t, l.Reopen())
	require.Equal(t, async.pos, l.Watermarks().FailedAt)
	require.Equal(t, gen+2, l.Watermarks().Generation)
	o.FS.(*FaultFS).SetPlan(nil)
	require.NoError(t, l.Reopen())
	require.ErrorIs(t, l.Lost(async.pos), ErrPoisoned)
	require.NoError(t, l.Close())
	_, _, got := open2(t, o, 0)
	require.Equal(t, []shown{kept}, got)
}

// TestFull: no space for a new file is an error at once, and goes away by itself.
func TestFull(t *testing.T) {
	o, f := faulty(t, "allocate", syscall.ENOSPC)
	l, _, _ := open(t, o, 0)
	waitFor(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.spares) == 1 })
	f.on.Store(true)
	var all []shown
	for i := 0; ; i++ {
		e := testEntry(int64(i), 5000, false)
		pos, gen, err := l.Enqueue(e)
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
			break
		}
		require.NoError(t, l.Written(pos, gen))
		all = append(all, show(&e.Header, e.Payload))
	}
	require.NoError(t, l.Watermarks().Err)
	require.NoError(t, l.Sync(t.Context()), "what is there can be synced")
	attempts := f.seen.Load()
	waitFor(t, func() bool { // each call may lead to one attempt, no more
		_, _, err := l.Enqueue(testEntry(0, 5000, false))
		require.ErrorIs(t, err, ErrFull)
		return f.seen.Load() > attempts+3
	})
	f.on.Store(false)
	var last shown
	waitFor(t, func() bool {
		e := testEntry(1000, 5000, false)
		pos, gen, err := l.Enqueue(e)
		if err != nil {
			return false
		}
		require.NoError(t, l.Written(pos, gen))
		last = show(&e.Header, e.Payload)
		return true
	})
	require.NoError(t, l.Close())
	_, _, got := open2(t, o, 0)
	require.Equal(t, append(all, last), got)
}

// TestOpenFull: a log on a full disk opens and can be read; it takes writes when there is
// space.
func TestOpenFull(t *testing.T) {
	o, f := faulty(t, "allocate", syscall.ENOSPC)
	l, _, _ := open(t, o, 0)
	first := put(t, l, testEntry(1, 500, true))
	require.NoError(t, l.Close())
	names, err := filepath.Glob(filepath.Join(o.Dir, sparePrefix+"*"))
	require.NoError(t, err)
	for _, n := range names {
		require.NoError(t, os.Remove(n))
	}
	f.on.Store(true)
	for range 3 {
		l, _, got := open(t, o, 0)
		require.Equal(t, []shown{first}, got)
		_, _, err = l.Enqueue(testEntry(2, 500, false))
		require.ErrorIs(t, err, ErrFull)
		require.NoError(t, l.Close())
	}
	l, _, _ = open(t, o, 0)
	f.on.Store(false)
	var second shown
	waitFor(t, func() bool {
		e := testEntry(3, 500, true)
		pos, gen, err := l.Enqueue(e)
		if err != nil {
			return false
		}
		require.NoError(t, l.Written(pos, gen))
		require.NoError(t, waitSynced(l, pos, gen))
		second = show(&e.Header, e.Payload)
		return true
	})
	require.NoError(t, l.Close())
	_, rec, got := open2(t, o, 0)
	require.Equal(t, []shown{first, second}, got)
	require.Empty(t, rec.Corrupt)
}

func TestReserve(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.MinFree = 1 << 60
	l, _, _ := open(t, o, 0)
	_, _, err := l.Enqueue(testEntry(1, 500, false))
	require.ErrorIs(t, err, ErrFull)
	require.Zero(t, l.DiskBytes())
	free, err := l.FreeBytes()
	require.NoError(t, err)
	require.Positive(t, free)
	require.NoError(t, l.Close())
}
