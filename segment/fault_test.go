package segment

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
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

// gate holds up calls of one operation until it is opened.
type gate struct {
	op     string
	closed atomic.Bool
	at     chan struct{} // one message per call that is held up
	open   chan struct{}
}

func (g *gate) plan(c Call) error {
	if c.Op == g.op && g.closed.Load() {
		g.at <- struct{}{}
		<-g.open
	}
	return nil
}

// gateFS lets calls be held up without holding up the others.
type gateFS struct {
	FS
	g *gate
}

func (f gateFS) Open(path string, create bool) (File, error) {
	file, err := f.FS.Open(path, create)
	return gateFile{File: file, g: f.g, path: path}, err
}

type gateFile struct {
	File
	g    *gate
	path string
}

func (f gateFile) Writev(b [][]byte, off int64) (int, error) {
	if err := f.g.plan(Call{Op: "writev", Path: f.path}); err != nil {
		return 0, err
	}
	return f.File.Writev(b, off)
}

func (f gateFile) Sync() error {
	return errors.Join(f.g.plan(Call{Op: "sync", Path: f.path}), f.File.Sync())
}

func gated(t *testing.T, op string) (Options, *gate) {
	g := &gate{op: op, at: make(chan struct{}, 100), open: make(chan struct{})}
	o := testOptions(t, t.TempDir())
	o.FS = gateFS{FS: OSFS{}, g: g}
	return o, g
}

// TestGroupCommit: everything that is queued while a write is under way is written by
// one write, and everything that waits for a sync gets one.
func TestGroupCommit(t *testing.T) {
	o, g := gated(t, "writev")
	l, _, _ := open(t, o, 0)
	g.closed.Store(true)
	var wg sync.WaitGroup
	write := func(i int) {
		pos, gen, err := l.Enqueue(testEntry(int64(i), 300, false))
		if err == nil {
			err = l.Written(pos, gen)
		}
		require.NoError(t, err)
	}
	wg.Go(func() { write(0) })
	<-g.at
	for i := 1; i <= 50; i++ {
		wg.Go(func() { write(i) })
	}
	waitFor(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 1 && l.queue[0].waiters == 50
	})
	close(g.open)
	wg.Wait()
	require.Len(t, g.at, 1, "one write for the fifty")
	require.NoError(t, l.Close())
	_, _, got := open2(t, o, 0)
	require.Len(t, got, 51)
}

func TestGroupSync(t *testing.T) {
	o, g := gated(t, "sync")
	l, _, _ := open(t, o, 0)
	g.closed.Store(true)
	var wg sync.WaitGroup
	write := func(i int) {
		pos, gen, err := l.Enqueue(testEntry(int64(i), 300, true))
		if err == nil {
			err = errors.Join(l.Written(pos, gen), waitSynced(l, pos, gen))
		}
		require.NoError(t, err)
	}
	wg.Go(func() { write(0) })
	<-g.at
	for i := 1; i <= 50; i++ {
		wg.Go(func() { write(i) })
	}
	waitFor(t, func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.written == l.next && l.next > 51*300 })
	close(g.open)
	wg.Wait()
	require.Len(t, g.at, 1, "one fdatasync for the fifty")
	require.NoError(t, l.Close())
}

// TestBusy: a disk that hangs fills the queue; then Enqueue gives up, and recovers.
func TestBusy(t *testing.T) {
	o, g := gated(t, "writev")
	o.MaxQueuedBytes, o.MaxWait = 10000, time.Millisecond
	l, _, _ := open(t, o, 0)
	g.closed.Store(true)
	var err error
	n := 0
	for ; err == nil; n++ {
		_, _, err = l.Enqueue(testEntry(int64(n), 900, false))
	}
	require.ErrorIs(t, err, ErrBusy)
	require.Equal(t, 11, n, "ten frames of 992 bytes fit")
	g.closed.Store(false)
	close(g.open)
	waitFor(t, func() bool { _, _, err := l.Enqueue(testEntry(100, 900, false)); return err == nil })
	require.NoError(t, l.Close())
	_, _, got := open2(t, o, 0)
	require.Len(t, got, n)
}

func TestWaitAndClose(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SyncInterval = time.Millisecond
	l, _, _ := open(t, o, 0)
	w := l.Watermarks()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Wait(ctx, w)
	require.ErrorIs(t, err, context.Canceled)
	// Nobody calls Written, and nobody asked for a sync: both happen by themselves.
	pos, gen, err := l.Enqueue(testEntry(1, 500, false))
	require.NoError(t, err)
	require.NoError(t, waitSynced(l, pos, gen))
	require.NoError(t, l.Written(pos, gen))
	require.ErrorIs(t, l.Written(pos+100000, gen), ErrNotFound)
	_, _, err = l.Enqueue(&Entry{Payload: make([]byte, o.FileBytes)})
	require.ErrorIs(t, err, ErrTooLarge)
	_, _, err = l.Enqueue(&Entry{Header: frame.Header{Extensions: make([]frame.Extension, 5000)}})
	require.ErrorIs(t, err, ErrTooLarge)
	done := make(chan error)
	go func() {
		var err error
		for w := l.Watermarks(); err == nil; {
			w, err = l.Wait(context.Background(), w)
		}
		done <- err
	}()
	ref, ok := l.Acquire(pos)
	require.True(t, ok)
	require.ErrorIs(t, l.Close(), ErrLeaked)
	require.ErrorIs(t, <-done, ErrClosed)
	b, err := ref.Map(pos, 100)
	require.NoError(t, err)
	require.NoError(t, Guard(func() error { require.NotZero(t, b[0]); return nil }), "still mapped")
	ref.Release()
	_, ok = l.Acquire(pos)
	require.False(t, ok)
	_, _, err = l.Enqueue(testEntry(1, 100, false))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, l.Sync(t.Context()), ErrClosed)
	require.ErrorIs(t, l.Reopen(), ErrClosed)
	require.ErrorIs(t, l.Drop(0), ErrClosed)
	require.ErrorIs(t, l.Close(), ErrClosed)
}

