package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
)

func (s *Set) kickReclaim() {
	select {
	case s.reclaims <- struct{}{}:
	default:
	}
}

// reclaimLoop gives log files back, oldest first. After a failure it waits for the next tick, whoever asks: a full disk
// makes it fail and makes everybody ask.
func (s *Set) reclaimLoop() {
	t := time.NewTicker(s.o.RollInterval)
	defer t.Stop()
	failing := false
	for {
		asked := s.reclaims
		if failing {
			asked = nil
		}
		select {
		case <-s.ctx.Done():
			return
		case <-asked:
		case <-t.C:
		}
		var err error
		for dropped := true; dropped && err == nil && s.ctx.Err() == nil; {
			dropped, err = s.reclaimOldest(s.o.Now())
		}
		if err != nil && !failing && s.ctx.Err() == nil {
			s.event(Error, nil, "reclaim of the oldest log file failed; it is tried again", err)
		}
		failing = err != nil
	}
}

// user is one partition with records in the file under review.
type user struct {
	id   frame.PartitionID
	p    *Partition // nil when nobody knows the partition
	last int64      // its last offset in the file
}

// reclaimOldest is called by one at a time; see reclaimFile.
func (s *Set) reclaimOldest(now int64) (bool, error) {
	select {
	case s.reclaiming <- struct{}{}:
		defer func() { <-s.reclaiming }()
		return s.reclaimFile(now)
	case <-s.ctx.Done():
		return false, ErrClosing
	}
}

// reclaimFile drops the oldest file if every partition in it is tiered past it, what the index knows of that is on
// disk, and local retention has passed or the budget or a full disk asks for it.
func (s *Set) reclaimFile(now int64) (bool, error) {
	files, img := s.log.Files(), s.image.Load()
	if len(files) == 0 || img == nil {
		return false, nil // who owns what isn't known yet
	}
	f := files[0]
	s.measure(s.log.Watermarks().Written, true)
	if f.Active || s.progress.committedTo() < f.End {
		return false, nil
	}
	users, err := s.usersOf(f)
	if err != nil {
		return false, err
	}
	// The budget was measured at the start; others may have filled the disk since.
	tight := float64(s.pressure.used.Load()) > reclaimShare*float64(s.pressure.budget.Load()) || s.log.Starved()
	if !tight && !s.retentionPassed(img, users, now) {
		return false, nil
	}
	if waiting := s.pinned(img, users); waiting || s.unaligned(img) {
		return false, nil
	}
	return true, s.drop(f, users)
}

func (s *Set) usersOf(f segment.FileInfo) ([]user, error) {
	var users []user
	err := s.index.FileUse(f.Base, func(id frame.PartitionID, last int64) bool {
		if last != noUse {
			users = append(users, user{id: id, p: s.Get(id), last: last})
		}
		return true
	})
	return users, err
}

// retentionPassed says whether no partition wants to keep its local copy of the file.
func (s *Set) retentionPassed(img *cluster.Image, users []user, now int64) bool {
	for _, u := range users {
		if u.p != nil && s.owns(img, u.id) && u.p.wantsLocal(u.last, now) {
			return false
		}
	}
	return true
}

// wantsLocal says whether local retention still holds the records up to last.
func (p *Partition) wantsLocal(last, now int64) bool {
	p.mu.Lock()
	gone := last < p.start || last < p.local
	size := p.localBytes
	p.mu.Unlock()
	if gone {
		return false
	}
	cfg := p.cfg.Load()
	ms, bytes := cfg.LocalRetentionMs, cfg.LocalRetentionBytes
	if ms == -2 {
		ms = cfg.RetentionMs
	}
	if bytes == -2 {
		bytes = cfg.RetentionBytes
	}
	if bytes >= 0 && size > bytes {
		return false
	}
	if ms < 0 {
		return true
	}
	e, ok, err := p.set.index.Find(p.id, last)
	return err != nil || ok && e.Base <= last && e.AppendTime+ms > now
}

// pinned finds the partitions that keep the file from being dropped and has them rolled. What can't be rolled is
// copied to a quarantine file, so that one partition never fills the disk.
func (s *Set) pinned(img *cluster.Image, users []user) bool {
	waiting := false
	for _, u := range users {
		if u.p == nil {
			continue // unknown: moved to quarantine by drop
		}
		u.p.mu.Lock()
		covered := u.last < u.p.tiered || u.last < u.p.start
		if !covered && u.p.serving() {
			u.p.rollForced = true
			s.kickRoll(u.p)
			s.notePending(u.p)
		}
		waiting = waiting || !covered && u.p.state != Failed && !s.gone(img, u.id)
		u.p.mu.Unlock()
	}
	return waiting
}

