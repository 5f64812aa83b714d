package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// OSFS is the file layer of the operating system (Linux).
type OSFS struct{}

var _ FS = OSFS{}

// MkdirAll is os.MkdirAll.
func (OSFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o755) }

// Open implements FS.
func (OSFS) Open(path string, create bool) (File, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f, fd: int(f.Fd())}, nil
}

// Rename is os.Rename.
func (OSFS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove is os.Remove.
func (OSFS) Remove(path string) error { return os.Remove(path) }

// SyncDir implements FS.
func (OSFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// List implements FS.
func (OSFS) List(dir string) ([]FileStat, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []FileStat
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		st, err := os.Stat(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		s := FileStat{Name: e.Name(), Size: st.Size(), Disk: st.Size()}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			s.Disk = sys.Blocks * 512
		}
		out = append(out, s)
	}
	return out, nil
}

// Free implements FS.
func (OSFS) Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// osFile keeps the descriptor's number: asking os.File for it on each write would
// switch the descriptor to blocking mode again and again.
type osFile struct {
	f       *os.File
	fd      int
	mapping []byte
}

func (f *osFile) wrap(op string, err error) error {
	return &os.PathError{Op: op, Path: f.f.Name(), Err: err}
}

// maxWrite is how much goes into one system call. The kernel makes pages as large as the
// write, and from 2 MiB on looks for memory in one piece: measured at up to eight times
// the time per byte.
const maxWrite = 1 << 20

func (f *osFile) Writev(bufs [][]byte, off int64) (int, error) {
	done := 0
	for {
		part, rest := cutPieces(bufs, maxWrite)
		n, err := f.writev(part, off+int64(done))
		done += n
		if err != nil || len(rest) == 0 {
			return done, err
		}
		bufs = rest
	}
}

// cutPieces cuts the first n bytes off.
func cutPieces(bufs [][]byte, n int) (part, rest [][]byte) {
	for i, b := range bufs {
		if len(b) > n {
			part = append(slices.Clone(bufs[:i]), b[:n])
			return part, append([][]byte{b[n:]}, bufs[i+1:]...)
		}
		n -= len(b)
	}
	return bufs, nil
}

func (f *osFile) writev(bufs [][]byte, off int64) (int, error) {
	want := 0
	for _, b := range bufs {
		want += len(b)
	}
	for {
		n, err := unix.Pwritev(f.fd, bufs, off)
		switch {
		case err == unix.EINTR && n <= 0:
			continue
		case err != nil:
			return max(n, 0), f.wrap("pwritev", err)
		case n < want:
			return n, f.wrap("pwritev", fmt.Errorf("%d of %d bytes: %w", n, want, io.ErrShortWrite))
		}
		return n, nil
	}
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

func (f *osFile) Sync() error {
	// EINTR before anything was started is the only error after which asking again is
	// sound: no page was touched.
	for {
		err := unix.Fdatasync(f.fd)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return f.wrap("fdatasync", err)
		}
		return nil
	}
}

func (f *osFile) Allocate(size int64) error {
	for {
		err := unix.Fallocate(f.fd, 0, 0, size)
		switch err {
		case nil:
			return f.Truncate(size)
		case unix.EINTR:
			continue
		case unix.EOPNOTSUPP, unix.ENOSYS:
			return f.fill(size)
		}
		return f.wrap("fallocate", err)
	}
}

// fill allocates by writing zeros behind the end, for file systems without fallocate.
func (f *osFile) fill(size int64) error {
	st, err := f.f.Stat()
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for off := st.Size(); off < size; {
		n, err := f.f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return f.Truncate(size)
}

func (f *osFile) Truncate(size int64) error { return f.f.Truncate(size) }

func (f *osFile) Map(size int64) ([]byte, error) {
	m, err := unix.Mmap(f.fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, f.wrap("mmap", err)
	}
	f.mapping = m
	return m, nil
}

func (f *osFile) Close() error {
	var err error
	if f.mapping != nil {
		if e := unix.Munmap(f.mapping); e != nil {
			err = f.wrap("munmap", e)
		}
		f.mapping = nil
	}
	return errors.Join(err, f.f.Close())
}

// NextData returns where the next written bytes at or after off may be; ok is false when
// there are none. What was only allocated need not be read.
func (f *osFile) NextData(off int64) (next int64, ok bool) {
	next, err := unix.Seek(f.fd, off, unix.SEEK_DATA)
	if err == unix.ENXIO {
		return 0, false
	}
	if err != nil || next < off {
		return off, true // the file system can't tell
	}
	return next, true
}
