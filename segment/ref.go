package segment

import (
	"fmt"
	"runtime/debug"
	"sort"
	"sync/atomic"
)

// Ref keeps one file of the log from being recycled or unmapped.
type Ref struct {
	f        *file
	released atomic.Bool
}

// Acquire returns a reference on the file that holds pos; false means that the file is
// gone, or that there never was one. Release it once.
func (l *Log) Acquire(pos uint64) (*Ref, bool) {
	files := *l.files.Load()
	i := sort.Search(len(files), func(i int) bool { return files[i].base > pos }) - 1
	if i < 0 || pos >= files[i].base+files[i].capacity {
		return nil, false
	}
	f := files[i]
	for {
		n := f.refs.Load()
		if n <= 0 {
			return nil, false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return &Ref{f: f}, true
		}
	}
}

// span checks that [pos, pos+n) lies within the file's frames.
func (r *Ref) span(pos uint64, n int) (off int64, err error) {
	f := r.f
	end := f.end.Load()
	if n < 0 || pos < f.first() || pos > end || uint64(n) > end-pos {
		return 0, fmt.Errorf("%w: %d bytes at %d, the file holds %d to %d", ErrNotFound, n, pos, f.first(), end)
	}
	return int64(pos - f.base), nil
}

// Map returns n bytes of the mapping, valid until Release. Touch them only where Recent
// is true, and within Guard; pass older ones to the kernel (writev), or use ReadAt: a
// page fault that needs the disk holds a Go processor. ErrNotFound: not (all) written.
func (r *Ref) Map(pos uint64, n int) ([]byte, error) {
	off, err := r.span(pos, n)
	if err != nil {
		return nil, err
	}
	if off+int64(n) > int64(len(r.f.h.mapping)) {
		return nil, fmt.Errorf("%w: %d bytes at %d, the mapping has %d", ErrNotFound, n, pos, len(r.f.h.mapping))
	}
	return r.f.h.mapping[off : off+int64(n) : off+int64(n)], nil
}

// ReadAt fills p from pos by pread. ErrNotFound: not (all) written.
func (r *Ref) ReadAt(p []byte, pos uint64) error {
	off, err := r.span(pos, len(p))
	if err != nil {
		return err
	}
	if n, err := r.f.h.f.ReadAt(p, off); n < len(p) {
		return fmt.Errorf("segment: read %d bytes at %d: %w", len(p), pos, err)
	}
	return nil
}

// Recent says whether pos was written so recently (Options.RecentBytes) that its page
// is in memory, as far as one can tell.
func (r *Ref) Recent(pos uint64) bool {
	end := r.f.l.recent.Load()
	return pos < end && end-pos <= uint64(r.f.l.o.RecentBytes)
}

// Base is the position of the file's first byte.
func (r *Ref) Base() uint64 { return r.f.base }

// Release gives the reference back. What Map returned must not be touched any more.
// Further calls do nothing.
func (r *Ref) Release() {
	if r.released.Swap(true) {
		return
	}
	f := r.f
	if f.refs.Add(-1) > 0 {
		return
	}
	l := f.l
	l.mu.Lock()
	if !l.closed {
		l.unreferenced(f)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	if err := f.h.f.Close(); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lateErr = err
	}
}

// Guard runs fn, which touches a mapping, and turns a fault in it into an ErrFault.
func Guard(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			error
			Addr() uintptr
		}:
			err = fmt.Errorf("%w: address %#x: %w", ErrFault, r.Addr(), r)
		default:
			panic(r)
		}
	}()
	return fn()
}