// owns says whether the partition is this broker's, in this run or one before.
func (s *Set) owns(img *cluster.Image, id frame.PartitionID) bool {
	a, ok := img.Assignment(id)
	return ok && a.Owner == s.o.Broker
}

// gone says whether nobody here will ever roll the partition: its topic is unknown, or another broker owns it and has come
// so far that it has the head. Before that it may still come back here, and needs what is here. The state of the partition
// doesn't tell: until an image has been followed, all are Closed.
func (s *Set) gone(img *cluster.Image, id frame.PartitionID) bool {
	a, ok := img.Assignment(id)
	return img.TopicByID(id.Topic) == nil || ok && a.Owner != s.o.Broker && a.Owner != cluster.NoBroker &&
		a.State != cluster.Starting && a.State != cluster.Recovering
}

// unaligned says whether some partition's start is known to log and index only: the note may be in the file that is to
// go. Those partitions have their heads follow.
func (s *Set) unaligned(img *cluster.Image) bool {
	found := false
	for _, p := range s.All() {
		p.mu.Lock()
		if p.start > p.headStart && p.state != Failed {
			if s.owns(img, p.id) {
				found = true
				s.notePending(p)
				s.kickRoll(p)
			}
		}
		p.mu.Unlock()
	}
	return found
}

// drop removes a file: first quarantine, then the index (flushed), then the file. A crash in between repeats steps
// and loses nothing.
func (s *Set) drop(f segment.FileInfo, users []user) error {
	for _, u := range users {
		if err := s.quarantine(f, u); err != nil {
			return fmt.Errorf("quarantine %s: %w", u.id, err)
		}
	}
	freed := map[*Partition]int64{}
	for _, u := range users {
		if u.p == nil {
			continue
		}
		if err := s.index.Scan(u.id, 0, func(e index.Entry) bool {
			if e.Last > u.last {
				return false
			}
			freed[u.p] += int64(e.Length)
			return true
		}); err != nil {
			return err
		}
		u.p.moveLocal(u.last + 1)
	}
	err := s.update(func(b *index.Batch) error {
		for _, u := range users {
			b.DeleteEntriesBelow(u.id, u.last+1)
		}
		b.DropFileUse(f.Base)
		return nil
	})
	if err != nil {
		return err
	}
	// The cached heads and the entries' removal must be on disk before the file is gone.
	if err := s.index.Flush(); err != nil {
		return err
	}
	for p, n := range freed {
		p.mu.Lock()
		p.localBytes = max(0, p.localBytes-n)
		p.mu.Unlock()
	}
	if err := s.log.Drop(f.Base); err != nil {
		return err
	}
	s.measure(s.log.Watermarks().Written, true)
	return nil
}

// moveLocal raises the first local offset; reads below it go to the bucket from now on.
func (p *Partition) moveLocal(to int64) {
	p.mu.Lock()
	p.local = max(p.local, to)
	n := 0
	for n < p.settled && p.tail[n].Last < p.local {
		n++
	}
	p.tail = append(p.tail[:0:0], p.tail[n:]...)
	p.settled -= n
	p.mu.Unlock()
	p.set.markDirty(p)
}

// quarantine keeps the records of a partition that the bucket doesn't cover and that nobody can roll.
func (s *Set) quarantine(f segment.FileInfo, u user) error {
	from := int64(0)
	if u.p != nil {
		u.p.mu.Lock()
		from = max(u.p.tiered, u.p.start)
		u.p.mu.Unlock()
		if u.last < from {
			return nil
		}
	}
	if img := s.image.Load(); img != nil && u.p == nil && img.DeletedTopic(u.id.Topic) != nil {
		return nil
	}
	n, err := s.log.Quarantine(f.Base, u.id, from)
	if err != nil {
		return err
	}
	if n > 0 {
		s.event(Error, u.p, fmt.Sprintf("%d frames of %s that the bucket lacks were moved to a quarantine file, since they kept a log file from being freed", n, u.id), nil)
	}
	return nil
}

// Evict drops the local copies that the bucket covers: reads below the tiered offset go to the bucket from now on.
// Space is freed as soon as no other partition needs the same log files.
func (p *Partition) Evict(ctx context.Context) error {
	p.mu.Lock()
	to, err := p.tiered, p.admit(-1)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if err := p.lockSwap(ctx); err != nil {
		return err
	}
	defer p.unlockSwap()
	p.moveLocal(to)
	if err := p.set.update(func(b *index.Batch) error { b.DeleteEntriesBelow(p.id, to); return nil }); err != nil {
		return err
	}
	p.mu.Lock()
	p.localBytes = p.pending
	p.mu.Unlock()
	p.set.kickReclaim()
	return nil
}
