package partition

import (
	"context"
	"errors"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/tier"
)

// maintained is what the maintenance loop remembers of a partition between its rounds.
type maintained struct {
	version int64 // head version that retention and merge have last looked at
	checked int64 // when, ms
	sweptAt int64 // ms
	dirty   bool  // the head has dropped objects that wait for the sweep
}

// maintainLoop runs retention, merge, sweep and producer expiry, one partition after the other: none of it is urgent
// and none of it may disturb.
func (s *Set) maintainLoop() {
	for _, p := range s.All() {
		if err := p.countLocal(); err != nil && s.ctx.Err() == nil {
			s.event(Warn, p, "the size of the local data is not known", err)
		}
	}
	t := time.NewTicker(s.o.MaintainInterval)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		for _, p := range s.All() {
			if s.ctx.Err() != nil {
				return
			}
			ctx, cancel := context.WithTimeout(s.ctx, s.o.BucketCallTimeout)
			err := p.Maintain(ctx, s.o.Now())
			cancel()
			if err != nil && s.ctx.Err() == nil && !errors.Is(err, ErrNotOwner) {
				s.event(Warn, p, "maintenance of the archive failed; it is tried again", err)
			}
		}
		s.forgetSeals(s.o.Now())
		s.sweepOwnStream()
		s.sweepStreams(s.ctx, s.image.Load(), s.o.Now())
		if err := s.sweepDeleted(s.ctx, s.image.Load(), s.o.Now()); err != nil && s.ctx.Err() == nil {
			s.event(Warn, nil, "the objects of a deleted topic could not be removed yet", err)
		}
	}
}

// countLocal adds what the log held before this run to the local size. It is too slow for the start of a broker with
// a large log, and nothing but reports and local.retention.bytes waits for it.
func (p *Partition) countLocal() error {
	var sum int64
	err := p.set.index.Scan(p.id, 0, func(e index.Entry) bool {
		if e.Base >= p.reopenedAt {
			return false
		}
		sum += int64(e.Length)
		return p.set.ctx.Err() == nil
	})
	p.mu.Lock()
	p.localBytes += sum
	p.mu.Unlock()
	return err
}

// recheckEvery is how often retention by time looks at a head that hasn't changed.
const recheckEvery = 5 * time.Minute

// Maintain applies retention, merges small objects, sweeps dead ones and forgets idle producers, as far as it is due
// at now (ms).
func (p *Partition) Maintain(ctx context.Context, now int64) error {
	if err := p.expireProducers(now); err != nil {
		return err
	}
	p.mu.Lock()
	version, serving := p.headVersion, p.state == Writing && p.move.since.IsZero() // a move doesn't wait for a merge
	p.mu.Unlock()
	m := &p.maintained
	interval := min(recheckEvery, p.set.o.MaintainInterval*5).Milliseconds()
	changed := version != m.version || passed(m.checked, now, interval)
	sweep := m.dirty && passed(m.sweptAt, now, p.set.o.SweepDelay.Milliseconds()) || passed(m.sweptAt, now, p.set.o.SweepInterval.Milliseconds())
	if !serving || version == 0 || !changed && !sweep {
		return nil
	}
	if err := p.lockSwap(ctx); err != nil {
		return err
	}
	defer p.unlockSwap()
	if changed {
		if err := p.retainAndMerge(ctx, now); err != nil {
			return err
		}
		m.checked = now
	}
	h, err := p.head(ctx)
	if err != nil || h == nil {
		return err
	}
	m.version, m.dirty = h.Version, m.dirty || len(h.Dropped) > 0
	if m.sweptAt == 0 {
		m.sweptAt = now // the first full sweep comes an interval after the start
		return nil
	}
	if !sweep {
		return nil
	}
	return p.sweep(ctx, h, now)
}

// passed says whether so many ms lie between two times, or the clock was set back meanwhile: then nobody knows, and
// doing it now harms nothing, but waiting for the clock to come back might take years.
func passed(since, now, ms int64) bool { return now < since || now-since >= ms }

