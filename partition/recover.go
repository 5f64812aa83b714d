package partition

import (
	"errors"
	"fmt"
	"math"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
)

// recovery replays what the log holds behind the index's checkpoint into the index, in pieces, each with its own
// checkpoint, so that an interrupted recovery goes on where it was.
type recovery struct {
	s        *Set
	b        *index.Batch
	n        int
	end      uint64
	extra    []byte // of the run before: what it says is true until the recovery is complete
	touched  map[producerKey]struct{}
	files    map[fileKey]int64
	voidTo   map[frame.PartitionID]int64 // offset before which there may be a gap, by the last epoch-start frame
	from     uint64
	replayed map[*Partition]uint64   // log position of the newest batch that was visited
	damage   []segment.Corruption    // that no visited frame lies behind yet, by position
	changed  map[*Partition]struct{} // by frames of any kind, since the last piece: what they say goes with the checkpoint that passes them
}

// recoveryPiece is how many frames one index batch covers.
const recoveryPiece = 4096

// recover opens the log. On return every partition's offsets are right as far as local data tells; prepare adds what
// the head knows.
func (s *Set) recover() error {
	from, extra, ok, err := s.index.Checkpoint()
	if err != nil {
		return err
	}
	if err := s.loadPartitions(); err != nil {
		return err
	}
	newDir, err := s.newDir()
	if err != nil {
		return err
	}
	if newDir && ok && from > 0 {
		s.cut = true
		return fmt.Errorf("%w: the index covers the commit log up to position %d, and the log's files are gone", ErrCorrupt, from)
	}
	r := &recovery{s: s, b: s.index.NewBatch(), end: from, extra: extra, touched: map[producerKey]struct{}{}, files: map[fileKey]int64{},
		voidTo: map[frame.PartitionID]int64{}, replayed: map[*Partition]uint64{}, changed: map[*Partition]struct{}{}, from: from}
	o := s.o.Log
	o.Found = func(found segment.Recovered) error { return r.found(found, extra, ok, newDir) }
	o.Damaged = r.damaged
	log, _, err := segment.Open(o, from, r.visit)
	if err != nil {
		err = errors.Join(err, r.release())
		return fmt.Errorf("recover commit log: %w", err)
	}
	s.log = log
	s.generation = log.Watermarks().Generation
	s.progress = newProgress(r.end)
	for _, f := range log.Files() {
		if f.Active {
			s.active = f.Base + segment.FileHeaderLen
		}
	}
	// From here until a clean Close the checkpoint says that the log is open on this boot.
	if err := errors.Join(s.commitBatch(nil), s.index.Flush()); err != nil {
		return errors.Join(err, log.Close())
	}
	return nil
}

// found is called when all frames were visited, and before the log is changed: what must be remembered of damage is on
// disk when it returns.
func (r *recovery) found(found segment.Recovered, extra []byte, ok, newDir bool) error {
	s := r.s
	if ok && found.End < r.from {
		// What the index points to is not there: the end of the log was lost, by whatever is not a crash.
		s.cut = true
		return fmt.Errorf("%w: the index covers the commit log up to position %d, and the log ends at %d", ErrCorrupt, r.from, found.End)
	}
	if first, gone := missingFile(extra, ok, &found); gone {
		found.Corrupt = append(found.Corrupt, segment.Corruption{File: fmt.Sprintf("%016x.log", first-segment.FileHeaderLen), Position: max(first, r.from), Reason: "file is missing, or its header is destroyed"})
	}
	r.pass(math.MaxUint64)
	if err := r.finish(max(found.End, r.from)); err != nil {
		return err
	}
	s.committedTo, s.exposedTo = r.end, r.end
	s.recovered = Recovery{Frames: r.n, From: max(r.from, found.Start), To: found.End, Torn: found.Torn, Corrupt: found.Corrupt,
		Rebuilt: !ok && found.End > found.Start, Rebooted: s.rebooted(extra, ok, found), Partitions: len(s.parts)}
	s.doubt(extra, ok, newDir && !ok)
	for _, c := range found.Corrupt {
		s.event(Error, s.parts[c.ID], fmt.Sprintf("commit log is damaged at position %d of %s: %s", c.Position, c.File, c.Reason), ErrCorrupt)
	}
	r.suspect(&found)
	s.settleRecovered()
	if len(found.Corrupt) == 0 {
		return nil
	}
	return errors.Join(s.commitBatch(nil), s.index.Flush())
}

