package journal

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/partition"
)

// readBytes is how much of the log is read at a time; a single batch may be larger.
const readBytes = 1 << 20

var (
	errNotDurable = errors.New("the partition has records that are not durable yet")
	errNoProgress = errors.New("the partition returned nothing below its end")
)

// load builds a machine from the partition. The run it returns isn't in use yet.
func (s *shard[M]) load(p Partition, epoch int32) (*run[M], error) {
	select {
	case s.j.loads <- struct{}{}:
	case <-s.j.ctx.Done():
		return nil, ErrClosed
	}
	defer func() { <-s.j.loads }()
	began := time.Now()
	r := newRun(s, p, epoch)
	l := replay[M]{r: r, first: true}
	err := l.read()
	if err == nil && !r.owned() {
		err = fmt.Errorf("%w: the partition went elsewhere", ErrNotCoordinator)
	}
	e := Event{Kind: Loaded, Shard: s.index, Epoch: epoch, Records: l.records, Bytes: l.bytes}
	if err != nil {
		r.cancel()
		r.timer.Stop()
		r.retry.Stop()
		r.m.Discard(outcome(err))
		e.Kind, e.Err = Failed, fmt.Errorf("load: %w", err)
		if s.j.ctx.Err() == nil {
			s.j.o.OnEvent(e)
		}
		return nil, err
	}
	if l.damage != nil {
		s.j.o.OnEvent(Event{Kind: Damaged, Shard: s.index, Epoch: epoch, Err: l.damage})
	}
	e.Took = time.Since(began)
	s.j.o.OnEvent(e)
	return r, nil
}

// replay reads a partition into a machine.
type replay[M Machine] struct {
	r       *run[M]
	buf     []byte
	records int64
	bytes   int64
	first   bool // the next batch is the first of the log

	restoring bool  // the log begins with a snapshot whose end hasn't come yet
	snapshot  int64 // its id
	restored  int64 // its records so far
	damage    error
}

func (l *replay[M]) read() error {
	r := l.r
	o := r.p.Offsets()
	if o.Durable != o.End {
		return errNotDurable
	}
	for at := o.Start; at < o.End; {
		next, err := l.fill(at)
		if err != nil {
			return err
		}
		if next <= at {
			return fmt.Errorf("%w: offset %d of [%d, %d)", errNoProgress, at, o.Start, o.End)
		}
		if at == o.Start && o.Start > 0 {
			l.checkStart()
		}
		if err := l.batches(at); err != nil {
			return err
		}
		at = next
	}
	if l.restoring {
		l.damaged("the snapshot that the log begins with has no end")
	}
	r.next = o.End
	return nil
}

// fill copies what a read returns: from the log's mapping, where a page that can't be read is a fault.
func (l *replay[M]) fill(at int64) (next int64, err error) {
	got, err := l.r.p.Read(l.r.ctx, partition.ReadRequest{Offset: at, MaxBytes: readBytes, AtLeastOne: true})
	if err != nil {
		return 0, fmt.Errorf("read offset %d: %w", at, err)
	}
	defer got.Release()
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		switch f := recover().(type) {
		case nil:
		case interface {
			error
			Addr() uintptr
		}:
			err = fmt.Errorf("%w: the log at offset %d: %w", partition.ErrStorage, at, f)
		default:
			panic(f)
		}
	}()
	l.buf = l.buf[:0]
	for _, b := range got.Slices {
		l.buf = append(l.buf, b...)
	}
	return got.Next, nil
}

// checkStart notes a log that doesn't begin with its first record, nor with a snapshot.
func (l *replay[M]) checkStart() {
	begins := false
	if err := batch.Iterate(l.buf, func(rec *batch.Record) bool {
		m, ok := parseMarker(rec.Key, rec.Value)
		begins = ok && m.kind == markBegin
		return false
	}); err != nil || !begins {
		l.damaged("the log begins in the middle, without a snapshot")
	}
}

func (l *replay[M]) damaged(what string) {
	if l.damage == nil {
		l.damage = errors.New(what)
	}
}

// batches applies what fill has read, from the given offset on.
func (l *replay[M]) batches(from int64) error {
	for rest := l.buf; len(rest) > 0; {
		h, one, more, err := batch.Next(rest)
		if err == nil {
			err = batch.CheckCRC(one)
		}
		if err == nil {
			err = l.batch(one, from)
		}
		if err != nil {
			return fmt.Errorf("%w: batch behind offset %d: %w", partition.ErrCorrupt, from, err)
		}
		rest, from = more, h.LastOffset()+1
		l.bytes += int64(len(one))
		l.r.since += int64(len(one))
		l.first = false
	}
	return nil
}

func (l *replay[M]) batch(b []byte, from int64) error {
	skip, lead := false, true
	return batch.Iterate(b, func(rec *batch.Record) bool {
		if rec.Offset < from {
			return true
		}
		if lead {
			lead = false
			if m, ok := parseMarker(rec.Key, rec.Value); ok {
				skip = !l.mark(m)
				return true
			}
			if l.restoring {
				l.restoring = false
				l.damaged("the snapshot that the log begins with is cut off")
			}
		}
		if skip {
			return true
		}
		if l.restoring {
			l.restored++
		}
		l.records++
		l.r.m.Apply(Record{Key: rec.Key, Value: rec.Value})
		return true
	})
}

// mark takes a marker and says whether the records of its batch are to be applied.
func (l *replay[M]) mark(m marker) bool {
	switch {
	case m.kind == markBegin && l.first:
		l.restoring, l.snapshot = true, m.snapshot
		return true
	case !l.restoring || m.snapshot != l.snapshot:
		return false
	case m.kind == markEnd:
		l.restoring = false
		if m.records != l.restored {
			l.damaged(fmt.Sprintf("the snapshot that the log begins with has %d of %d records", l.restored, m.records))
		}
		// The log begins with this snapshot: what counts against it is what follows.
		l.r.lastSnap = l.bytes
		l.r.since = 0
	}
	return true
}
