package partition

import (
	"context"
	"slices"

	"github.com/tierbroker/tierbroker/tier"
)

// Bundles bound what the loss of a disk takes from sync and async partitions that are too quiet for data objects of their
// own: what has waited for segment.ms goes into the WAL stream, together with that of all others. Nobody waits for it, and
// nothing is promised; whoever takes the partition over finds it there.
//
// A broker that comes back with its disk adopts none of it: its log has more. The head names the earlier run's stream until
// a roll has passed what was here at the start.

// bundleDue says whether records have waited long enough for the bucket that a bundle should take them. The caller holds p.mu.
func (p *Partition) bundleDue(now int64) bool {
	return p.set.stream != nil && !p.object && p.state == Writing && p.pending > 0 && min(p.stored, p.durable) > p.covered() &&
		now-max(p.pendingSince, p.bundledAt) >= p.cfg.Load().SegmentMs
}

// bundle queues for the stream what the bucket lacks. The caller holds swap.
func (p *Partition) bundle(ctx context.Context, now int64) error {
	if err := p.joinStream(ctx); err != nil {
		return err
	}
	left, err := p.lockBacklog(func() int64 { return max(p.queuedTo, p.covered()) }, func() int64 { return min(p.stored, p.durable) })
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	if p.object || p.state != Writing {
		return nil
	}
	p.bundledAt = now
	p.queuedTo = max(p.queuedTo, p.covered())
	p.queueAll(left)
	return nil
}

// dropStale takes the streams of this broker's earlier runs out of a head that has passed what was here when this run
// began. The caller doesn't hold p.mu.
func (p *Partition) dropStale() func(*tier.Head) {
	p.mu.Lock()
	to := p.staleTo
	p.mu.Unlock()
	return func(n *tier.Head) {
		if n.End < to {
			return
		}
		n.Pending = slices.DeleteFunc(slices.Clone(n.Pending), func(st tier.PendingStream) bool {
			return st.Broker == p.set.o.Broker && !p.set.ownStream(st)
		})
	}
}