// loadPartitions reads what the index remembers; the newest entry of each partition tells where its offsets go on.
func (s *Set) loadPartitions() error {
	var bad error
	err := s.index.Partitions(func(id frame.PartitionID, b []byte) bool {
		bad = s.loadMeta(id, b)
		return bad == nil
	})
	if err := errors.Join(err, bad); err != nil {
		return err
	}
	for id, p := range s.parts {
		last, ok, err := s.index.Last(id)
		if err != nil {
			return err
		}
		if !ok {
			p.local = p.next
			continue
		}
		first, _, err := s.index.First(id)
		if err != nil {
			return err
		}
		p.next, p.local = max(p.next, last.Last+1), max(p.local, first.Base)
	}
	return nil
}

// visit is called for every valid frame behind the checkpoint, in log order.
func (r *recovery) visit(f segment.Frame) error {
	r.pass(f.Position)
	r.n++
	r.end = f.Position + uint64(segment.FrameLen(f.EncodedLen(), len(f.Payload)))
	switch f.Type {
	case frame.Data:
		if err := r.data(&f); err != nil {
			return err
		}
	case frame.EpochStart:
		r.epochStart(&f)
	case frame.Truncate:
		if err := r.truncate(&f); err != nil {
			return err
		}
	case frame.DropPartition:
		if err := r.drop(f.ID); err != nil {
			return err
		}
	}
	if r.n%recoveryPiece == 0 {
		return r.commit()
	}
	return nil
}

func (r *recovery) epochStart(f *segment.Frame) {
	p := r.s.ensure(f.ID, "")
	r.changed[p] = struct{}{}
	p.setTopic(topicName(&f.Header))
	p.start = max(p.start, startOffset(&f.Header))
	p.startSaved = max(p.startSaved, startOffset(&f.Header))
	if f.Flags&flagVoid != 0 {
		r.voidTo[f.ID] = f.BaseOffset
	}
}

func (r *recovery) data(f *segment.Frame) error {
	h, err := batch.ParseHeader(f.Payload)
	if err != nil {
		return fmt.Errorf("frame at %d: %w", f.Position, err)
	}
	p := r.s.ensure(f.ID, "")
	r.changed[p] = struct{}{}
	base, last := f.BaseOffset, f.BaseOffset+int64(f.RecordCount)-1
	if base < p.next && r.knows(p) {
		r.s.event(Error, p, fmt.Sprintf("frame at log position %d repeats offset %d (next is %d) and is left out", f.Position, base, p.next), ErrCorrupt)
		return nil
	}
	if base > p.next && r.knows(p) {
		r.gap(p, base)
	} else if !r.knows(p) {
		p.local = base
	}
	if f.Position >= p.jumpFrom {
		p.jump, p.rebooted = false, false // nothing is appended before a jump that is due
	}
	delete(r.voidTo, f.ID)
	r.replayed[p] = f.Position
	if n := len(p.epochs); n == 0 || p.epochs[n-1].Epoch < f.Epoch {
		p.epochs = append(p.epochs, EpochStart{Epoch: f.Epoch, Start: base})
	}
	p.epoch = max(p.epoch, f.Epoch)
	e := index.Entry{Base: base, Last: last, Position: f.Position, HeaderLen: uint16(f.EncodedLen()), Length: uint32(len(f.Payload)),
		MaxTimestamp: h.MaxTimestamp, Epoch: f.Epoch, Records: f.RecordCount, AppendTime: f.AppendTime}
	newMax, err := p.raisesMax(e.MaxTimestamp)
	if err != nil {
		return err
	}
	p.next = last + 1
	r.files[fileKey{f.File, f.ID}] = last
	if h.HasProducer() {
		if err := r.producer(p, f, &h, last); err != nil {
			return err
		}
	}
	r.b.PutEntry(f.ID, e, newMax)
	return nil
}

