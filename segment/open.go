package segment

import (
	"errors"
	"fmt"
	"path/filepath"
)

func joinPath(dir, name string) string { return filepath.Join(dir, name) }

// Open recovers the log in o.Dir and starts a new segment under a new incarnation.
// visit is called for every valid frame at or after from, in order; its error ends
// Open. from is 0, or the position of a frame, or the end of one, below which the
// caller needs nothing and all is known to be synced: a checkpoint.
//
// Everything is on stable storage before the first frame is visited. When there is no space
// for the new segment, Open succeeds, and Enqueue returns ErrFull until there is.
func Open(o Options, from uint64, visit func(f Frame) error) (*Log, Recovered, error) {
	if err := o.defaults(); err != nil {
		return nil, Recovered{}, err
	}
	if from > maxPosition {
		return nil, Recovered{}, fmt.Errorf("segment: position %d is out of range", from)
	}
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, Recovered{}, fmt.Errorf("segment: %w", err)
	}
	r := &recovery{o: o, from: from, visit: visit}
	if err := r.run(); err != nil {
		return nil, r.res, err
	}
	l := newLog(o)
	r.res.Incarnation = l.incarnation
	if err := l.adopt(r); err != nil {
		return nil, r.res, errors.Join(err, l.abort(), r.close())
	}
	return l, r.res, nil
}

// Inspect reads the log in o.Dir as Open does, but changes nothing. The log may be in
// use; then the end of it may look torn.
func Inspect(o Options, from uint64, visit func(f Frame) error) (Recovered, error) {
	if err := o.defaults(); err != nil {
		return Recovered{}, err
	}
	r := &recovery{o: o, from: from, visit: visit}
	if err := r.run(); err != nil {
		return r.res, err
	}
	return r.res, errors.Join(r.visitAll(), r.close())
}

// adopt makes the recovered files the log's and starts the new segment.
func (l *Log) adopt(r *recovery) error {
	if err := r.rewrite(); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.o.Dir); err != nil {
		return fmt.Errorf("segment: sync the directory: %w", err)
	}
	if l.o.Damaged != nil && len(r.res.Corrupt) > 0 {
		l.o.Damaged(r.res.Corrupt)
	}
	if err := r.visitAll(); err != nil {
		return err
	}
	if l.o.Found != nil {
		if err := l.o.Found(r.res); err != nil {
			return err
		}
	}
	if err := l.adoptFiles(r); err != nil {
		return err
	}
	if err := l.adoptSpares(r); err != nil {
		return err
	}
	l.mu.Lock()
	l.setStart(r)
	l.notify()
	l.mu.Unlock()
	l.trim()
	l.start()
	if err := l.begin(); err != nil && !errors.Is(err, ErrFull) {
		return err
	}
	return nil
}

// setStart computes where the log goes on. Positions are never used twice: the next
// file begins behind everything that any file here, abandoned ones too, may have held.
func (l *Log) setStart(r *recovery) {
	l.nextBase = (r.from + 4095) &^ 4095
	for _, f := range r.all {
		l.nextBase = max(l.nextBase, f.space(l.o.FileBytes))
	}
	l.kind = kindOpened
	l.next, l.written, l.synced = r.end, r.end, r.end
	l.setPredecessor()
}

// setPredecessor makes the last file that holds frames the predecessor of the next one.
func (l *Log) setPredecessor() {
	l.predBase, l.predEnd = 0, 0
	files := *l.files.Load()
	for i := len(files) - 1; i >= 0; i-- {
		if end := files[i].end.Load(); end > files[i].first() {
			l.predBase, l.predEnd = files[i].base, end
			return
		}
	}
}

func (l *Log) adoptFiles(r *recovery) error {
	var files []*file
	for _, f := range r.chain {
		h := &handle{f: f.f, size: f.size, path: l.path(f.name)}
		// The log owns the file now: r.close must not touch it.
		f.f = nil
		nf := &file{l: l, h: h, base: f.base, capacity: f.space(0) - f.base, incarnation: f.hdr.Incarnation, created: f.hdr.Created, durable: true, sealed: f.sealed}
		nf.refs.Store(1)
		nf.end.Store(f.end)
		files = append(files, nf)
		l.setFiles(files)
		var err error
		if h.mapping, err = h.f.Map(h.size); err != nil {
			return fmt.Errorf("segment: %w", err)
		}
	}
	for _, f := range r.abandoned {
		nf := &file{l: l, h: &handle{f: f.f, size: f.size, path: l.path(f.name)}, base: f.base, bad: true}
		nf.refs.Store(1)
		f.f = nil
		l.leave = append(l.leave, nf)
	}
	return nil
}

// adoptSpares keeps one spare file of the right size and removes what else an earlier
// life left behind.
func (l *Log) adoptSpares(r *recovery) error {
	for _, name := range r.dropped {
		if err := l.fs.Remove(l.path(name)); err != nil {
			return fmt.Errorf("segment: remove %s: %w", name, err)
		}
	}
	for _, st := range r.spares {
		if st.Size != l.o.FileBytes || len(l.spares) >= maxSpares {
			if err := l.fs.Remove(l.path(st.Name)); err != nil {
				return fmt.Errorf("segment: remove %s: %w", st.Name, err)
			}
			continue
		}
		f, err := l.fs.Open(l.path(st.Name), false)
		if err != nil {
			return fmt.Errorf("segment: open %s: %w", st.Name, err)
		}
		h := &handle{f: f, size: st.Size, path: l.path(st.Name)}
		l.spares = append(l.spares, h)
		if err := f.Allocate(h.size); err != nil {
			// No room for the blocks of a file that was never finished.
			l.spares = l.spares[:len(l.spares)-1]
			if err = errors.Join(f.Close(), l.fs.Remove(h.path)); err != nil {
				return fmt.Errorf("segment: remove %s: %w", st.Name, err)
			}
			continue
		}
		if h.mapping, err = f.Map(h.size); err != nil {
			return fmt.Errorf("segment: %w", err)
		}
		l.spareSeq = max(l.spareSeq, spareNumber(st.Name))
	}
	return nil
}

