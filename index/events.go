package index

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// retryPause is how long the next flush or compaction waits after a failed one. Pebble
// itself tries again at once.
const retryPause = 200 * time.Millisecond

// events turns what Pebble reports from its background work into something that can be
// waited for. Pebble calls it with its own locks held: nothing here waits.
type events struct {
	log    Logger
	closed chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	flushes uint64        // that ended well
	bad     error         // of the last background work, nil after some that ended well
	fatal   error
	stuck   error // what Fatalf said
}

func newEvents(log Logger) *events {
	return &events{log: log, closed: make(chan struct{}), changed: make(chan struct{})}
}

// update runs fn under the lock and wakes all who watch.
func (e *events) update(fn func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fn()
	close(e.changed)
	e.changed = make(chan struct{})
}

// watch returns a channel that is closed at the next change, and the error of the last
// background work.
func (e *events) watch() (changed <-chan struct{}, bad error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed, e.bad
}

// failure returns why the store can't be used any more.
func (e *events) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fatal
}

// manifestFailure returns why the manifest could not be written.
func (e *events) manifestFailure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stuck
}

func (e *events) flushCount() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flushes
}

func (e *events) setFatal(err error) {
	e.update(func() {
		if e.fatal == nil {
			e.fatal = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	})
}

// close ends the pauses of the guard.
func (e *events) close() { close(e.closed) }

func (e *events) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) { e.update(func() { e.bad = err }) },
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			e.setFatal(fmt.Errorf("%s: %w", info.Path, info.Details))
		},
		// A flush that found nothing to write reports an error here, but none to
		// BackgroundError: both mean that the memtables are done with.
		FlushEnd: func(info pebble.FlushInfo) {
			e.update(func() {
				e.flushes++
				if info.Err == nil {
					e.bad = nil
				}
			})
		},
		CompactionEnd: func(info pebble.CompactionInfo) {
			if info.Err == nil {
				e.update(func() { e.bad = nil })
			}
		},
	}
}

// Infof and Errorf pass Pebble's lines on.
func (e *events) Infof(format string, args ...any) {
	if e.log != nil {
		e.log.Infof(format, args...)
	}
}

func (e *events) Errorf(format string, args ...any) {
	if e.log != nil {
		e.log.Errorf(format, args...)
	}
}

// Fatalf is called when Pebble doesn't know any more what its files hold (a failed
// write of the manifest). Pebble expects the process to end; we keep it, refuse all calls
// from here on, and let no more files be written.
func (e *events) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	e.setFatal(err)
	e.update(func() { e.stuck = err })
	e.Errorf(format, args...)
}

// guard wraps the file system: after failed background work the next file is made only
// after a pause, and after a fatal error none is.
func (e *events) guard(fs vfs.FS) vfs.FS { return &guardFS{FS: fs, e: e} }

type guardFS struct {
	vfs.FS
	e *events
}

var errStopped = errors.New("index: no writing after a fatal error")

func (g *guardFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	_, bad := g.e.watch()
	fatal := g.e.failure()
	if bad != nil || fatal != nil {
		t := time.NewTimer(retryPause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-g.e.closed:
		}
	}
	if fatal != nil {
		return nil, errStopped
	}
	return g.FS.Create(name, category)
}

// Unwrap returns the file system below.
func (g *guardFS) Unwrap() vfs.FS { return g.FS }

// reserve is a file that holds disk space until the disk is full.
type reserve struct {
	fs    vfs.FS
	path  string
	bytes int64
	mu    sync.Mutex
	held  bool
	whole bool // the file has all of its space
}

func newReserve(o *Options) *reserve {
	return &reserve{fs: o.FS, path: o.FS.PathJoin(o.Dir, "reserve"), bytes: o.ReserveBytes}
}

// adopt takes over the file of a run before, which may have been killed on the full disk
// that this one starts on.
func (r *reserve) adopt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes < 0 {
		return
	}
	if _, err := r.fs.Stat(r.path); err != nil {
		return // to open it would make it
	}
	f, err := r.fs.OpenReadWrite(r.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	// That run may have ended before it had all of the space, and the disk may have none now.
	r.whole = errors.Join(f.Preallocate(0, r.bytes), f.Close()) == nil
	r.held = true
}

// leastRoom is the disk space that a store without a reserve needs to open: a manifest and a few small tables.
const leastRoom = 256 << 10

// room is an ErrStalled when the store can't be opened for want of space. Pebble flushes when it opens, and would wait.
func (r *reserve) room() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held && r.whole || r.bytes < 0 {
		return nil
	}
	usage, err := r.fs.GetDiskUsage(r.fs.PathDir(r.path))
	if err != nil || usage.AvailBytes >= leastRoom {
		return nil // a file system that can't tell is tried
	}
	return fmt.Errorf("%w: the disk is full, %d bytes are free and opening needs %d", ErrStalled, usage.AvailBytes, leastRoom)
}

// wrap returns a file system that gives the reserve back when a write finds no space, and
// then tries that write again.
func (r *reserve) wrap(fs vfs.FS) vfs.FS {
	if r.bytes < 0 {
		return fs
	}
	return vfs.OnDiskFull(fs, r.release)
}

// release removes the file. It is called from within a failed write: that the file could
// not be removed shows there, as the write fails again.
func (r *reserve) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held && r.fs.Remove(r.path) == nil {
		r.held = false
	}
}

// restore makes the file again when the disk has plenty of space. It is a precaution, and a
// file system that can't reserve space goes without.
func (r *reserve) restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held || r.bytes < 0 {
		return
	}
	usage, err := r.fs.GetDiskUsage(r.fs.PathDir(r.path))
	if err == nil && usage.AvailBytes < uint64(4*r.bytes) {
		return
	}
	f, err := r.fs.Create(r.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	err = errors.Join(f.Preallocate(0, r.bytes), f.Sync(), f.Close())
	r.held, r.whole = true, err == nil
	if err != nil {
		r.held = r.fs.Remove(r.path) != nil
	}
}
