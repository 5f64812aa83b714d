package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Read returns whole batches from the one that holds the offset on, up to the durable offset and about MaxBytes. At
// the durable offset it returns none. Hot data comes as slices of the log's mapping: they are for writev, and user
// code that touches them must be ready for a page fault. Cold data comes from the cache or the bucket; that takes as
// long as the bucket does, so callers run it on workers of their own (see Locate).
func (p *Partition) Read(ctx context.Context, r ReadRequest) (Batches, error) {
	asked := r.Offset
	for try := 0; ; try++ {
		p.mu.Lock()
		o := p.offsets()
		err := p.admit(-1)
		p.mu.Unlock()
		if err != nil {
			return Batches{}, err
		}
		if r.Offset < o.Start || r.Offset > o.Durable {
			return Batches{}, fmt.Errorf("%w: %d is not in [%d, %d] of %s-%d", ErrOffsetOutOfRange, r.Offset, o.Start, o.Durable, p.Topic(), p.id.Partition)
		}
		if r.Offset == o.Durable {
			return p.overVoid(asked, r, o.Epoch), nil
		}
		if r.Offset >= o.LocalStart {
			b, ok, err := p.readHot(r, o.Durable)
			if ok || err != nil {
				return b, err
			}
		}
		b, again, err := p.readCold(ctx, r)
		if err == nil && b.Bytes == 0 && b.Next > r.Offset {
			r.Offset = b.Next // a void: what follows it may be local
			try = -1
			continue
		}
		if !again || try == maxReadTries {
			return b, err
		}
	}
}

// overVoid answers a read that has found nothing between the offset that was asked for and the durable one. When there is
// a void, a batch without records covers it: clients move on by the batches that they get, and one that reads up to the end
// would wait before the void for ever.
func (p *Partition) overVoid(asked int64, r ReadRequest, epoch int32) Batches {
	if asked == r.Offset || !r.AtLeastOne && r.MaxBytes < batch.HeaderLen {
		return Batches{Next: r.Offset}
	}
	last := min(r.Offset-1, asked+math.MaxInt32)
	b := batch.Empty(asked, last, epoch)
	return NewBatches([][]byte{b}, len(b), last+1, func() {})
}

// maxReadTries bounds how often a read follows a head that changes under it.
const maxReadTries = 4

// hotRead holds what a hot answer refers to until it is released.
type hotRead struct {
	slices [][]byte
	refs   []*segment.Ref
}

var hotReads = sync.Pool{New: func() any { return &hotRead{} }}

func (h *hotRead) release() {
	for i, r := range h.refs {
		r.Release()
		h.refs[i] = nil
	}
	clear(h.slices)
	h.slices, h.refs = h.slices[:0], h.refs[:0]
	hotReads.Put(h)
}

// readHot answers from the local log. ok is false when the offset isn't local any more (reclaim was faster).
func (p *Partition) readHot(r ReadRequest, durable int64) (Batches, bool, error) {
	buf := entryBufs.Get().(*entryBuf)
	defer buf.free()
	g := budget{left: r.MaxBytes, first: r.AtLeastOne, limit: durable}
	if err := p.entries(buf, r.Offset, &g); err != nil {
		return Batches{}, false, fmt.Errorf("%w: %w", ErrStorage, err)
	}
	if len(buf.list) == 0 && !g.full {
		return Batches{}, false, nil
	}
	p.mu.Lock()
	covered := p.tiered
	p.mu.Unlock()
	if len(buf.list) == 0 {
		return Batches{Next: r.Offset}, true, nil // the first batch is larger than asked for
	}
	if first := buf.list[0].Base; first > r.Offset && r.Offset < covered {
		return Batches{}, false, nil
	}
	h := hotReads.Get().(*hotRead)
	out := Batches{owner: h, Next: r.Offset}
	err := p.mapEntries(h, unbroken(buf.list), &out)
	if err != nil || out.Bytes == 0 {
		h.release()
		if errors.Is(err, errFileGone) {
			return Batches{}, false, nil
		}
		return Batches{}, false, err
	}
	out.Slices = h.slices
	return out, true, nil
}

