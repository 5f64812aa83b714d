package segment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	sparePrefix = "spare-"
	dropPrefix  = "dropped-"
	tempSuffix  = ".tmp"
	// maxSpares is how many files wait for use: one is allocated ahead, and a dropped
	// one is kept beside it, so that a log that drops as it grows never allocates.
	maxSpares = 2
)

// takeSpare returns a file ready for use. It waits for an allocation that is under way
// and then returns nil, because the log may have changed meanwhile. l.mu is held.
func (l *Log) takeSpare() (*handle, error) {
	if n := len(l.spares); n > 0 {
		h := l.spares[n-1]
		l.spares = l.spares[:n-1]
		if n == 1 {
			l.wantAlloc = true
			kick(l.kickAlloc)
		}
		return h, nil
	}
	l.wantAlloc = true
	if l.backoff {
		return nil, l.allocErr
	}
	kick(l.kickAlloc)
	seen := l.allocs
	l.allocated.Wait()
	if l.allocs != seen && len(l.spares) == 0 && l.allocErr != nil {
		return nil, l.allocErr
	}
	return nil, nil
}

// Starved reports that the log needs another file and the disk has no space for one: what
// can be dropped should be.
func (l *Log) Starved() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.spares) == 0 && errors.Is(l.allocErr, ErrFull)
}

// janitor is the goroutine that allocates files ahead of their use and recycles or
// removes those that were let go.
func (l *Log) janitor() {
	defer l.wg.Done()
	timer := time.NewTimer(l.o.RetryInterval)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.kickAlloc:
		case <-timer.C:
			l.mu.Lock()
			l.backoff = false
			l.mu.Unlock()
		}
		l.mu.Lock()
		trash := l.trash
		l.trash = nil
		l.mu.Unlock()
		for _, f := range trash {
			if err := l.reuse(f); err != nil {
				l.mu.Lock()
				l.lateErr = errors.Join(l.lateErr, err)
				l.mu.Unlock()
			}
		}
		if l.allocateAhead() {
			timer.Reset(l.o.RetryInterval)
		}
	}
}

// allocateAhead makes a spare file when one is wanted; failed asks for a pause.
func (l *Log) allocateAhead() (failed bool) {
	l.mu.Lock()
	if !l.wantAlloc || l.backoff || len(l.spares) > 0 || l.closed {
		l.mu.Unlock()
		return false
	}
	l.wantAlloc = false
	l.spareSeq++
	path := l.path(fmt.Sprintf("%s%d%s", sparePrefix, l.spareSeq, tempSuffix))
	l.mu.Unlock()
	h, err := l.allocate(path)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allocs++
	l.allocErr = err
	if err != nil {
		l.backoff = true
	} else {
		l.spares = append(l.spares, h)
	}
	l.allocated.Broadcast()
	return err != nil
}

// allocate makes a file of the full size without eating into the reserve.
func (l *Log) allocate(path string) (*handle, error) {
	free, err := l.fs.Free(l.o.Dir)
	if err != nil {
		return nil, fmt.Errorf("segment: free space: %w", err)
	}
	if free-l.o.FileBytes < l.o.MinFree {
		return nil, fmt.Errorf("%w: %d bytes free, a file takes %d, and %d stay in reserve", ErrFull, free, l.o.FileBytes, l.o.MinFree)
	}
	f, err := l.fs.Open(path, true)
	if err != nil {
		return nil, fullError(fmt.Errorf("segment: new file: %w", err))
	}
	h := &handle{f: f, size: l.o.FileBytes, path: path}
	if err = f.Allocate(h.size); err == nil {
		h.mapping, err = f.Map(h.size)
	}
	if err != nil {
		return nil, fullError(errors.Join(fmt.Errorf("segment: new file: %w", err), f.Close(), l.fs.Remove(path)))
	}
	return h, nil
}

