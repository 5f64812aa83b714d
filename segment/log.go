package segment

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierbroker/tierbroker/frame"
)

// Options of a log. Zero values mean the defaults.
type Options struct {
	// Dir holds the files; it is made when missing. The caller holds whatever lock
	// keeps a second process out.
	Dir string
	// FileBytes is the size of each file, 256 MiB by default; a multiple of 4 KiB, at
	// least 8 KiB. A frame must fit into one file.
	FileBytes int64
	// SyncInterval is the longest time that data nobody waits for stays without
	// fdatasync, 500 ms by default.
	SyncInterval time.Duration
	// FS is the file layer, OSFS by default.
	FS FS
	// MaxQueuedBytes bounds what waits to be written, 64 MiB by default.
	MaxQueuedBytes int64
	// MinFree is how many bytes of the disk a new file must leave free; 0 is no reserve.
	MinFree int64
	// RecentBytes is how far back from the end Ref.Recent reaches, 64 MiB by default.
	RecentBytes int64
	// MaxWait is how long Enqueue waits at most, 1 s by default.
	MaxWait time.Duration
	// RetryInterval is the pause after a failed allocation, 250 ms by default.
	RetryInterval time.Duration
	// Found, when set, is called by Open after the last frame was visited and before what was recovered is made final: a
	// later Open doesn't see again that a file had been cut. What the caller has to remember of damage must be on
	// stable storage when it returns. Its error ends Open.
	Found func(Recovered) error
	// Damaged, when set, is called by Open before the first frame is visited, with the damage that Found tells of later, if there is any: who keeps
	// what was visited piece by piece must not keep that something was visited behind damage without keeping the damage.
	Damaged func([]Corruption)
}

func (o *Options) defaults() error {
	set := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.FileBytes, 256<<20)
	set(&o.MaxQueuedBytes, 64<<20)
	set(&o.RecentBytes, 64<<20)
	set((*int64)(&o.SyncInterval), int64(500*time.Millisecond))
	set((*int64)(&o.RetryInterval), int64(250*time.Millisecond))
	set((*int64)(&o.MaxWait), int64(time.Second))
	if o.FS == nil {
		o.FS = OSFS{}
	}
	if o.FileBytes%4096 != 0 || o.FileBytes < 2*FileHeaderLen || uint64(o.FileBytes) > maxFileBytes {
		return fmt.Errorf("segment: file size %d is not a multiple of 4096 between %d and %d", o.FileBytes, 2*FileHeaderLen, maxFileBytes)
	}
	if o.MaxQueuedBytes < 0 || o.MinFree < 0 || o.RecentBytes < 0 || o.SyncInterval < 0 || o.RetryInterval < 0 || o.MaxWait < 0 {
		return errors.New("segment: negative option")
	}
	return nil
}

// Entry is one frame to append. The log fills Position, Synced, Incarnation and
// PayloadLen of the header. Payload must stay unchanged until Written has returned for
// it. Sync says that somebody waits for the fdatasync.
type Entry struct {
	Header  frame.Header
	Payload []byte
	Sync    bool
}

// handle is an open, mapped file of fixed size; it outlives the lives of its content.
type handle struct {
	f       File
	mapping []byte
	size    int64
	path    string
}

// file is one life of a handle: a stretch of the position space.
type file struct {
	l           *Log
	h           *handle
	base        uint64
	capacity    uint64
	created     int64
	incarnation uint64
	end         atomic.Uint64 // positions below it can be read
	refs        atomic.Int64  // 1 for the log, 1 for each Ref; 0 = gone

	sealed bool // when it was recovered

	// Under Log.mu.
	header  []byte // not yet written: goes in front of the first group
	durable bool   // the name is synced, too
	passes  bool   // first of its life: Log.leave goes once it is durable
	bad     bool   // a write or fdatasync failed on it: no more syncs, no recycling
}

func (f *file) first() uint64 { return f.base + FileHeaderLen }

// Log is the CommitLog. All methods are safe for concurrent use.
type Log struct {
	o  Options
	fs FS

	recent atomic.Uint64           // copy of written, for Ref.Recent
	files  atomic.Pointer[[]*file] // by base; replaced under mu, never changed in place

	mu          sync.Mutex
	incarnation uint64
	next        uint64 // position of the next frame
	nextBase    uint64 // base of the next file
	predBase    uint64 // for the header of the next file; predEnd 0 = no predecessor
	predEnd     uint64
	kind        uint16
	active      *file // nil when there was no space for one yet

	queue  []*group // to be written, in order; the last one still grows
	flying *group   // being written
	spent  []*group // for reuse
	queued int64    // bytes in queue and flying
	space  sync.Cond

	written   uint64
	synced    uint64
	gen       uint64
	failedAt  uint64
	err       error // *PoisonError while poisoned
	dead      []span
	changed   chan struct{} // closed at the next change of the watermarks; nil = nobody waits
	settled   chan struct{} // closed at the next change of more than written; nil = nobody waits
	unsettled Watermarks    // those when settled was made
	syncing   bool
	idle      sync.Cond // syncing, flying, dropping or reopening ended
	dropping  bool
	reopen    bool

	wantSync, wantDrain, armed bool
	kickSync                   chan struct{}

	spares    []*handle
	spareSeq  int
	leave     []*file            // removed once the next header is durable
	trash     []*file            // unreferenced, to be recycled or removed
	loose     map[*file]struct{} // dropped, but still referenced
	allocs    uint64             // allocation attempts that ended
	allocErr  error              // of the last one
	backoff   bool               // no attempt before RetryInterval has passed
	wantAlloc bool
	allocated sync.Cond
	kickAlloc chan struct{}
	lateErr   error // of removals that nobody could be told of; Close reports it

	closed bool
	stop   chan struct{}
	wg     sync.WaitGroup
}

