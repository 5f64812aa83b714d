package partition

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
)

// queued is an append on its way from the log into the index, in log order.
type queued struct {
	p           *Partition
	kind        frame.Type
	entry       index.Entry
	end, gen    uint64
	onWrite     bool // visible as soon as written
	hasProducer bool
	producer    produced
}

// maxBacklog bounds the appends that wait for the commit loop: producers that don't wait for acknowledgements must not
// fill the memory while the disk is slow.
const maxBacklog = 1 << 18

// enqueue gives the frame its position and joins the queue of the commit loop. appendMu makes both one step, so that
// the queue is in log order across partitions; the log's Enqueue does no I/O. With mark an epoch-start frame
// goes first: it tells recovery which epoch begins at which offset, and that it is meant to begin there.
func (s *Set) enqueue(q *queued, payload []byte, mark bool) error {
	if s.backlog.Load() >= maxBacklog {
		return fmt.Errorf("%d batches wait for the disk", maxBacklog)
	}
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	if s.gate {
		return errWriteFailed
	}
	sync := !q.onWrite
	if q.onWrite && !s.async.Load() {
		s.sawAsync()
	}
	if mark {
		m := queued{p: q.p, kind: frame.EpochStart, entry: index.Entry{Base: q.entry.Base, Last: q.entry.Base - 1, Epoch: q.entry.Epoch, AppendTime: q.entry.AppendTime}}
		if err := s.enqueueFrame(&m, nil, sync); err != nil {
			return err
		}
	}
	return s.enqueueFrame(q, payload, sync)
}

func (s *Set) enqueueFrame(q *queued, payload []byte, sync bool) error {
	e := &s.scratch
	*e = segment.Entry{Payload: payload, Sync: sync, Header: frame.Header{
		Type: q.kind, ID: q.p.id, Epoch: q.entry.Epoch, BaseOffset: q.entry.Base,
		RecordCount: q.entry.Records, AppendTime: q.entry.AppendTime, PayloadLen: uint32(len(payload)),
	}}
	if q.kind == frame.EpochStart {
		e.Header.Extensions = nameExtension(q.p.Topic())
		if q.p.void {
			e.Header.Flags = flagVoid
		}
	}
	hlen := e.Header.EncodedLen()
	pos, gen, err := s.log.Enqueue(e)
	e.Payload, e.Header.Extensions = nil, nil
	if err != nil {
		return err
	}
	q.entry.Position, q.entry.HeaderLen, q.gen = pos, uint16(hlen), gen
	if q.kind == frame.Data {
		q.producer.batch.gen = gen
	}
	q.end = pos + uint64(segment.FrameLen(hlen, len(payload)))
	q.producer.batch.end = q.end
	s.lastEnd, s.lastGen = q.end, gen
	s.backlog.Add(1)
	s.queue = append(s.queue, *q)
	return nil
}

// commitLoop is the only writer of the index (design, sections 3 and 5): what is written becomes visible for async
// topics; what is synced goes into the index as one batch with the checkpoint and then becomes visible for all
// others; then producers and consumers wake.
func (s *Set) commitLoop() {
	defer close(s.commitDone)
	defer s.closeBatch()
	always := make(chan struct{}) // is ready at once
	close(always)
	var seen segment.Watermarks
	for {
		wm, changed := s.log.Changed(seen, s.async.Load())
		if changed == nil {
			seen = wm
			s.observe(wm)
			changed = always // not before others had their turn
		}
		select {
		case <-changed:
		case <-s.asyncNow:
		case <-s.reopenDue:
			s.step(s.repair(s.log.Watermarks()))
		case x := <-s.execs:
			x.done <- s.commitBatch(x.fill)
		case <-s.dirtySignal:
			if err := s.commitBatch(nil); err != nil {
				s.stopIndexing(err)
			}
		case <-s.commitCtx.Done():
			s.lastCommit()
			return
		}
	}
}

func (s *Set) closeBatch() {
	if s.batch == nil {
		return
	}
	if err := s.batch.Close(); err != nil {
		s.event(Warn, nil, "an index batch was not released", err)
	}
	s.batch = nil
}

// observe takes newer watermarks of the log.
func (s *Set) observe(wm segment.Watermarks) {
	if wm.Generation > s.generation {
		wm = s.repair(wm)
	}
	if wm.Generation == s.generation { // older ones are from before a repair
		s.step(wm)
	}
}

// sawAsync tells the commit loop that from now on it matters what is written and not synced yet. Until then it isn't
// woken for that.
func (s *Set) sawAsync() {
	if !s.async.Swap(true) {
		select {
		case s.asyncNow <- struct{}{}:
		default:
		}
	}
}

func (s *Set) step(wm segment.Watermarks) {
	if s.fatal.Load() != nil {
		return
	}
	s.expose(wm.Written)
	if err := s.commitSynced(wm.Synced); err != nil {
		s.stopIndexing(err)
		return
	}
	s.measure(wm.Written, false)
	s.progress.advance(s.exposedTo, s.committedTo)
}

// take moves what appenders have queued to the loop's own list.
func (s *Set) take() {
	s.appendMu.Lock()
	s.inflight = append(s.inflight, s.queue...)
	clear(s.queue)
	if s.queue = s.queue[:0]; cap(s.queue) > 2*maxIndexBatch {
		s.queue = nil
	}
	s.appendMu.Unlock()
}

// expose raises the durable offset of async topics up to the written position.
func (s *Set) expose(written uint64) {
	s.take()
	for ; s.exposedN < len(s.inflight); s.exposedN++ {
		q := &s.inflight[s.exposedN]
		if q.end > written {
			break
		}
		if q.onWrite && q.kind == frame.Data {
			q.p.expose(&q.entry)
		}
	}
	s.exposedTo = max(s.exposedTo, written)
}

