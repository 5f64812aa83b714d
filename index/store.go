package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// FormatVersion is the version of keys and values that this program writes.
	FormatVersion = 1

	defaultCacheBytes    = 32 << 20
	defaultMemTableBytes = 16 << 20
	defaultReserveBytes  = 32 << 20
	maxOpenTables        = 256
	stallMemTables       = 3 // commits wait when memtables of this many times their size are full
	stopMemTables        = stallMemTables + 2
)

// Logger receives what Pebble has to say: rarely anything.
type Logger interface {
	Infof(format string, args ...any)
	Errorf(format string, args ...any)
}

// Options of a store. Only Dir is needed.
type Options struct {
	// Dir is created when missing.
	Dir string
	// FS is the file system; nil = the machine's.
	FS vfs.FS
	// CacheBytes is the block cache (0 = 32 MiB), MemTableBytes the size of a memtable
	// (0 = 16 MiB).
	CacheBytes, MemTableBytes int64
	// ReserveBytes of disk are kept for flushing when the disk is full; 0 = 32 MiB,
	// below 0 = none.
	ReserveBytes int64
	// Logger may be nil: silence. Errors that matter are returned by the store's methods.
	Logger Logger
}

func (o *Options) setDefaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = defaultCacheBytes
	}
	if o.MemTableBytes <= 0 {
		o.MemTableBytes = defaultMemTableBytes
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = defaultReserveBytes
	}
}

// Store is an open index.
type Store struct {
	o       Options
	db      *pebble.DB
	lock    *pebble.Lock
	events  *events
	reserve *reserve

	commitMu sync.Mutex // one committer at a time
	room     int64      // bytes that may be committed before memtables are counted again
	commits  atomic.Uint64

	flushMu sync.Mutex
	flushed uint64 // value of commits that the last Flush covered

	durable struct {
		sync.Mutex
		seen uint64 // flush events when pos was read
		pos  uint64
	}

	calls struct {
		sync.Mutex
		running int
		closed  bool
		idle    chan struct{} // closed by the last running call after Close
	}
}

// Open opens the store in o.Dir, or makes a new one. Errors: ErrCorrupt (the caller removes
// the directory and rebuilds), ErrVersion, ErrLocked, or an error of the file system.
func Open(o Options) (*Store, error) {
	o.setDefaults()
	if err := o.FS.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("index: create %s: %w", o.Dir, err)
	}
	lock, err := pebble.LockDirectory(o.Dir, o.FS)
	if err != nil {
		return nil, lockError(o.Dir, err)
	}
	s := &Store{o: o, lock: lock, events: newEvents(o.Logger), reserve: newReserve(&o)}
	s.calls.idle = make(chan struct{})
	if err := s.open(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// open opens the database under the lock.
func (s *Store) open() error {
	desc, err := pebble.Peek(s.o.Dir, s.o.FS)
	if err != nil {
		return openError(s.o.Dir, err)
	}
	if desc.Exists && desc.FormatMajorVersion > pebble.FormatNewest {
		return fmt.Errorf("%w: %s: pebble format %d", ErrVersion, s.o.Dir, desc.FormatMajorVersion)
	}
	s.reserve.adopt()
	s.reserve.restore()
	if err := s.reserve.room(); err != nil {
		return err
	}
	// Pebble takes its memtables, one of them spare, out of the cache.
	cache := pebble.NewCache(s.o.CacheBytes + 2*s.o.MemTableBytes)
	defer cache.Unref()
	if s.db, err = s.openPebble(cache); err != nil {
		return err
	}
	if err := s.checkVersion(); err != nil {
		return errors.Join(err, s.db.Close())
	}
	s.refreshDurable()
	return nil
}

// openPebble is pebble.Open, which flushes, and waits for ever when that fails for good. Then it is left behind, and may
// write no more.
func (s *Store) openPebble(cache *pebble.Cache) (*pebble.DB, error) {
	type result struct {
		db  *pebble.DB
		err error
	}
	done := make(chan result, 1)
	go func() {
		db, err := pebble.Open(s.o.Dir, s.pebbleOptions(cache))
		done <- result{db, err}
	}()
	for {
		changed, _ := s.events.watch()
		if err := s.events.manifestFailure(); err != nil {
			// No ErrCorrupt: what failed is the disk, and the directory can't be replaced now.
			return nil, fmt.Errorf("index: open %s: its manifest can't be written: %w", s.o.Dir, err)
		}
		select {
		case r := <-done:
			if r.err != nil {
				return nil, openError(s.o.Dir, r.err)
			}
			return r.db, nil
		case <-changed:
		}
	}
}

func (s *Store) pebbleOptions(cache *pebble.Cache) *pebble.Options {
	o := &pebble.Options{
		FS:                          s.events.guard(s.reserve.wrap(s.o.FS)),
		Lock:                        s.lock,
		Cache:                       cache,
		Logger:                      s.events,
		EventListener:               s.events.listener(),
		DisableWAL:                  true,
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		MemTableSize:                uint64(s.o.MemTableBytes),
		MemTableStopWritesThreshold: stopMemTables,
		MaxOpenFiles:                maxOpenTables,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       1 << 10, // never: a commit must not wait for compaction
		MaxManifestFileSize:         16 << 20,
	}
	o.TargetFileSizes[0] = 8 << 20
	o.Levels[0].FilterPolicy = bloom.FilterPolicy(10) // for meta and heads
	o.Experimental.ReadSamplingMultiplier = -1        // no compactions because of reads
	return o
}

// checkVersion reads the format version, or writes it into a new store.
func (s *Store) checkVersion() error {
	val, found, err := s.get([]byte{kindVersion})
	if err != nil {
		return err
	}
	if found {
		if len(val) != 4 {
			return badValue("format version")
		}
		if v := binary.BigEndian.Uint32(val); v != FormatVersion {
			return fmt.Errorf("%w: %s: version %d", ErrVersion, s.o.Dir, v)
		}
		return nil
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return readError("open", err)
	}
	empty := !it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError("open", err)
	}
	if !empty {
		return badValue("store: no format version")
	}
	val = binary.BigEndian.AppendUint32(nil, FormatVersion)
	if err := s.db.Set([]byte{kindVersion}, val, pebble.NoSync); err != nil {
		return readError("write format version", err)
	}
	return nil
}