func spareNumber(name string) int {
	var n int
	// A name that is no number of ours can't collide with one.
	_, _ = fmt.Sscanf(name, sparePrefix+"%d", &n)
	return n
}

// begin starts a new segment whose header is durable before anything is written to it.
// Nobody else changes the log meanwhile: it is being opened, or it is poisoned.
func (l *Log) begin() error {
	l.mu.Lock()
	var h *handle
	for h == nil {
		var err error
		if h, err = l.takeSpare(); err != nil {
			l.mu.Unlock()
			return err
		}
		if h == nil && l.closed {
			l.mu.Unlock()
			return ErrClosed
		}
	}
	f := l.newFile(h)
	header := l.fileHeader(f)
	l.mu.Unlock()

	if err := l.create(f, header); err != nil {
		return errors.Join(err, h.f.Close(), l.fs.Remove(h.path))
	}
	if err := l.passOver(); err != nil {
		return errors.Join(err, h.f.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f.durable = true
	l.install(f)
	l.written, l.synced = l.next, l.next
	l.notify()
	return nil
}

// passOver removes the files that the newest header, now durable, declares dead. Until
// then they had to stay: one of them may be the only one to know where its predecessor
// ended. When it returns they are durably gone, so that none can come back after the
// file that passes over it was dropped.
func (l *Log) passOver() error {
	l.mu.Lock()
	leave := l.leave
	l.mu.Unlock()
	for _, f := range leave {
		if err := l.shelve(f); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave = nil
	for _, f := range leave {
		l.letGo(f)
	}
	return nil
}

func (l *Log) create(f *file, header []byte) error {
	if _, err := f.h.f.Writev([][]byte{header}, 0); err != nil {
		return fmt.Errorf("segment: header of the file at %d: %w", f.base, err)
	}
	if err := f.h.f.Sync(); err != nil {
		return fmt.Errorf("segment: header of the file at %d: %w", f.base, err)
	}
	if err := l.christen(f); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.o.Dir); err != nil {
		return fmt.Errorf("segment: sync the directory: %w", err)
	}
	return nil
}

func (l *Log) fileHeader(f *file) []byte {
	return appendFileHeader(nil, &FileHeader{
		Kind: l.kind, HasPred: l.predEnd != 0, Incarnation: f.incarnation,
		Base: f.base, Capacity: f.capacity, PredBase: l.predBase, PredEnd: l.predEnd,
		Synced: l.synced, Created: f.created,
	})
}

// trim gives back the blocks behind the end of the last file, which will not grow any more. What lies there was cut off as
// torn, so losing it changes nothing; keeping it would cost space and nothing else. The seal goes first: a last file that
// is short and has none was cut by somebody else. Without the seal the file stays as it is.
func (l *Log) trim() {
	files := *l.files.Load()
	if len(files) == 0 {
		return
	}
	f := files[len(files)-1]
	size := int64(f.end.Load()-f.base+4095) &^ 4095
	if size >= f.h.size || f.incarnation == 0 {
		return // one without its header can't be sealed
	}
	if !f.sealed && f.seal() != nil {
		return
	}
	if f.h.f.Truncate(size) == nil {
		f.h.size = size
	}
}

// abort stops a log whose Open failed.
func (l *Log) abort() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	close(l.stop)
	l.wg.Wait()
	var errs []error
	for _, f := range *l.files.Load() {
		errs = append(errs, f.h.f.Close())
	}
	for _, f := range append(l.leave, l.trash...) {
		errs = append(errs, f.h.f.Close())
	}
	for _, h := range l.spares {
		errs = append(errs, h.f.Close())
	}
	return errors.Join(errs...)
}

// Reopen takes a poisoned log back into use: a new segment under a new incarnation that
// names FailedAt as the end of the one before. Nothing from there on will ever be taken
// for data again. It waits for writes in flight. When it fails, the log stays poisoned
// (FailedAt may be lower than before), and Reopen may be tried again. It does nothing
// to a log that is not poisoned.
func (l *Log) Reopen() error {
	l.mu.Lock()
	for l.flying != nil || l.syncing || l.dropping || l.reopen {
		l.idle.Wait()
	}
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	if l.err == nil {
		l.mu.Unlock()
		return nil
	}
	l.reopen = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.reopen = false
		l.idle.Broadcast()
		l.mu.Unlock()
	}()
	// The new header claims that all below FailedAt is synced.
	if err := l.syncOnce(); err != nil {
		return err
	}
	l.mu.Lock()
	failedAt := l.failedAt
	l.cutOff()
	l.incarnation = newIncarnation()
	l.kind = kindOpened
	l.setPredecessor()
	l.mu.Unlock()
	if err := l.begin(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = append(l.dead, span{from: failedAt, to: l.next})
	l.err = nil
	l.notify()
	return nil
}

// cutOff takes the files at the end that hold no valid frames out of the log; they go
// once the next header is durable. Disks that failed once are not trusted with another
// life of the file.
func (l *Log) cutOff() {
	files := *l.files.Load()
	n := len(files)
	for ; n > 0 && files[n-1].end.Load() <= files[n-1].first(); n-- {
		f := files[n-1]
		f.bad = true
		l.leave = append(l.leave, f)
		if f == l.active {
			l.active = nil
		}
	}
	l.setFiles(files[:n:n])
}