// fullError makes "no space" and "quota exceeded" an ErrFull.
func fullError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// Drop takes the oldest file, which must be the one at base, out of the log. It is
// recycled or removed when the last reference on it is released; after a crash it does
// not come back. The active file, and one that is not synced yet, can't be dropped
// (ErrInUse), nor can any but the oldest.
func (l *Log) Drop(base uint64) error {
	l.mu.Lock()
	for l.dropping && !l.closed {
		l.idle.Wait()
	}
	files := *l.files.Load()
	var err error
	switch {
	case l.closed:
		err = ErrClosed
	case len(files) == 0 || files[0].base > base:
		err = fmt.Errorf("%w: no file at %d", ErrNotFound, base)
	case files[0].base != base:
		err = fmt.Errorf("%w: the oldest file is at %d, not at %d", ErrInUse, files[0].base, base)
	case files[0] == l.active:
		err = fmt.Errorf("%w: the file at %d is active", ErrInUse, base)
	case files[0].end.Load() > l.synced:
		err = fmt.Errorf("%w: the file at %d is not synced", ErrInUse, base)
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	f := files[0]
	l.dropping = true
	l.mu.Unlock()
	err = l.shelve(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropping = false
	l.idle.Broadcast()
	if err != nil {
		return err
	}
	l.setFiles((*l.files.Load())[1:])
	l.dead = slices.DeleteFunc(l.dead, func(s span) bool { return s.to <= f.base })
	l.letGo(f)
	return nil
}

// shelve takes the file's name away, durably and in the order of the drops: the log on
// disk never has a hole in the middle.
func (l *Log) shelve(f *file) error {
	name := l.path(dropPrefix + logName(f.base) + tempSuffix)
	if f.h.path != name {
		if err := l.fs.Rename(f.h.path, name); err != nil {
			return fmt.Errorf("segment: drop the file at %d: %w", f.base, err)
		}
		f.h.path = name
	}
	if err := l.fs.SyncDir(l.o.Dir); err != nil {
		return fmt.Errorf("segment: drop the file at %d: %w", f.base, err)
	}
	return nil
}

// letGo gives up the log's reference on a file that is no longer in the list.
func (l *Log) letGo(f *file) {
	l.loose[f] = struct{}{}
	if f.refs.Add(-1) == 0 {
		l.unreferenced(f)
	}
}

// unreferenced hands a file that was let go to the janitor.
func (l *Log) unreferenced(f *file) {
	delete(l.loose, f)
	l.trash = append(l.trash, f)
	kick(l.kickAlloc)
}

// reuse makes a spare of an unreferenced file, or removes it.
func (l *Log) reuse(f *file) error {
	h := f.h
	if free, err := l.fs.Free(l.o.Dir); err == nil && free >= l.o.MinFree && !f.bad && h.size == l.o.FileBytes && int64(len(h.mapping)) == h.size {
		l.mu.Lock()
		keep := len(l.spares) < maxSpares && !l.closed
		l.spareSeq++
		path := l.path(fmt.Sprintf("%s%d%s", sparePrefix, l.spareSeq, tempSuffix))
		l.mu.Unlock()
		if keep && l.fs.Rename(h.path, path) == nil {
			h.path = path
			l.mu.Lock()
			defer l.mu.Unlock()
			l.spares = append(l.spares, h)
			l.allocErr, l.backoff = nil, false
			l.allocs++
			l.allocated.Broadcast()
			return nil
		}
	}
	err := errors.Join(h.f.Close(), l.fs.Remove(h.path))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.backoff {
		// There is more room than at the last attempt.
		l.backoff = false
		l.wantAlloc = true
	}
	if err != nil {
		return fmt.Errorf("segment: remove the file at %d: %w", f.base, err)
	}
	return nil
}

// spareName tells whether a file of the directory is one that may be reused or removed.
func spareName(name string) (spare, dropped bool) {
	if !strings.HasSuffix(name, tempSuffix) {
		return false, false
	}
	return strings.HasPrefix(name, sparePrefix), strings.HasPrefix(name, dropPrefix)
}