// get returns a copy of a value. The caller holds a call.
func (s *Store) get(key []byte) (val []byte, found bool, err error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, readError("get", err)
	}
	val = append([]byte{}, v...)
	if err := closer.Close(); err != nil {
		return nil, false, readError("get", err)
	}
	return val, true, nil
}

// enter marks the start of a call; leave ends it. Between them the database is open.
func (s *Store) enter() error {
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.calls.closed {
		return ErrClosed
	}
	if err := s.events.failure(); err != nil {
		return err
	}
	s.calls.running++
	return nil
}

func (s *Store) leave() {
	s.calls.Lock()
	defer s.calls.Unlock()
	s.calls.running--
	if s.calls.closed && s.calls.running == 0 {
		close(s.calls.idle)
	}
}

// waitRoom waits until a commit of n bytes can't be held up by Pebble, whose waits have no
// end. The caller holds commitMu.
func (s *Store) waitRoom(n int64) error {
	if s.room >= n {
		s.room -= n
		return nil
	}
	for {
		changed, bad := s.events.watch()
		if s.db.Metrics().MemTable.Size < uint64(stallMemTables*s.o.MemTableBytes) {
			s.room = max(0, s.o.MemTableBytes/4-n)
			return nil
		}
		if err := s.events.failure(); err != nil {
			return err
		}
		if bad != nil {
			return fmt.Errorf("%w: %w", ErrStalled, bad)
		}
		<-changed // a flush is running, and it ends well or not
	}
}

// Flush writes everything that was committed to disk. On a full disk it returns
// ErrStalled; the work goes on in the background, and another Flush may succeed.
func (s *Store) Flush() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	commits := s.commits.Load()
	if commits == s.flushed {
		return nil
	}
	if err := s.flushFails(); err != nil {
		return err
	}
	s.commitMu.Lock()
	err := s.waitRoom(s.o.MemTableBytes) // a flush starts a new memtable
	var done <-chan struct{}
	if err == nil {
		done, err = s.db.AsyncFlush()
	}
	s.commitMu.Unlock()
	if err != nil {
		return err
	}
	if err := s.waitFlush(done); err != nil {
		return err
	}
	s.flushed = commits
	s.refreshDurable()
	s.reserve.restore()
	return nil
}

// flushFails returns ErrStalled while Pebble tries again what it could not flush: one more
// flush would add a memtable to those that wait, until there is no room for commits.
func (s *Store) flushFails() error {
	_, bad := s.events.watch()
	if bad != nil && s.db.Metrics().MemTable.Count > 1 {
		return fmt.Errorf("%w: %w", ErrStalled, bad)
	}
	return nil
}

func (s *Store) waitFlush(done <-chan struct{}) error {
	for {
		changed, bad := s.events.watch()
		select {
		case <-done:
			return nil
		default:
		}
		if err := s.events.failure(); err != nil {
			return err
		}
		if bad != nil {
			return fmt.Errorf("%w: %w", ErrStalled, bad)
		}
		select {
		case <-done:
			return nil
		case <-changed:
		}
	}
}

// Close flushes and closes the store, after running calls have ended. When flushing
// fails, what was not flushed is lost, and the store is still consistent; the error says
// why. A second Close returns ErrClosed.
func (s *Store) Close() error {
	flushErr := s.Flush()
	if errors.Is(flushErr, ErrClosed) {
		return ErrClosed
	}
	s.calls.Lock()
	if s.calls.closed {
		s.calls.Unlock()
		return ErrClosed
	}
	s.calls.closed = true
	if s.calls.running == 0 {
		close(s.calls.idle)
	}
	s.calls.Unlock()
	<-s.calls.idle
	s.events.close()
	err := s.db.Close()
	if err != nil {
		err = fmt.Errorf("index: close %s: %w", s.o.Dir, err)
	}
	return errors.Join(flushErr, err, s.lock.Close())
}