// maxIndexBatch bounds one index batch, so that a burst doesn't hold memory or latency hostage.
const maxIndexBatch = 8192

func (s *Set) commitSynced(synced uint64) error {
	done := 0
	for {
		n := 0
		for done+n < len(s.inflight) && n < maxIndexBatch && s.inflight[done+n].end <= synced {
			n++
		}
		if n == 0 {
			break
		}
		if err := s.commitEntries(s.inflight[done : done+n]); err != nil {
			return err
		}
		done += n
	}
	s.exposedN -= min(done, s.exposedN)
	s.backlog.Add(-int64(done))
	switch rest := s.inflight[done:]; {
	case done == 0:
	case len(rest) > done: // copying them each time would cost more than it saves
		clear(s.inflight[:done])
		s.inflight = rest
	default:
		n := copy(s.inflight, rest)
		clear(s.inflight[n:])
		s.inflight = s.inflight[:n]
	}
	if len(s.inflight) == 0 && cap(s.inflight) > 2*maxIndexBatch {
		s.inflight = nil // a burst is over
	}
	return nil
}

// commitEntries writes one index batch and then makes its entries visible.
func (s *Set) commitEntries(qs []queued) error {
	if s.batch == nil {
		s.batch = s.index.NewBatch()
	}
	b := s.batch
	b.Reset()
	if err := s.fillBatch(b, qs); err != nil {
		return err
	}
	s.committedTo = qs[len(qs)-1].end
	if err := s.finishBatch(b); err != nil {
		return err
	}
	for i := range qs {
		if qs[i].kind == frame.Data {
			qs[i].p.settle(&qs[i])
		}
	}
	return nil
}

// finishBatch adds the dirty metadata and the checkpoint and commits.
func (s *Set) finishBatch(b *index.Batch) error {
	s.addDirty(b)
	b.SetCheckpoint(s.committedTo, s.checkpointExtra(false))
	return s.commitIndex(b)
}

// stallPause is the pause between attempts to write an index whose disk is full.
const stallPause = 100 * time.Millisecond

// commitIndex commits a batch. While the index can't take it (its disk is full), nothing becomes durable and producers
// wait; it goes on by itself when there is space.
func (s *Set) commitIndex(b *index.Batch) error {
	for told := false; ; told = true {
		err := b.Commit()
		if !errors.Is(err, index.ErrStalled) {
			if err != nil {
				return fmt.Errorf("commit index batch: %w", err)
			}
			return nil
		}
		if !told {
			s.event(Error, nil, "the index can't write; acknowledgements wait until it can", err)
		}
		select {
		case <-time.After(stallPause):
		case <-s.commitCtx.Done():
			return err
		}
	}
}

// raisesMax says whether a batch raises the partition's running maximum timestamp. Only the commit loop calls it.
func (p *Partition) raisesMax(ts int64) (bool, error) {
	if !p.maxKnown {
		max, ok, err := p.set.index.RunningMax(p.id)
		if err != nil {
			return false, err
		}
		p.runMax, p.maxKnown = math.MinInt64, true
		if ok {
			p.runMax = max
		}
	}
	if ts <= p.runMax {
		return false, nil
	}
	p.runMax = ts
	return true, nil
}

// expose makes a written batch of an async topic visible.
func (p *Partition) expose(e *index.Entry) {
	p.mu.Lock()
	if e.Last >= p.durable {
		p.raise(e)
	}
	p.mu.Unlock()
}

// keptTail is how many settled entries stay in memory for consumers that read the newest records.
const keptTail = 16

// settle notes that the index has the entry, and makes it visible if it isn't yet.
func (p *Partition) settle(q *queued) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.localBytes += int64(q.entry.Length)
	p.stored = q.entry.Last + 1
	for p.settled < len(p.tail) && p.tail[p.settled].Last < p.stored {
		p.settled++
	}
	if p.settled > 2*keptTail {
		p.cutTail(p.settled - keptTail)
	}
	switch {
	case p.object:
		p.queueUpload(&q.entry, q.entry.Last < p.durable) // seen before: it was async when it was written
	case q.entry.Last >= p.durable:
		p.raise(&q.entry)
	}
}

// cutTail drops the first entries of the tail. A long one, from a burst, is not copied each time, and its memory goes
// when it has become short. The caller holds p.mu.
func (p *Partition) cutTail(n int) {
	left := p.tail[n:]
	switch {
	case len(left) > 8*keptTail:
		clear(p.tail[:n])
		p.tail, p.longTail = left, true
	case p.longTail || cap(p.tail) > 16*keptTail:
		p.tail, p.longTail = append(make([]index.Entry, 0, 4*keptTail), left...), false
	default:
		k := copy(p.tail, left)
		clear(p.tail[k:])
		p.tail = p.tail[:k]
	}
	p.settled -= n
}

// raise moves the durable offset behind the entry and wakes the waiters. The caller holds p.mu.
func (p *Partition) raise(e *index.Entry) {
	p.durable = e.Last + 1
	if p.pending == 0 {
		p.pendingSince = e.AppendTime
		p.set.notePending(p)
	}
	p.pending += int64(e.Length)
	if p.fullObject() {
		p.set.kickRoll(p)
	}
	p.wake()
}

// rollBytes is the size at which the partition is rolled.
func (p *Partition) rollBytes() int64 {
	return max(p.cfg.Load().SegmentBytes, 1)
}
