package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/index"
)

// Durability object: a batch goes into the local log and index as with sync, and then into the broker's WAL stream; it is
// durable when both have it. What consumers see, and producers were told, is in the bucket therefore, and another broker
// may take the partition over as soon as the owner's lease has ended. The owner says so in etcd (Assignment.Safe).
//
//	tiered, uploaded <= stored <= next      durable = min(stored, max(tiered, uploaded)), never going back
//
// A topic that becomes object stays what it was, for the controller, until all earlier data is in the bucket (safeAt). One
// that ceases to be object takes the promise back in etcd before it acknowledges anything on less.

// wantsObject says whether the partition is to be object.
func (p *Partition) wantsObject() bool {
	return p.set.stream != nil && p.cfg.Load().Durability == cluster.Object
}

// covered is the first offset that isn't known to be in the bucket. The caller holds p.mu.
func (p *Partition) covered() int64 { return max(p.tiered, p.uploaded) }

// safety is what the owner says in etcd about the partition.
func (p *Partition) safety() *bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	safe := p.isSafe()
	return &safe
}

// isSafe says whether all that was acknowledged or seen is in the bucket, the start offset included. The caller holds p.mu.
func (p *Partition) isSafe() bool {
	return p.object && !p.declassing && p.covered() >= p.safeAt && p.start <= p.headStart
}

// followClass has a change of the topic's durability followed, and the controller told when the partition has become
// safe. d is the topic's durability, which the partition may not have yet. The caller holds p.mu.
func (s *Set) followClass(pl *plan, p *Partition, a cluster.Assignment, d cluster.Durability) {
	if p.state != Writing || s.closing.Load() {
		return
	}
	if want := s.stream != nil && d == cluster.Object; want != p.object || p.isSafe() != a.Safe {
		pl.reclassing = append(pl.reclassing, start{p, a})
	}
}

// reclass takes a partition that is Writing to the durability of its topic, to or from object. What it begins,
// reclassed completes when etcd knows.
func (p *Partition) reclass(ctx context.Context) error {
	want := p.wantsObject()
	p.mu.Lock()
	object, epoch := p.object, p.epoch
	p.declassing = object && !want
	declassing := p.declassing
	p.mu.Unlock()
	if declassing {
		// The next run must not take for unacknowledged what is only here.
		p.set.markDirty(p)
		return p.set.secure()
	}
	if object || !want {
		return nil
	}
	if err := p.lockSwap(ctx); err != nil {
		return err
	}
	defer p.unlockSwap()
	if err := p.joinStream(ctx); err != nil {
		return err
	}
	if err := p.lighten(ctx); err != nil {
		return err
	}
	left, err := p.lockBacklog(p.notInStream, func() int64 { return p.stored })
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	if p.state != Writing || p.epoch != epoch {
		return errLeft
	}
	// What was appended before may be acknowledged on less.
	p.becomeObject(left, p.durable, p.next)
	return nil
}

// maxClassBacklog is how many bytes a partition that becomes object may put into the stream at once: other partitions wait
// behind them, and are refused when too much waits.
const maxClassBacklog = 16 << 20

// lighten rolls what is too much for the stream, so that it needn't go there. The caller holds swap.
func (p *Partition) lighten(ctx context.Context) error {
	p.mu.Lock()
	pending, to := p.pending, min(p.stored, p.durable)
	p.mu.Unlock()
	if pending <= maxClassBacklog {
		return nil
	}
	return p.rollTo(ctx, to)
}

