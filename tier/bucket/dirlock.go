package bucket

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stripes is the number of lock files.
const stripes = 64

// maxKnown bounds the memory of folders known to be durable; past it, they are synced again.
const maxKnown = 100_000

// dirWriter is what a Dir needs to write: a folder for temporary files that is locked while the process lives, the locks,
// and the folders that are known to be durable.
type dirWriter struct {
	tmp   string
	alive *os.File // locked; its folder is left over when the lock is free
	locks [stripes]stripe

	mu    sync.Mutex
	known map[string]struct{}
}

// stripe excludes the goroutines of this Dir by a channel and other processes by flock.
type stripe struct {
	turn chan struct{}
	path string
}

func (d *Dir) writer() (*dirWriter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.w != nil {
		return d.w, nil
	}
	w, err := newDirWriter(filepath.Join(d.root, privateDir))
	if err != nil {
		return nil, fileError("open", d.root, err)
	}
	d.w = w
	return w, nil
}

func newDirWriter(private string) (*dirWriter, error) {
	locks, temps := filepath.Join(private, "lock"), filepath.Join(private, "tmp")
	for _, dir := range []string{locks, temps} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := sweepTemps(temps); err != nil {
		return nil, err
	}
	w := &dirWriter{tmp: filepath.Join(temps, rand.Text()), known: map[string]struct{}{}}
	for i := range w.locks {
		w.locks[i] = stripe{turn: make(chan struct{}, 1), path: filepath.Join(locks, fmt.Sprintf("%02x", i))}
	}
	if err := w.start(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// start creates the folder for temporary files. Its lock file comes first, so a folder never is without one.
func (w *dirWriter) start() error {
	for {
		f, err := os.OpenFile(w.tmp+".alive", os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		if err := flock(f, syscall.LOCK_EX); err != nil {
			return errors.Join(err, f.Close())
		}
		// A sweep may have taken the file for a leftover before it was locked.
		mine, err := f.Stat()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		if st, err := os.Stat(f.Name()); err == nil && os.SameFile(st, mine) {
			w.alive = f
			break
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	if err := os.Mkdir(w.tmp, 0o755); err != nil {
		return err
	}
	return checkTimes(w.alive.Name())
}

// checkTimes makes sure that the file system keeps nanoseconds, on which ETags rest.
func checkTimes(path string) error {
	want := time.Unix(1_700_000_000, 123_456_789)
	if err := touch(path, want); err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.ModTime().Equal(want) {
		return newError("open", path, ErrConfig, errors.New("the file system does not keep modification times to the nanosecond"))
	}
	return nil
}

func (w *dirWriter) close() error {
	if w.alive == nil {
		return nil
	}
	return errors.Join(os.RemoveAll(w.tmp), ignoreMissing(os.Remove(w.alive.Name())), w.alive.Close())
}

// sweepTemps removes the temporary files of processes that are gone: those whose lock is free.
func sweepTemps(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		tmp, ok := strings.CutSuffix(filepath.Join(dir, e.Name()), ".alive")
		if !ok {
			continue
		}
		if err := sweepTemp(tmp); err != nil {
			return err
		}
	}
	return nil
}

func sweepTemp(tmp string) error {
	f, err := os.OpenFile(tmp+".alive", os.O_RDWR, 0)
	if err != nil {
		return ignoreMissing(err)
	}
	defer f.Close()
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil // its process lives
	}
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(tmp), ignoreMissing(os.Remove(tmp+".alive")))
}

// lock excludes everybody else who changes key, in this process and others, and returns the unlock.
func (w *dirWriter) lock(ctx context.Context, key string) (func(), error) {
	h := fnv.New32a()
	h.Write([]byte(key)) // never fails
	s := &w.locks[h.Sum32()%stripes]
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o644)
	if err == nil {
		err = lockFile(ctx, f)
	}
	if err != nil {
		<-s.turn
		return nil, err
	}
	return func() {
		f.Close() // drops the flock; nothing was written
		<-s.turn
	}, nil
}

// lockFile polls: a blocking flock would hold a thread and not listen to ctx. Other processes seldom compete.
func lockFile(ctx context.Context, f *os.File) error {
	for i := 0; ; i++ {
		err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), f.Close())
		case <-time.After(time.Duration(math.Min(float64(i+1), 20)) * 500 * time.Microsecond):
		}
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func (w *dirWriter) isKnown(dir string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.known[dir]
	return ok
}

func (w *dirWriter) know(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.known) >= maxKnown {
		clear(w.known)
	}
	w.known[dir] = struct{}{}
}

// forget drops dir and its parents: they may have been removed.
func (w *dirWriter) forget(root, dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; len(dir) > len(root); dir = filepath.Dir(dir) {
		delete(w.known, dir)
	}
}
