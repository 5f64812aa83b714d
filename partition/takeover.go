package partition

import (
	"context"
	"errors"

	"github.com/tierbroker/tierbroker/tier"
)

// Taking a partition over (design, section 9): the claim puts this run's name into the head, and its own WAL stream
// beside those that may hold more than the head covers; adoption seals each of these, and makes extents of what it holds
// of the partition, without copying. Only then is the partition written to.
//
// Both are one swap where nobody else changes the head meanwhile, which is the rule once the owner is dead:
//
//	1  load the head: the streams that it names hold whatever was acknowledged behind its end
//	2  seal them: their writers acknowledge nothing more
//	3  read what they hold of the partition behind that head's end
//	4  swap that very head: owner, own stream, extents, producers, their streams gone
//
// Until 4 the earlier owner may still swap the head (it rolls, deletes records, leaves its stream, or was given the
// partition anew), and so may another successor. Then 4 loses, because it replaces one version only, and what was
// read in 3 is thrown away: it may be what the newer head covers, or less. And once the earlier owner has rolled, its stream may
// begin above the end of the head that was loaded before: a hole in 3 proves nothing yet. Both ways out are
// the slow sequence: claim, which ends all changes by others, then seal, read and adopt; a hole is damage there.
//
// A crash before 2 has done nothing. After 2, streams of earlier owners are sealed that the head still names: whoever
// comes next finds the seals. Nobody is sealed whom a claim would not have had sealed a moment later: the head names it, in an
// epoch below this one. An outcome of 4 that nobody learned is seen at the next attempt: the head names this owner, or
// is what it was. After 4 and before Writing the next owner finds this run's stream in the head.

// takeOverAtOnce does all of it in one swap. done is false, without an error, where that is not possible and the
// slow sequence must decide. The caller holds swap, and has just loaded the head.
func (p *Partition) takeOverAtOnce(ctx context.Context, object bool) (done bool, err error) {
	h, err := p.head(ctx)
	if err != nil || h == nil {
		return false, err
	}
	o := p.owner()
	if h.Tombstone || h.Epoch >= o.Epoch || len(p.foreignStreams(h)) == 0 {
		return false, nil
	}
	p.mu.Lock()
	opts, next := tier.ClaimOptions{Starts: p.epochStarts()}, p.next
	p.mu.Unlock()
	if object {
		w, err := p.set.stream.open(ctx)
		if err != nil {
			return false, err
		}
		opts.Stream = p.set.stream.inHead(o.Epoch, w.Next())
	}
	a, err := p.adoption(ctx, h)
	if errors.Is(err, errHole) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	nh, err := p.set.o.Archive.TakeOver(ctx, p.id, p.Topic(), h, o, opts,
		tier.Adoption{Extents: a.exts, Producers: a.producers.encodeSnapshot(a.end), Done: a.streams, More: a.history(next)})
	if errors.Is(err, tier.ErrConflict) {
		return false, p.refreshHead(ctx)
	}
	if err := p.adopted(a, h, nh, err); err != nil {
		return false, err
	}
	p.mu.Lock()
	p.headOwned = true
	p.mu.Unlock()
	return true, nil
}
