package segment

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

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
