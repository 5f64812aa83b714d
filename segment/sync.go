package segment

import (
	"context"
	"fmt"
	"time"
)

// syncer is the goroutine that does every fdatasync: at once for those who wait, after
// SyncInterval for the rest. It also writes what nobody came to write.
func (l *Log) syncer() {
	defer l.wg.Done()
	timer := time.NewTimer(l.o.SyncInterval)
	timer.Stop()
	defer timer.Stop()
	running := false
	for {
		fired := false
		select {
		case <-l.stop:
			return
		case <-l.kickSync:
		case <-timer.C:
			fired, running = true, false
		}
		l.mu.Lock()
		if fired {
			l.armed = false
		}
		if l.wantDrain || fired {
			l.wantDrain = false
			l.drain(l.next)
		}
		doSync := l.wantSync || fired
		l.wantSync = false
		l.mu.Unlock()
		if doSync {
			// A failure is in the watermarks, where those who wait for the sync see it.
			_ = l.syncOnce()
		}
		l.mu.Lock()
		if l.armed && !running {
			running = true
			timer.Reset(l.o.SyncInterval)
		}
		l.mu.Unlock()
	}
}

// syncOnce makes everything written so far durable: one fdatasync for each file it
// lies in, which is one unless the log went on to a new file. The error, if any, has
// poisoned the log.
func (l *Log) syncOnce() error {
	l.mu.Lock()
	for l.syncing {
		l.idle.Wait()
	}
	target, from := l.written, l.synced
	if target <= from {
		l.mu.Unlock()
		return nil
	}
	l.syncing = true
	var dirty []*file
	for _, f := range *l.files.Load() {
		if f.end.Load() > from && f.base < target {
			dirty = append(dirty, f)
		}
	}
	l.mu.Unlock()
	var err error
	for _, f := range dirty {
		if err = l.syncFile(f); err != nil {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncing = false
	l.idle.Broadcast()
	if err != nil {
		for _, f := range dirty {
			f.bad = true
		}
		l.poison(l.synced, err)
		return err
	}
	for _, f := range dirty {
		f.durable = true
	}
	l.synced = max(l.synced, min(target, l.written))
	l.notify()
	return nil
}

// syncFile makes the data of f durable, and its name with its first data.
func (l *Log) syncFile(f *file) error {
	if err := f.h.f.Sync(); err != nil {
		return fmt.Errorf("segment: sync the file at %d: %w", f.base, err)
	}
	l.mu.Lock()
	durable := f.durable
	l.mu.Unlock()
	if durable {
		return nil
	}
	if err := l.fs.SyncDir(l.o.Dir); err != nil {
		return fmt.Errorf("segment: sync the directory: %w", err)
	}
	if f.passes {
		return l.passOver()
	}
	return nil
}

// Watermarks is how far the log has come. Everything below Written is in the page
// cache, everything below Synced on stable storage, save what was lost: Generation
// counts the failures, each of which lost all from FailedAt on, and Written falls back
// to it. Err is set from a failure until Reopen. Positions that fall between two files
// count as written and synced.
type Watermarks struct {
	Written, Synced uint64
	Generation      uint64
	FailedAt        uint64 // of the latest failure
	Err             error
}

func (w *Watermarks) same(o *Watermarks) bool {
	return w.Written == o.Written && w.Synced == o.Synced && w.Generation == o.Generation &&
		w.FailedAt == o.FailedAt && (w.Err == nil) == (o.Err == nil)
}

func (l *Log) marks() Watermarks {
	return Watermarks{Written: l.written, Synced: l.synced, Generation: l.gen, FailedAt: l.failedAt, Err: l.err}
}

// Watermarks returns the present ones.
func (l *Log) Watermarks() Watermarks {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.marks()
}

// Wait returns the watermarks as soon as they differ from seen. It fails with the
// context's error, or with ErrClosed when nothing will change any more; the watermarks
// are valid also then.
func (l *Log) Wait(ctx context.Context, seen Watermarks) (Watermarks, error) {
	for {
		l.mu.Lock()
		now := l.marks()
		if !now.same(&seen) {
			l.mu.Unlock()
			return now, nil
		}
		if l.closed && len(*l.files.Load()) == 0 {
			l.mu.Unlock()
			return now, ErrClosed
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}

// Changed returns the watermarks and, when they are those seen, a channel that is closed at their next change. Without
// written, only what matters to somebody who waits for stable storage is a change: that Written has risen is not.
func (l *Log) Changed(seen Watermarks, written bool) (Watermarks, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.marks()
	if !written {
		seen.Written = now.Written
	}
	switch {
	case !now.same(&seen):
		return now, nil
	case written:
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		return now, l.changed
	}
	if l.settled == nil {
		l.settled, l.unsettled = make(chan struct{}), now
	}
	return now, l.settled
}

// notify wakes everybody in Wait and behind Changed; it is called at each change of the watermarks.
func (l *Log) notify() {
	l.recent.Store(l.written)
	if l.settled != nil {
		now := l.marks()
		now.Written = l.unsettled.Written
		if !now.same(&l.unsettled) {
			close(l.settled)
			l.settled = nil
		}
	}
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Sync makes durable what is queued or written now. Errors: ErrPoisoned, ErrClosed, the
// context's.
func (l *Log) Sync(ctx context.Context) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	target, w := l.next, l.marks()
	if err := l.err; err != nil { // read under the lock: Reopen takes it back
		l.mu.Unlock()
		return err
	}
	l.wantDrain, l.wantSync = true, true
	kick(l.kickSync)
	l.mu.Unlock()
	gen := w.Generation
	for {
		if w.Generation != gen {
			if err := l.Lost(target - 1); err != nil {
				return err
			}
		}
		if w.Synced >= target {
			return nil
		}
		var err error
		if w, err = l.Wait(ctx, w); err != nil {
			return err
		}
	}
}
