package partition

import (
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
)

// touchedProducer is a producer whose state a batch changes.
type touchedProducer struct {
	p     *Partition
	id    int64
	state *producer
}

// touchedFile is a log file in which a partition has records, up to the offset last.
type touchedFile struct {
	p    *Partition
	file uint64
	last int64
}

// producerKey and fileKey name the same for the recovery, which has no such places.
type producerKey struct {
	p  *Partition
	id int64
}

type fileKey struct {
	file uint64
	id   frame.PartitionID
}

// fillBatch puts what the entries change into an index batch.
func (s *Set) fillBatch(b *index.Batch, qs []queued) error {
	for i := range qs {
		q := &qs[i]
		if q.p.dropped.Load() {
			continue
		}
		if q.kind != frame.Data {
			if q.kind == frame.EpochStart {
				s.markDirty(q.p)
			}
			continue
		}
		newMax, err := q.p.raisesMax(q.entry.MaxTimestamp)
		if err != nil {
			return err
		}
		b.PutEntry(q.p.id, q.entry, newMax)
		if q.hasProducer {
			s.touchProducer(q.p, q.producer)
		}
		s.useFile(q.p, &q.entry)
	}
	for i := range s.touchedProducers {
		t := &s.touchedProducers[i]
		s.encodeBuf = t.state.encode(s.encodeBuf[:0])
		b.PutProducer(t.p.id, t.id, s.encodeBuf)
	}
	for i := range s.touchedFiles {
		t := &s.touchedFiles[i]
		b.PutFileUse(t.file, t.p.id, t.last)
	}
	clear(s.touchedProducers)
	clear(s.touchedFiles)
	s.touchedProducers, s.touchedFiles = s.touchedProducers[:0], s.touchedFiles[:0]
	return nil
}

// touchProducer changes a producer's settled state and notes it, once per batch.
func (s *Set) touchProducer(p *Partition, d produced) {
	state := p.committed.apply(d)
	if i := state.at; i < len(s.touchedProducers) && s.touchedProducers[i].state == state {
		return
	}
	state.at = len(s.touchedProducers)
	s.touchedProducers = append(s.touchedProducers, touchedProducer{p, d.id, state})
}

// useFile notes that a partition has records in a log file: reclaim asks for it.
func (s *Set) useFile(p *Partition, e *index.Entry) {
	if e.Position < s.fileBase || e.Position >= s.fileEnd {
		base, end, ok := s.log.FileBase(e.Position)
		if !ok {
			return
		}
		s.fileBase, s.fileEnd = base, end
	}
	if i := p.usedAt; i < len(s.touchedFiles) && s.touchedFiles[i].p == p && s.touchedFiles[i].file == s.fileBase {
		s.touchedFiles[i].last = e.Last
		return
	}
	p.usedAt = len(s.touchedFiles)
	s.touchedFiles = append(s.touchedFiles, touchedFile{p, s.fileBase, e.Last})
}
