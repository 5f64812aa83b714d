package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
)

// Ack is the promise of an append: its offsets are final unless Written or Durable fails.
type Ack struct {
	BaseOffset int64
	LastOffset int64
	AppendTime int64 // LogAppendTime in ms, -1 when the topic keeps the producer's timestamps
	LogStart   int64
	Duplicate  bool          // the batch was stored before, at these offsets
	Throttle   time.Duration // how long the producer should hold back

	set      *Set
	pos, end uint64
	gen      uint64
	onWrite  bool       // durable as soon as written (durability async)
	object   *Partition // durable when the bucket has it, too; nil otherwise
	inBucket bool       // what is durable is in the bucket, under this owner\'s name
}

// Append validates one record batch as a producer sent it, assigns its offsets, stamps it in place and hands it to
// the commit log. b must stay unchanged until Ack.Written returns. Errors: those of this package and of batch; after
// an error nothing has changed.
func (p *Partition) Append(b []byte, o AppendOptions) (Ack, error) {
	cfg := p.cfg.Load()
	h, err := batch.Validate(b, limits(cfg, o.Now))
	if err != nil {
		return Ack{}, err
	}
	if h.HasProducer() {
		if err := p.loadProducers(); err != nil {
			return Ack{}, err
		}
	}
	ack := Ack{AppendTime: -1, set: p.set, onWrite: cfg.Durability == cluster.Async}
	if cfg.LogAppendTime {
		batch.StampAppendTime(b, o.Now)
		h.MaxTimestamp, ack.AppendTime = o.Now, o.Now
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.admitWrite(o.Epoch); err != nil {
		return Ack{}, err
	}
	if o.Exact && o.Base != p.next {
		return Ack{}, fmt.Errorf("%w: %s-%d ends at %d, not at %d", ErrMoved, p.Topic(), p.id.Partition, p.next, o.Base)
	}
	ack.LogStart = p.start
	if p.object {
		ack.onWrite, ack.inBucket = false, true
		if err := p.set.stream.admit(); err != nil {
			return Ack{}, err
		}
	}
	if h.HasProducer() {
		v, first, err := p.live.check(&h)
		if err != nil {
			return Ack{}, err
		}
		if v == duplicate {
			p.answerDuplicate(&ack, &first)
			return ack, nil
		}
	}
	if err := p.set.admitBytes(len(b)); err != nil {
		return Ack{}, err
	}
	if err := p.appendLocked(b, &h, o.Now, &ack); err != nil {
		return Ack{}, err
	}
	ack.Throttle = p.set.throttle()
	return ack, nil
}

// answerDuplicate makes the ack of a batch that was appended before. The original may not be written or durable yet:
// then the duplicate waits for it. The caller holds p.mu.
func (p *Partition) answerDuplicate(ack *Ack, first *producedBatch) {
	ack.Duplicate, ack.BaseOffset, ack.LastOffset = true, first.base, first.last
	safe := p.stored
	if ack.onWrite {
		safe = p.durable
	}
	if p.object && first.last >= p.durable {
		ack.object = p
	}
	if first.last >= safe && first.end > 0 {
		ack.pos, ack.end, ack.gen = first.end-1, first.end, first.gen
	}
}

func limits(cfg *cluster.TopicConfig, now int64) batch.Limits {
	return batch.Limits{
		MaxBytes: int(cfg.MaxMessageBytes), NeedKeys: cfg.CleanupCompact, Now: now, CreateTime: !cfg.LogAppendTime,
		MaxBefore: millis(cfg.TimestampBeforeMaxMs), MaxAfter: millis(cfg.TimestampAfterMaxMs),
	}
}

// millis converts Kafka's milliseconds to a duration; what doesn't fit means no limit.
func millis(ms int64) time.Duration {
	if ms < 0 || ms > int64(1<<63-1)/int64(time.Millisecond) {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

func (p *Partition) admitWrite(epoch int32) error {
	if err := p.admit(epoch); err != nil {
		return err
	}
	if p.state != Writing {
		return fmt.Errorf("%w: %s-%d is %s", ErrNotOwner, p.Topic(), p.id.Partition, p.state)
	}
	return nil
}

// appendLocked assigns offsets and enqueues. The caller holds p.mu, so offset order is log order.
func (p *Partition) appendLocked(b []byte, h *batch.Header, now int64, ack *Ack) error {
	base, count := p.next, int64(h.RecordCount)
	if err := p.checkCeiling(base + count); err != nil {
		return err
	}
	batch.Stamp(b, base, p.epoch)
	newEpoch := len(p.epochs) == 0 || p.epochs[len(p.epochs)-1].Epoch != p.epoch
	mark := newEpoch || p.announce
	q := queued{
		p: p, kind: frame.Data, onWrite: ack.onWrite,
		entry: index.Entry{Base: base, Last: base + count - 1, Length: uint32(len(b)), MaxTimestamp: h.MaxTimestamp,
			Epoch: p.epoch, Records: h.RecordCount, AppendTime: now},
	}
	if h.HasProducer() {
		q.hasProducer = true
		q.producer = produced{id: h.ProducerID, epoch: h.ProducerEpoch, seen: now, batch: producedBatch{
			firstSeq: h.FirstSequence, lastSeq: h.LastSequence(), base: base, last: base + count - 1}}
	}
	if err := p.set.enqueue(&q, b, mark); err != nil {
		return storageError(err)
	}
	p.announce, p.void = false, false
	if newEpoch {
		p.epochs = append(p.epochs, p.epochStart(base))
	}
	p.next = base + count
	p.tail = append(p.tail, q.entry)
	if q.hasProducer {
		p.live.apply(q.producer)
	}
	ack.BaseOffset, ack.LastOffset = base, base+count-1
	ack.pos, ack.end, ack.gen = q.entry.Position, q.end, q.gen
	if p.object {
		ack.object = p
	}
	return nil
}

// checkCeiling refuses offsets at or above the head's ceiling, and asks for a higher one when half of the room is
// used. The caller holds p.mu.
func (p *Partition) checkCeiling(end int64) error {
	room := p.ceiling - p.tiered
	if end-p.tiered > room/2 {
		p.wantCeiling = max(p.wantCeiling, end+max(room, firstCeiling))
		p.set.kickRoll(p)
	}
	if end > p.ceiling {
		return fmt.Errorf("%w: offset %d would pass the ceiling %d of %s-%d, which the bucket has not raised yet", ErrStorage, end, p.ceiling, p.Topic(), p.id.Partition)
	}
	return nil
}

func storageError(err error) error {
	switch {
	case errors.Is(err, segment.ErrClosed):
		return fmt.Errorf("%w: %w", ErrClosing, err)
	default:
		return fmt.Errorf("%w: %w", ErrStorage, err)
	}
}

// RestsOnLease says whether the batch, once it is durable, is part of the partition only if this broker's lease still
// lived: it is not in the bucket under this owner's name. A batch that is answered on such a promise must be held against
// the lease afterwards.
func (a *Ack) RestsOnLease() bool { return !a.inBucket }

// Written returns when the batch is in the page cache; the caller may become the one who writes for all that wait.
// It doesn't depend on anybody else's progress but the disk's. After it the appended bytes may be reused.
func (a *Ack) Written() error {
	if a.set == nil || a.end == 0 {
		return nil
	}
	if err := a.set.log.Written(a.pos, a.gen); err != nil {
		return storageError(err)
	}
	return nil
}

// Durable returns when the batch is safe at the topic's durability and visible to consumers; a duplicate waits for
// its original. On ErrStorage the batch is not stored and its offsets will be given to another one.
func (a *Ack) Durable(ctx context.Context) error {
	return a.DurableBy(ctx, time.Time{})
}

// DurableBy is Durable with a deadline, which costs less than a context that has it: context.DeadlineExceeded when it
// passes. The zero time is none.
func (a *Ack) DurableBy(ctx context.Context, deadline time.Time) error {
	if a.set != nil && a.end != 0 {
		if err := a.set.progress.wait(ctx, a, deadline); err != nil {
			return err
		}
	}
	if a.object != nil {
		return a.object.awaitDurable(ctx, a.LastOffset, deadline)
	}
	return nil
}