// span is a range of positions that will never hold data.
type span struct{ from, to uint64 }

func newLog(o Options) *Log {
	l := &Log{
		o: o, fs: o.FS, incarnation: newIncarnation(),
		kickSync: make(chan struct{}, 1), kickAlloc: make(chan struct{}, 1), stop: make(chan struct{}),
		loose: make(map[*file]struct{}),
	}
	l.space.L, l.idle.L, l.allocated.L = &l.mu, &l.mu, &l.mu
	l.files.Store(&[]*file{})
	return l
}

func newIncarnation() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: it ends the process instead
	return binary.BigEndian.Uint64(b[:]) | 1
}

// start runs the two goroutines of the log.
func (l *Log) start() {
	l.wg.Add(2)
	go l.syncer()
	go l.janitor()
}

func (l *Log) path(name string) string { return filepath.Join(l.o.Dir, name) }

func logName(base uint64) string { return fmt.Sprintf("%016x.log", base) }

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// setFiles replaces the list of files; l.mu is held.
func (l *Log) setFiles(fs []*file) { l.files.Store(&fs) }

// FileInfo describes one file of the log.
type FileInfo struct {
	Base    uint64 // position of its first byte
	End     uint64 // position after its last written frame
	Bytes   int64  // on disk
	Active  bool   // the one being written
	Refs    int    // references held on it
	Created int64  // ms since 1970; 0 when its header is damaged
}

// Files lists the log's files, oldest first, without spare ones.
func (l *Log) Files() []FileInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []FileInfo
	for _, f := range *l.files.Load() {
		out = append(out, FileInfo{Base: f.base, End: f.end.Load(), Bytes: f.h.size, Active: f == l.active, Refs: int(f.refs.Load()) - 1, Created: f.created})
	}
	return out
}

// DiskBytes is what the log's files take on disk, spare ones included.
func (l *Log) DiskBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var n int64
	for _, f := range *l.files.Load() {
		n += f.h.size
	}
	for _, h := range l.spares {
		n += h.size
	}
	for _, f := range l.trash {
		n += f.h.size
	}
	for f := range l.loose {
		n += f.h.size
	}
	return n
}

// FreeBytes is what the file system of the log can still take.
func (l *Log) FreeBytes() (int64, error) { return l.fs.Free(l.o.Dir) }

// Incarnation names the life of the log: a new one for each Open and Reopen.
func (l *Log) Incarnation() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.incarnation
}

// Close writes and syncs what is queued, seals the active file, stops the goroutines,
// and unmaps every file that nobody refers to. Files with references are unmapped at
// their last Release, and Close returns an ErrLeaked that lists them. The error of a log
// that is poisoned, or that could not write or sync the rest, is an ErrPoisoned. A second
// Close returns ErrClosed.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.closed = true
	l.space.Broadcast()
	l.allocated.Broadcast()
	l.idle.Broadcast()
	for l.dropping || l.reopen {
		l.idle.Wait()
	}
	l.drain(l.next)
	l.mu.Unlock()
	close(l.stop)
	l.wg.Wait()
	_ = l.syncOnce() // its failure is in l.err
	errs := []error{l.seal()}

	l.mu.Lock()
	files, spares, trash := append(l.leave, *l.files.Load()...), l.spares, l.trash
	l.leave = nil
	l.setFiles(nil)
	l.spares, l.trash = nil, nil
	l.active = nil
	for f := range l.loose {
		errs = append(errs, fmt.Errorf("%w: %d on the dropped file at %d", ErrLeaked, f.refs.Load(), f.base))
	}
	errs = append(errs, l.lateErr, l.err)
	l.notify()
	l.mu.Unlock()
	for _, f := range trash {
		errs = append(errs, f.h.f.Close(), l.fs.Remove(f.h.path))
	}
	for _, h := range spares {
		errs = append(errs, h.f.Close())
	}
	for _, f := range files {
		if n := f.refs.Add(-1); n > 0 {
			errs = append(errs, fmt.Errorf("%w: %d on the file at %d", ErrLeaked, n, f.base))
		} else {
			errs = append(errs, f.h.f.Close())
		}
	}
	return errors.Join(errs...)
}

// seal notes in the active file that all of it is synced, so that the next Open can
// tell a torn tail from later damage. Nothing is lost without it.
func (l *Log) seal() error {
	l.mu.Lock()
	f := l.active
	ok := f != nil && l.err == nil && l.synced >= l.next && f.header == nil && !f.bad
	l.mu.Unlock()
	if !ok {
		return nil
	}
	return f.seal()
}

// seal notes, durably, that the log ends where f ends, and that all of it is synced.
func (f *file) seal() error {
	s := seal{Incarnation: f.incarnation, Base: f.base, End: f.end.Load()}
	if _, err := f.h.f.Writev([][]byte{appendSeal(nil, s)}, sealAt); err != nil {
		return fmt.Errorf("segment: seal: %w", err)
	}
	if err := f.h.f.Sync(); err != nil {
		return fmt.Errorf("segment: seal: %w", err)
	}
	return nil
}