// gap is called when a partition goes on at base, above its next offset. What is local begins there: lookups and reads
// see no hole in it. Unless a frame has said that the gap is meant, frames are damaged; prepare asks the bucket for them.
func (r *recovery) gap(p *Partition, base int64) {
	p.local = base
	if at, ok := r.voidTo[p.id]; ok && at == base {
		return
	}
	if p.hole.empty() {
		p.hole = gap{p.next, base}
	} else {
		p.hole.to = base
	}
}

// knows says whether the partition's next offset is known, so that a frame can be held against it.
func (r *recovery) knows(p *Partition) bool {
	_, replayed := r.replayed[p]
	return p.next > 0 || replayed || p.headKnown
}

func (r *recovery) producer(p *Partition, f *segment.Frame, h *batch.Header, last int64) error {
	if err := p.loadProducers(); err != nil {
		return err
	}
	d := produced{id: h.ProducerID, epoch: h.ProducerEpoch, seen: f.AppendTime, batch: producedBatch{
		firstSeq: h.FirstSequence, lastSeq: h.LastSequence(), base: f.BaseOffset, last: last}}
	p.live.apply(d)
	p.committed.apply(d)
	r.touched[producerKey{p, h.ProducerID}] = struct{}{}
	return nil
}

func (r *recovery) truncate(f *segment.Frame) error {
	end, err := frame.TruncateEnd(f.Payload)
	if err != nil {
		return fmt.Errorf("frame at %d: %w", f.Position, err)
	}
	p := r.s.ensure(f.ID, "")
	r.changed[p] = struct{}{}
	p.next = min(p.next, end)
	p.trimEpochs(end)
	r.b.DeleteEntriesFrom(f.ID, end)
	// Later entries must get time keys above what is left, not above what is gone.
	ts, ok, err := r.b.RunningMax(f.ID)
	if err != nil {
		return err
	}
	p.runMax, p.maxKnown = math.MinInt64, true
	if ok {
		p.runMax = ts
	}
	return nil
}

func (r *recovery) drop(id frame.PartitionID) error {
	r.b.DropPartition(id)
	for k := range r.files {
		if k.id == id {
			delete(r.files, k)
		}
	}
	if p := r.s.Get(id); p != nil {
		for k := range r.touched {
			if k.p == p {
				delete(r.touched, k)
			}
		}
		delete(r.replayed, p)
		delete(r.changed, p)
		r.s.forget(p)
	}
	return r.s.dropUses(r.b, id)
}

// trimEpochs forgets the epochs that begin at or above end.
func (p *Partition) trimEpochs(end int64) {
	n := len(p.epochs)
	for n > 0 && p.epochs[n-1].Start >= end {
		n--
	}
	p.epochs = p.epochs[:n]
}

func (r *recovery) commit() error {
	for k := range r.touched {
		r.b.PutProducer(k.p.id, k.id, k.p.committed[k.id].encode(nil))
	}
	for k, last := range r.files {
		r.b.PutFileUse(k.file, k.id, last)
	}
	for p := range r.changed {
		p.durable, p.stored = p.next, p.next
		m, _ := p.encodeMeta()
		r.b.PutMeta(p.id, m)
	}
	clear(r.touched)
	clear(r.files)
	clear(r.changed)
	r.b.SetCheckpoint(r.end, r.extra)
	if err := r.b.Commit(); err != nil {
		return err
	}
	err := r.b.Close()
	r.b = r.s.index.NewBatch()
	return err
}

func (r *recovery) finish(end uint64) error {
	r.end = max(r.end, end)
	return errors.Join(r.commit(), r.release())
}

func (r *recovery) release() error {
	b := r.b
	if r.b = nil; b == nil {
		return nil
	}
	return b.Close()
}

// settleRecovered ends the replay: everything local is durable.
func (s *Set) settleRecovered() {
	for _, p := range s.parts {
		p.durable, p.stored, p.reopenedAt = p.next, p.next, p.next
		p.headKnown, p.traced = p.headKnown && !s.recovered.Rebuilt, true
		if s.cut {
			p.jump, p.jumpFrom = true, s.recovered.To
		}
		if s.recovered.Rebooted {
			p.rebooted, p.jumpFrom = true, s.recovered.To
		}
		s.markDirty(p)
	}
}
