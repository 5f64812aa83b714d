package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/partition"
)

const (
	partBytes = 512 << 10 // plain bytes of a snapshot's batch
	// growth is how many times larger than its snapshot the log behind it becomes before the next one.
	growth = 4
	// trimTimeout is the deadline of one attempt to remove what a snapshot replaces.
	trimTimeout = 2 * time.Minute
)

var (
	errEnded = errors.New("the run has ended")
	errFull  = errors.New("the log takes nothing now")
)

// snapshotIfDue starts a snapshot when the log has grown enough. The caller holds mu.
func (r *run[M]) snapshotIfDue() {
	limit := max(r.s.j.o.SnapshotBytes, growth*r.lastSnap)
	if r.snapping || r.since < limit || len(r.held) > 0 || time.Now().Before(r.snapAfter) {
		return
	}
	r.snapping = true
	r.snapshots.Go(r.snapshot)
}

// snapshot writes the machine's state into the log and removes what it replaces.
func (r *run[M]) snapshot() {
	w := snapshotWriter[M]{r: r, began: time.Now()}
	err := w.write()
	if err == nil {
		r.event(Event{Kind: Snapshot, Records: w.records, Bytes: w.bytes, Took: time.Since(w.began)})
		err = r.trim(w.start)
	}
	if err != nil && r.ctx.Err() == nil {
		r.event(Event{Kind: Failed, Err: fmt.Errorf("snapshot: %w", err)})
	}
	r.s.mu.Lock()
	r.snapping = false
	if err != nil {
		r.snapAfter = time.Now().Add(r.s.j.o.RetryMax)
	}
	r.s.mu.Unlock()
	r.wakeUp()
}

func (r *run[M]) event(e Event) {
	e.Shard, e.Epoch = r.s.index, r.epoch
	r.s.j.o.OnEvent(e)
}

// snapshotWriter appends one snapshot.
type snapshotWriter[M Machine] struct {
	r       *run[M]
	began   time.Time
	id      int64
	parts   []*batch.Builder
	start   int64 // offset of the begin marker
	last    partition.Ack
	records int64
	bytes   int64
}

func (w *snapshotWriter[M]) write() error {
	r := w.r
	select {
	case r.s.j.snapshots <- struct{}{}:
	case <-r.ctx.Done():
		return errEnded
	}
	defer func() { <-r.s.j.snapshots }()
	if err := w.capture(); err != nil {
		return err
	}
	grown, err := w.append()
	r.s.mu.Lock()
	r.inSnap = false
	held := r.appendHeld()
	if err == nil {
		r.since, r.lastSnap = r.since-grown, w.bytes
	}
	r.s.mu.Unlock()
	if held != nil {
		r.written(&held.ack)
	}
	r.wakeUp()
	if err != nil {
		return err
	}
	return r.p.Durable(r.ctx, &w.last)
}

// capture takes the state as bytes. From then on everything else waits behind the snapshot.
func (w *snapshotWriter[M]) capture() error {
	r := w.r
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.dead != nil {
		return errEnded
	}
	if len(r.held) > 0 {
		return errFull
	}
	r.inSnap = true
	w.id = r.s.j.o.Now().UnixMilli()
	r.m.Snapshot(func(rec Record) {
		b := w.part()
		b.Add(w.id, rec.Key, rec.Value, nil)
		w.records++
	})
	return nil
}

// part returns the builder of the part that has room.
func (w *snapshotWriter[M]) part() *batch.Builder {
	if n := len(w.parts); n > 0 && w.parts[n-1].Len() < partBytes {
		return w.parts[n-1]
	}
	b := batch.NewBuilder(batch.Zstd, batch.BuilderOptions{})
	w.parts = append(w.parts, b)
	m := marker{kind: markPart, snapshot: w.id, batch: int32(len(w.parts)), records: w.records}.record()
	b.Add(w.id, m.Key, m.Value, nil)
	return b
}

// append writes the batches, each when the one before it is written. It returns how much of the log the run had
// counted when the snapshot began.
func (w *snapshotWriter[M]) append() (grown int64, err error) {
	grown, err = w.one(w.mark(markBegin, 0))
	if err != nil {
		return 0, err
	}
	w.start = w.last.BaseOffset
	n := int32(len(w.parts))
	for i, b := range w.parts {
		w.parts[i] = nil
		if _, err := w.one(b.Bytes()); err != nil {
			return 0, err
		}
	}
	if _, err = w.one(w.mark(markEnd, n+1)); err != nil {
		return 0, err
	}
	// Everything that was counted since the begin is the snapshot itself.
	return grown + w.bytes, nil
}

func (w *snapshotWriter[M]) mark(kind byte, number int32) []byte {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{})
	m := marker{kind: kind, snapshot: w.id, batch: number, records: w.records}.record()
	b.Add(w.id, m.Key, m.Value, nil)
	return b.Bytes()
}

// one appends a batch and waits until it is written. It returns what the run had counted before.
func (w *snapshotWriter[M]) one(b []byte) (since int64, err error) {
	r := w.r
	e := &entry{batch: b}
	r.s.mu.Lock()
	since = r.since
	ok := r.append(e)
	dead := r.dead
	r.s.mu.Unlock()
	switch {
	case dead != nil:
		return 0, errEnded
	case !ok:
		return 0, errFull
	}
	w.bytes += int64(len(b))
	w.last = e.ack
	return since, r.p.Written(&w.last)
}

// trim removes everything before the snapshot, however long the bucket takes to answer.
func (r *run[M]) trim(start int64) error {
	pause := r.s.j.o.RetryMin
	for {
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.ctx, trimTimeout)
		_, err := r.p.DeleteRecords(ctx, start)
		cancel()
		if err == nil {
			r.event(Event{Kind: Trimmed, Took: time.Since(began)})
			return nil
		}
		if r.ctx.Err() != nil {
			return errEnded
		}
		r.event(Event{Kind: Failed, Err: fmt.Errorf("remove what a snapshot replaces: %w", err)})
		select {
		case <-time.After(pause):
			pause = min(2*pause, r.s.j.o.RetryMax)
		case <-r.ctx.Done():
			return errEnded
		}
	}
}