func (p *Partition) retainAndMerge(ctx context.Context, now int64) error {
	h, err := p.head(ctx)
	if err != nil || h == nil {
		return err
	}
	if h, err = p.alignStart(ctx, h, now); err != nil {
		return err
	}
	if err := p.settlePending(); err != nil {
		return err
	}
	cfg := p.cfg.Load()
	if policy, ok := p.retention(cfg, now); ok {
		if due, err := p.set.o.Archive.RetentionDue(ctx, h, policy); err != nil || due {
			if err != nil {
				return bucketError(err)
			}
			if h, err = p.claimed(ctx); err != nil {
				return err
			}
			nh, changed, err := p.set.o.Archive.Retain(ctx, p.id, h, p.owner(), policy)
			if err != nil || changed {
				if err := p.swapped(nh, err); err != nil {
					return err
				}
			}
		}
	}
	return p.merge(ctx, cfg, now)
}

// alignStart makes start offset and head agree after a deletion that was cut short: what is written first wins.
func (p *Partition) alignStart(ctx context.Context, h *tier.Head, now int64) (*tier.Head, error) {
	start := p.Offsets().Start
	if start == h.Start {
		return h, nil
	}
	if start < h.Start {
		return h, p.raiseStart(ctx)
	}
	if err := p.deleteInHead(ctx, start, now); err != nil {
		return h, err
	}
	return p.head(ctx)
}

// retention is what retention.ms and retention.bytes ask of the archive; the bytes that aren't rolled yet count.
func (p *Partition) retention(cfg *cluster.TopicConfig, now int64) (tier.Retention, bool) {
	if !cfg.CleanupDelete || cfg.RetentionMs < 0 && cfg.RetentionBytes < 0 {
		return tier.Retention{}, false
	}
	p.mu.Lock()
	pending := p.pending
	p.mu.Unlock()
	return tier.Retention{Ms: cfg.RetentionMs, Bytes: cfg.RetentionBytes, LocalBytes: pending, Now: now}, true
}

func (p *Partition) merge(ctx context.Context, cfg *cluster.TopicConfig, now int64) error {
	h, err := p.head(ctx)
	if err != nil || h == nil {
		return err
	}
	o := tier.MergeOptions{TargetBytes: cfg.SegmentBytes, Now: now}
	if !p.set.o.Archive.MergeDue(h, o) {
		return nil // no claim either: an idle broker makes no puts
	}
	if h, err = p.claimed(ctx); err != nil {
		return err
	}
	nh, changed, err := p.set.o.Archive.Merge(ctx, p.id, h, p.owner(), o)
	if err != nil || changed {
		return p.swapped(nh, err)
	}
	return nil
}

// sweep deletes what the head has dropped long enough ago, and orphans of earlier epochs.
func (p *Partition) sweep(ctx context.Context, h *tier.Head, now int64) error {
	if len(h.Dropped) > 0 {
		var err error
		if h, err = p.claimed(ctx); err != nil {
			return err
		}
	}
	nh, report, err := p.set.o.Archive.SweepPartition(ctx, p.id, h, now, p.set.o.SweepDelay)
	if err != nil {
		return bucketError(err)
	}
	if nh != nil {
		p.install(nh)
		h = nh
	}
	m := &p.maintained
	m.sweptAt, m.dirty = now, len(h.Dropped) > 0
	for _, key := range report.Unknown {
		p.set.event(Warn, p, "an object in the bucket belongs to nothing that is known; it is kept: "+key, nil)
	}
	return nil
}

// expireProducers forgets the producers that have been idle for longer than ProducerExpiry.
func (p *Partition) expireProducers(now int64) error {
	cut := now - p.set.o.ProducerExpiry.Milliseconds()
	var idle []int64
	p.mu.Lock()
	for pid, s := range p.live {
		if s.seen < cut {
			idle = append(idle, pid)
		}
	}
	p.mu.Unlock()
	if len(idle) == 0 {
		return nil
	}
	return p.set.update(func(b *index.Batch) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, pid := range idle {
			if s := p.live[pid]; s == nil || s.seen >= cut || s.lastOffset() >= p.stored {
				continue // it came back meanwhile, or the clock made a leap while a batch is on its way
			}
			delete(p.live, pid)
			delete(p.committed, pid)
			b.DeleteProducer(p.id, pid)
		}
		return nil
	})
}