// unbroken returns the leading entries that follow each other. Reclaim and evict may remove entries from below while the
// list is made of several looks at the index: what comes behind the hole they leave is for the next read, which finds the
// rest in the bucket.
func unbroken(list []index.Entry) []index.Entry {
	for i := 1; i < len(list); i++ {
		if list[i].Base != list[i-1].Last+1 {
			return list[:i]
		}
	}
	return list
}

var errFileGone = errors.New("log file is gone")

// mapEntries collects the batches' slices. Entries behind the first whose file is gone are left for the next read.
func (p *Partition) mapEntries(h *hotRead, entries []index.Entry, out *Batches) error {
	var ref *segment.Ref
	for i := range entries {
		e := &entries[i]
		if ref == nil || !ref.Holds(e.Position) {
			r, ok := p.set.log.Acquire(e.Position)
			if !ok {
				return ifFirst(i, errFileGone)
			}
			ref = r
			h.refs = append(h.refs, r)
		}
		s, err := ref.Map(e.Position+uint64(e.HeaderLen), int(e.Length))
		if err != nil {
			return ifFirst(i, fmt.Errorf("%w: %w", ErrStorage, err))
		}
		h.slices = append(h.slices, s)
		out.Bytes += int(e.Length)
		out.Next = e.Last + 1
	}
	return nil
}

func ifFirst(i int, err error) error {
	if i > 0 {
		return nil
	}
	return err
}

// readCold answers from the archive. again asks the caller to look at the offsets anew: the head has changed, or the
// partition has gone back behind the offset. Without a batch at or behind the offset the answer is empty, and its Next
// is the archive's end.
func (p *Partition) readCold(ctx context.Context, r ReadRequest) (b Batches, again bool, err error) {
	h, err := p.head(ctx)
	if err != nil {
		return Batches{}, false, err
	}
	if h == nil || r.Offset >= h.End {
		return Batches{}, true, fmt.Errorf("%w: offset %d of %s-%d is neither in the local log nor in the bucket", ErrCorrupt, r.Offset, p.Topic(), p.id.Partition)
	}
	if r.Offset < h.Start {
		if err := p.raiseStart(ctx); err != nil {
			return Batches{}, false, err
		}
		return Batches{}, true, fmt.Errorf("%w: %d lies before %d, where %s-%d begins", ErrOffsetOutOfRange, r.Offset, h.Start, p.Topic(), p.id.Partition)
	}
	maxBytes := r.MaxBytes
	if !r.AtLeastOne && maxBytes <= 0 {
		return Batches{Next: r.Offset}, false, nil
	}
	got, err := p.set.o.Archive.Read(ctx, h, r.Offset, maxBytes, p.coldOp())
	if errors.Is(err, tier.ErrGone) {
		if err := p.reloadHead(ctx, h); err != nil {
			return Batches{}, false, err
		}
		return Batches{}, true, fmt.Errorf("%w: an object that the head names is gone", ErrUnavailable)
	}
	if err != nil {
		return Batches{}, false, bucketError(err)
	}
	if !r.AtLeastOne && got.Bytes > maxBytes {
		got.Release()
		return Batches{Next: r.Offset}, false, nil
	}
	if got.Bytes == 0 {
		return Batches{Next: got.Next}, false, nil
	}
	return Batches{Slices: got.Slices, Bytes: got.Bytes, Next: got.Next, owner: &coldRead{got}}, false, nil
}

type coldRead struct{ b tier.Batches }

func (c *coldRead) release() { c.b.Release() }

// reloadHead fetches the head after an object it named was found gone. A second look that shows the same head means
// that the object is lost.
func (p *Partition) reloadHead(ctx context.Context, old *tier.Head) error {
	h, err := p.set.o.Archive.Load(ctx, p.id)
	if err != nil {
		return bucketError(err)
	}
	if h.Version == old.Version {
		return fmt.Errorf("%w: the head of %s-%d names an object that is not in the bucket", ErrCorrupt, p.Topic(), p.id.Partition)
	}
	p.install(h)
	return nil
}

func (p *Partition) coldOp() bucket.Op {
	return bucket.Op{Class: "cold", Topic: p.Topic(), Kind: "data"}
}
