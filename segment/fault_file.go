package segment

import (
	"errors"
	"io"
)

type faultFile struct {
	fs    *FaultFS
	inner File
	path  string // when it was opened
	node  *faultNode
}

func (f *faultFile) Writev(bufs [][]byte, off int64) (int, error) {
	wasCrashed := f.fs.Crashed()
	err := f.fs.enter("writev", f.path)
	half := errors.Is(err, io.ErrShortWrite) || err == ErrCrash && !wasCrashed
	if err != nil && !half {
		return 0, err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	if half {
		bufs = cut(bufs, n/2)
		n /= 2
	}
	if e := f.remember(off, n); e != nil {
		return 0, e
	}
	done, e := f.inner.Writev(bufs, off)
	if err == nil {
		err = e
	}
	return done, err
}

// ErrCrashBefore is an ErrCrash that keeps a Writev from writing anything; with
// ErrCrash itself, half of it is written.
var ErrCrashBefore = crashBefore{}

type crashBefore struct{}

func (crashBefore) Error() string        { return "segment: simulated crash before the call" }
func (crashBefore) Is(target error) bool { return target == ErrCrash }

// cut shortens bufs to n bytes.
func cut(bufs [][]byte, n int) [][]byte {
	var out [][]byte
	for _, b := range bufs {
		if n <= 0 {
			break
		}
		b = b[:min(len(b), n)]
		n -= len(b)
		out = append(out, b)
	}
	return out
}

// remember keeps what is on disk of the pages in [off, off+n).
func (f *faultFile) remember(off int64, n int) error {
	for page := off / faultPage; page*faultPage < off+int64(n); page++ {
		delete(f.node.stuck, page)
		if _, ok := f.node.pages[page]; ok {
			continue
		}
		old := make([]byte, faultPage)
		_, err := f.inner.ReadAt(old, page*faultPage)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		f.node.pages[page] = old
	}
	return nil
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.enter("readat", f.path); err != nil {
		return 0, err
	}
	return f.inner.ReadAt(p, off)
}

func (f *faultFile) Sync() error {
	err := f.fs.enter("sync", f.path)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if errors.Is(err, ErrCrash) {
		return err
	}
	for page := range f.node.pages {
		if err != nil {
			f.node.stuck[page] = true
		} else if !f.node.stuck[page] {
			delete(f.node.pages, page)
		}
	}
	return err
}

func (f *faultFile) Allocate(size int64) error {
	if err := f.fs.enter("allocate", f.path); err != nil {
		return err
	}
	return f.inner.Allocate(size)
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.fs.enter("truncate", f.path); err != nil {
		return err
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	for page := range f.node.pages {
		if page*faultPage >= size {
			delete(f.node.pages, page)
			delete(f.node.stuck, page)
		}
	}
	return f.inner.Truncate(size)
}

func (f *faultFile) Map(size int64) ([]byte, error) {
	if err := f.fs.enter("map", f.path); err != nil {
		return nil, err
	}
	return f.inner.Map(size)
}

// Close always closes: a crash must not leak descriptors of the test.
func (f *faultFile) Close() error { return f.inner.Close() }
