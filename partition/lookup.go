package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/tier"
)

var notFound = TimeResult{Offset: -1, Timestamp: -1, Epoch: -1}

// OffsetForTime finds the first record, in offset order, with a timestamp at or after ts (ms) between the start and
// the durable offset, wherever it is stored.
func (p *Partition) OffsetForTime(ctx context.Context, ts int64) (TimeResult, error) {
	for try := 0; ; try++ {
		r, err := p.offsetForTime(ctx, ts)
		if !errors.Is(err, errLookAgain) || try == maxReadTries {
			return r, err
		}
	}
}

// errLookAgain: the place of the data has changed during a lookup (the head moved, or reclaim was faster).
var errLookAgain = fmt.Errorf("%w: the data has moved meanwhile", ErrUnavailable)

func (p *Partition) offsetForTime(ctx context.Context, ts int64) (TimeResult, error) {
	o, err := p.readable()
	if err != nil {
		return notFound, err
	}
	from := o.Start
	if from < o.LocalStart && from < o.Tiered {
		h, err := p.headFrom(ctx, from)
		if err != nil {
			return notFound, err
		}
		if h != nil {
			offset, t, epoch, ok, err := p.set.o.Archive.FindTime(ctx, h, ts, from)
			if err != nil {
				return notFound, p.archiveError(ctx, h, err)
			}
			if ok {
				return TimeResult{offset, t, epoch, true}, nil
			}
			from = max(from, h.End)
		}
	}
	r, err := p.localTime(ts, from, o.Durable)
	return r, p.stillLocal(from, err)
}

// stillLocal ends a search of the local log from an offset on. Reclaim may have been at it: it raises the first local
// offset before it takes anything away.
func (p *Partition) stillLocal(from int64, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.local > from {
		return errLookAgain
	}
	return err
}

// headFrom returns the head for a lookup from the start offset on. Where the head says another start, the later one
// is true.
func (p *Partition) headFrom(ctx context.Context, start int64) (*tier.Head, error) {
	h, err := p.head(ctx)
	switch {
	case err != nil || h == nil || h.Start == start:
		return h, err
	case h.Start > start:
		if err := p.raiseStart(ctx); err != nil {
			return nil, err
		}
		return nil, errLookAgain
	case start <= h.End: // records were deleted, and the head doesn't say so yet
		h = h.Clone()
		h.Start = start
	}
	return h, nil
}

func (p *Partition) readable() (Offsets, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offsets(), p.admit(-1)
}

func (p *Partition) archiveError(ctx context.Context, h *tier.Head, err error) error {
	if !errors.Is(err, tier.ErrGone) {
		return bucketError(err)
	}
	if err := p.reloadHead(ctx, h); err != nil {
		return err
	}
	return errLookAgain
}

// localTime searches the local log in [from, end).
func (p *Partition) localTime(ts, from, end int64) (TimeResult, error) {
	for from < end {
		e, ok, err := p.localCandidate(ts, from)
		if err != nil {
			return notFound, err
		}
		if !ok || e.Base >= end {
			return notFound, nil
		}
		var r TimeResult
		err = p.withBatch(&e, func(b []byte) {
			offset, at, ok, err := batch.FirstAtOrAfter(b, ts, from)
			if err == nil && ok {
				r = TimeResult{Offset: offset, Timestamp: at, Found: true}
			}
		})
		if err != nil {
			return notFound, err
		}
		if r.Found {
			r.Epoch = e.Epoch
			return r, nil
		}
		from = e.Last + 1 // the batch reaches ts only in records that are below from
	}
	return notFound, nil
}

// localCandidate returns the first entry at or behind from whose maximum timestamp reaches ts: the index knows the
// older ones, the memory tail the newest. The tail is looked at first: what moves from there into the index meanwhile is
// found there.
func (p *Partition) localCandidate(ts, from int64) (index.Entry, bool, error) {
	newest, inTail := p.tailCandidate(ts, from)
	e, ok, err := p.set.index.FindTime(p.id, ts, from)
	if err != nil {
		return e, false, fmt.Errorf("%w: %w", ErrStorage, err)
	}
	if inTail && (!ok || newest.Base < e.Base) {
		return newest, true, nil
	}
	return e, ok, nil
}

func (p *Partition) tailCandidate(ts, from int64) (index.Entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.tail {
		if t := &p.tail[i]; t.Last >= from && t.MaxTimestamp >= ts {
			return *t, true
		}
	}
	return index.Entry{}, false
}

// withBatch reads one local batch into memory of its own and hands it to fn. Its checksum is right, so what fn
// can't decode is what the producer sent: lookups pass over such a batch, as they do in the archive, or
// one of them would make every lookup fail for as long as it is kept.
func (p *Partition) withBatch(e *index.Entry, fn func(b []byte)) error {
	r := logReader{log: p.set.log}
	defer r.close()
	var s rollSource
	b, err := s.read(&r, e, int(e.Length))
	if errors.Is(err, errFileGone) {
		return errLookAgain
	}
	if err != nil {
		return err
	}
	fn(b)
	return nil
}

// MaxTimestamp finds the first record that carries the largest timestamp of the partition (ListOffsets -3, KIP-734).
func (p *Partition) MaxTimestamp(ctx context.Context) (TimeResult, error) {
	for try := 0; ; try++ {
		r, err := p.maxTimestamp(ctx)
		if !errors.Is(err, errLookAgain) || try == maxReadTries {
			return r, err
		}
	}
}

func (p *Partition) maxTimestamp(ctx context.Context) (TimeResult, error) {
	o, err := p.readable()
	if err != nil || o.Start >= o.Durable {
		return notFound, err
	}
	best, from := notFound, o.Start
	if from < o.LocalStart && from < o.Tiered {
		h, err := p.headFrom(ctx, from)
		if err != nil {
			return notFound, err
		}
		if h != nil && from < h.End {
			offset, ts, epoch, ok, err := p.set.o.Archive.MaxTimestamp(ctx, h)
			if err != nil {
				return notFound, p.archiveError(ctx, h, err)
			}
			if ok {
				best = TimeResult{offset, ts, epoch, true}
			}
			from = max(from, h.End)
		}
	}
	best, err = p.localMax(best, from, o.Durable)
	return best, p.stillLocal(from, err)
}

// localMax improves best with the local records in [from, end).
func (p *Partition) localMax(best TimeResult, from, end int64) (TimeResult, error) {
	var failed error
	err := p.scanLocal(from, end, func(e *index.Entry) bool {
		if best.Found && e.MaxTimestamp <= best.Timestamp {
			return true
		}
		failed = p.withBatch(e, func(b []byte) { maxIn(b, e, from, &best) })
		return failed == nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return notFound, err
	}
	return best, nil
}

// maxIn improves best with the records of a batch; one that can't be decoded to its end counts for nothing.
func maxIn(b []byte, e *index.Entry, from int64, best *TimeResult) {
	better := *best
	err := batch.Iterate(b, func(r *batch.Record) bool {
		if r.Offset >= from && (!better.Found || r.Timestamp > better.Timestamp) {
			better = TimeResult{r.Offset, r.Timestamp, e.Epoch, true}
		}
		return true
	})
	if err == nil {
		*best = better
	}
}
