package partition

import "github.com/tierbroker/tierbroker/index"

// exec is a change of the index that somebody other than the commit loop needs.
type exec struct {
	fill func(*index.Batch) error
	done chan error
}

// update has the commit loop apply fill as one index batch.
func (s *Set) update(fill func(*index.Batch) error) error {
	x := exec{fill: fill, done: make(chan error, 1)}
	select {
	case s.execs <- x:
		return <-x.done
	case <-s.commitDone:
		return ErrClosing
	}
}

func (s *Set) commitBatch(fill func(*index.Batch) error) error {
	b := s.index.NewBatch()
	defer b.Close()
	if fill != nil {
		if err := fill(b); err != nil {
			return err
		}
	}
	return s.finishBatch(b)
}

// markDirty has the partition's metadata written with the next index batch.
func (s *Set) markDirty(p *Partition) {
	s.dirtyMu.Lock()
	if !p.metaDirty {
		p.metaDirty = true
		s.dirty = append(s.dirty, p)
	}
	s.dirtyMu.Unlock()
	select {
	case s.dirtySignal <- struct{}{}:
	default:
	}
}

func (s *Set) addDirty(b *index.Batch) {
	for _, p := range s.takeDirty() {
		meta, head := p.encodeMeta()
		b.PutMeta(p.id, meta)
		if head != nil {
			b.PutHead(p.id, head)
		}
	}
}

func (s *Set) takeDirty() []*Partition {
	s.dirtyMu.Lock()
	defer s.dirtyMu.Unlock()
	ps := s.dirty
	s.dirty = nil
	kept := ps[:0]
	for _, p := range ps {
		p.metaDirty = false
		if !p.dropped.Load() {
			kept = append(kept, p)
		}
	}
	return kept
}
