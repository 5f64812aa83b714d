package segment

import (
	"fmt"
)

// writeHead writes the first group of the queue. l.mu is held, and let go for the I/O;
// l.flying must be nil and the queue not empty.
func (l *Log) writeHead() {
	g := l.queue[0]
	copy(l.queue, l.queue[1:])
	l.queue[len(l.queue)-1] = nil
	l.queue = l.queue[:len(l.queue)-1]
	l.flying = g
	l.mu.Unlock()
	err := l.writeGroup(g)
	l.mu.Lock()
	l.flying = nil
	l.queued -= int64(g.end - max(g.start, g.f.first()))
	switch {
	case err != nil:
		g.f.bad = true
		l.poison(l.written, err)
	case l.err == nil:
		l.written = g.end
		g.f.end.Store(g.end)
		l.notify()
	}
	if g.sync && l.err == nil && !l.wantSync {
		l.wantSync = true
		kick(l.kickSync)
	}
	g.wake()
	l.recycle(g)
	l.baton()
	l.space.Broadcast()
	l.idle.Broadcast()
}

// writeGroup does the I/O. A file gets its name after its first bytes: what has the
// name of a log file has a header, as far as this process is concerned.
func (l *Log) writeGroup(g *group) error {
	if _, err := g.f.h.f.Writev(g.pieces(), int64(g.start-g.f.base)); err != nil {
		return fmt.Errorf("segment: write at %d: %w", g.start, err)
	}
	if g.start == g.f.base {
		return l.christen(g.f)
	}
	return nil
}

// christen gives a spare file its name in the log.
func (l *Log) christen(f *file) error {
	name := l.path(logName(f.base))
	if err := l.fs.Rename(f.h.path, name); err != nil {
		return fmt.Errorf("segment: name the file at %d: %w", f.base, err)
	}
	f.h.path = name
	return nil
}

// baton wakes one waiter of the queue to be the next writer.
func (l *Log) baton() {
	if l.flying != nil {
		return
	}
	for _, g := range l.queue {
		if g.waiters > 0 {
			g.waiters--
			g.done.Signal()
			return
		}
	}
}

// drain writes all that is queued below target.
func (l *Log) drain(target uint64) {
	for l.written < target && l.err == nil && (len(l.queue) > 0 || l.flying != nil) {
		if l.flying != nil {
			l.idle.Wait()
			continue
		}
		l.writeHead()
	}
}

// poison marks the log as failed from at on. The queue is given up; a write in flight
// goes on (it reads its callers' memory) but counts for nothing.
func (l *Log) poison(at uint64, cause error) {
	if l.err != nil && at >= l.failedAt {
		return
	}
	l.gen++
	l.failedAt = at
	l.err = &PoisonError{At: at, Cause: cause}
	l.written = min(l.written, at)
	for _, f := range *l.files.Load() {
		if f.end.Load() > at {
			f.end.Store(max(at, f.first()))
		}
	}
	queue := l.queue
	l.queue = nil
	for _, g := range queue {
		l.queued -= int64(g.end - max(g.start, g.f.first()))
		g.wake()
		l.recycle(g)
	}
	l.space.Broadcast()
	l.allocated.Broadcast()
	l.idle.Broadcast()
	l.notify()
}