// reclassed follows when etcd knows whether the partition is safe.
func (p *Partition) reclassed() {
	p.set.markDirty(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.declassing {
		return
	}
	p.declassing, p.object = false, false
	p.raiseTo(p.stored)
}

// notInStream is the first offset that must go into the stream: what was uploaded in this run is in the stream that the head
// names. The caller holds p.mu.
func (p *Partition) notInStream() int64 { return max(p.covered(), p.sent) }

// becomeObject has everything that is not in the bucket queued for the stream, which is left; durable is what may be seen
// already, and the partition is safe once the bucket has what lies below safeAt. The caller holds p.mu.
func (p *Partition) becomeObject(left []index.Entry, durable, safeAt int64) {
	p.object, p.queuedTo, p.safeAt, p.durable = true, p.notInStream(), safeAt, durable
	p.queueAll(left)
}

// queueAll queues entries that are pending already, by the rules of other classes or since the start. The caller holds p.mu.
func (p *Partition) queueAll(left []index.Entry) {
	for i := range left {
		p.queueUpload(&left[i], true)
	}
}

// backlogTries bounds how often a backlog that grows is read again without the lock.
const backlogTries = 8

// lockBacklog takes p.mu and returns the stored entries from one offset on that end at or below another. The index is read
// without the lock, and again for what came meanwhile, until the tail has the rest. from and to are called under the lock, which is not
// held after an error.
func (p *Partition) lockBacklog(from, to func() int64) ([]index.Entry, error) {
	var left []index.Entry
	at := int64(-1)
	for try := 0; ; try++ {
		p.mu.Lock()
		if at < 0 {
			at = from()
		}
		end := to()
		if at >= end {
			return left, nil
		}
		if len(p.tail) > 0 && p.tail[0].Base <= at {
			for i := range p.tail {
				if e := &p.tail[i]; e.Last >= at && e.Last < end {
					left = append(left, *e)
				}
			}
			return left, nil
		}
		last := try == backlogTries // it grows faster than it is read: the little that is missing is read under the lock
		if !last {
			p.mu.Unlock()
		}
		more, err := p.scanIndex(at, end)
		left, at = append(left, more...), end
		switch {
		case err != nil && last:
			p.mu.Unlock()
			return nil, err
		case err != nil:
			return nil, err
		case last:
			return left, nil
		}
	}
}

// scanIndex returns the entries of the index from the one that holds an offset on that end at or below another.
func (p *Partition) scanIndex(from, to int64) ([]index.Entry, error) {
	var out []index.Entry
	err := p.set.index.Scan(p.id, from, func(e index.Entry) bool {
		if e.Last >= to {
			return false
		}
		out = append(out, e)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStorage, err)
	}
	return out, nil
}

// queueUpload gives a stored entry to the stream; counted says whether it is part of pending already. The caller holds p.mu.
func (p *Partition) queueUpload(e *index.Entry, counted bool) {
	if e.Last < p.queuedTo {
		return
	}
	p.queuedTo = e.Last + 1
	p.set.stream.push(p, e, counted)
}

// uploadedTo notes that the stream has everything below an offset.
func (p *Partition) uploadedTo(to int64) {
	p.mu.Lock()
	p.uploaded = max(p.uploaded, to)
	safe := p.isSafe()
	p.raiseCovered()
	p.mu.Unlock()
	if safe {
		p.set.tellSafe(p)
	}
}

// raiseCovered lets be seen what the bucket has. The caller holds p.mu.
func (p *Partition) raiseCovered() {
	if p.object {
		p.raiseTo(min(p.stored, p.covered()))
	}
}

// raiseTo raises the durable offset. The caller holds p.mu.
func (p *Partition) raiseTo(to int64) {
	if to <= p.durable {
		return
	}
	p.durable = to
	p.set.notePending(p)
	if p.fullObject() {
		p.set.kickRoll(p)
	}
	p.wake()
}

// tellSafe has the reconcile loop look at a partition that may have become safe, if the cluster doesn't know.
func (s *Set) tellSafe(p *Partition) {
	if img := s.image.Load(); img != nil {
		if a, ok := img.Assignment(p.id); ok && !a.Safe && a.Owner == s.o.Broker {
			s.kickReconcile()
		}
	}
}

// awaitDurable returns when consumers may see the offset: for batches that wait for the bucket.
func (p *Partition) awaitDurable(ctx context.Context, offset int64, deadline time.Time) error {
	done := func() (bool, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.durable > offset:
			return true, nil
		case !p.serving():
			return true, fmt.Errorf("%w: %s-%d is %s", ErrNotOwner, p.Topic(), p.id.Partition, p.state)
		}
		return false, nil
	}
	if ok, err := done(); ok {
		return err
	}
	w := NewWaiter()
	p.Watch(w, 0, offset)
	defer p.Unwatch(w)
	var late <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		late = t.C
	}
	for {
		if ok, err := done(); ok {
			return err
		}
		select {
		case <-w.C():
			w.Take(nil)
		case <-late:
			return context.DeadlineExceeded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
