package partition

import (
	"sync"

	"github.com/tierbroker/tierbroker/segment"
)

// hookFS calls a hook before each write and sync of a log file; the hook may wait, and its error fails the call
// without effect.
type hookFS struct {
	segment.FS
	mu   sync.Mutex
	hook func(op, path string) error
}

func newHookFS() *hookFS { return &hookFS{FS: segment.OSFS{}} }

func (h *hookFS) set(fn func(op, path string) error) {
	h.mu.Lock()
	h.hook = fn
	h.mu.Unlock()
}

func (h *hookFS) call(op, path string) error {
	h.mu.Lock()
	fn := h.hook
	h.mu.Unlock()
	if fn == nil {
		return nil
	}
	return fn(op, path)
}

func (h *hookFS) Open(path string, create bool) (segment.File, error) {
	f, err := h.FS.Open(path, create)
	if err != nil {
		return nil, err
	}
	return &hookFile{File: f, fs: h, path: path}, nil
}

type hookFile struct {
	segment.File
	fs   *hookFS
	path string
}

func (f *hookFile) Writev(bufs [][]byte, off int64) (int, error) {
	if err := f.fs.call("writev", f.path); err != nil {
		return 0, err
	}
	return f.File.Writev(bufs, off)
}

func (f *hookFile) Sync() error {
	if err := f.fs.call("sync", f.path); err != nil {
		return err
	}
	return f.File.Sync()
}