func TestDropAndRefs(t *testing.T) {
	o := testOptions(t, t.TempDir())
	l, _, _ := open(t, o, 0)
	var all []shown
	for i := 0; len(l.Files()) < 4; i++ {
		all = append(all, put(t, l, testEntry(int64(i), 6000, false)))
	}
	files := l.Files()
	require.NotZero(t, files[0].Created)
	require.ErrorIs(t, l.Drop(files[0].Base), ErrInUse, "not synced")
	require.NoError(t, l.Sync(t.Context()))
	require.ErrorIs(t, l.Drop(files[1].Base), ErrInUse, "not the oldest")
	require.ErrorIs(t, l.Drop(files[0].Base+1), ErrInUse)
	ref, ok := l.Acquire(all[0].pos)
	require.True(t, ok)
	require.True(t, ref.Holds(all[0].pos))
	require.Equal(t, files[0].Base, ref.Base())
	b, err := ref.Map(all[0].pos, 6000)
	require.NoError(t, err)
	before := string(b)
	require.Equal(t, 1, l.Files()[0].Refs)
	require.NoError(t, l.Drop(files[0].Base))
	require.ErrorIs(t, l.Drop(files[0].Base), ErrNotFound)
	_, ok = l.Acquire(all[0].pos)
	require.False(t, ok)
	disk := l.DiskBytes()
	for i := range 30 { // many rotations: a referenced file is not recycled
		put(t, l, testEntry(int64(1000+i), 6000, false))
	}
	require.Equal(t, before, string(b))
	require.Greater(t, l.DiskBytes(), disk)
	ref.Release()
	waitFor(t, func() bool {
		left, err := filepath.Glob(filepath.Join(o.Dir, dropPrefix+"*"))
		return err == nil && len(left) == 0
	})
	require.NoError(t, l.Sync(t.Context()))
	for fs := l.Files(); len(fs) > 1; fs = l.Files() {
		require.NoError(t, l.Drop(fs[0].Base))
	}
	require.ErrorIs(t, l.Drop(l.Files()[0].Base), ErrInUse, "active")
	require.NoError(t, l.Close())
	_, rec, _ := open2(t, o, 0)
	require.Empty(t, rec.Corrupt)
}

func TestGuard(t *testing.T) {
	dir := t.TempDir()
	f, err := OSFS{}.Open(filepath.Join(dir, "x"), true)
	require.NoError(t, err)
	require.NoError(t, f.Allocate(8192))
	m, err := f.Map(8192)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(0))
	require.ErrorIs(t, Guard(func() error { _ = strings.Clone(string(m[:1])); return nil }), ErrFault)
	require.PanicsWithValue(t, "other", func() { _ = Guard(func() error { panic("other") }) })
	require.NoError(t, f.Close())
}

// TestConcurrent lets many writers, readers and drops run at once (with -race).
func TestConcurrent(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SyncInterval = time.Millisecond
	o.MaxQueuedBytes = 50000
	l, _, _ := open(t, o, 0)
	var wg sync.WaitGroup
	var dropped atomic.Uint64
	for w := range 8 {
		wg.Go(func() {
			for i := range 60 {
				e := testEntry(int64(w*1000+i), 200+i*60, (w+i)%3 == 0)
				pos, gen, err := l.Enqueue(e)
				require.NoError(t, err)
				require.NoError(t, l.Written(pos, gen))
				if e.Sync {
					require.NoError(t, waitSynced(l, pos, gen))
				}
				ref, ok := l.Acquire(pos)
				if !ok {
					require.Less(t, pos, dropped.Load())
					continue
				}
				got := make([]byte, len(e.Payload))
				require.NoError(t, ref.ReadAt(got, pos+frame.HeaderLen))
				require.Equal(t, e.Payload, got)
				m, err := ref.Map(pos+frame.HeaderLen, len(got))
				require.NoError(t, err)
				require.NoError(t, Guard(func() error { require.Equal(t, e.Payload, m); return nil }))
				ref.Release()
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var dropper sync.WaitGroup
	dropper.Go(func() {
		for {
			if fs := l.Files(); len(fs) > 3 {
				dropped.Store(fs[1].Base)
				if err := l.Drop(fs[0].Base); err != nil {
					require.ErrorIs(t, err, ErrInUse)
				}
			}
			if _, err := l.Wait(ctx, l.Watermarks()); err != nil {
				return
			}
		}
	})
	wg.Wait()
	cancel()
	dropper.Wait()
	require.NoError(t, l.Close())
	_, rec, _ := open2(t, o, 0)
	require.Empty(t, rec.Corrupt)
}
