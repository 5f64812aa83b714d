package partition

import (
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
)

// headCacheEntries bounds the decoded heads in memory; a partition that isn't read cold or rolled costs none. The
// index keeps every head's bytes.
const headCacheEntries = 512

// headCache is an LRU of decoded heads. A cached head is never changed.
type headCache struct {
	mu    sync.Mutex
	max   int
	order *list.List // of *tier.Head, newest first
	byID  map[frame.PartitionID]*list.Element
}

type cachedHead struct {
	id   frame.PartitionID
	head *tier.Head
}

func newHeadCache(n int) *headCache {
	return &headCache{max: n, order: list.New(), byID: map[frame.PartitionID]*list.Element{}}
}

func (c *headCache) get(id frame.PartitionID, version int64) *tier.Head {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byID[id]
	if e == nil || e.Value.(*cachedHead).head.Version != version {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cachedHead).head
}

func (c *headCache) put(id frame.PartitionID, h *tier.Head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byID[id]; e != nil {
		if old := e.Value.(*cachedHead); old.head.Version <= h.Version {
			old.head = h
		}
		c.order.MoveToFront(e)
		return
	}
	c.byID[id] = c.order.PushFront(&cachedHead{id, h})
	if c.order.Len() > c.max {
		last := c.order.Back()
		delete(c.byID, last.Value.(*cachedHead).id)
		c.order.Remove(last)
	}
}

func (c *headCache) drop(id frame.PartitionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byID[id]; e != nil {
		delete(c.byID, id)
		c.order.Remove(e)
	}
}

// head returns the newest head known here, nil when the partition has none: from memory, the index, or the bucket.
func (p *Partition) head(ctx context.Context) (*tier.Head, error) {
	p.mu.Lock()
	version, dirty := p.headVersion, p.headDirty
	p.mu.Unlock()
	if version == 0 {
		return nil, nil
	}
	if h := p.set.heads.get(p.id, version); h != nil {
		return h, nil
	}
	stored := dirty
	if stored == nil {
		b, ok, err := p.set.index.Head(p.id)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrStorage, err)
		}
		if ok {
			stored = b
		}
	}
	if stored != nil {
		if h, err := decodeStored(stored); err == nil && h.Version >= version {
			p.set.heads.put(p.id, h)
			return h, nil
		}
	}
	h, err := p.set.o.Archive.Load(ctx, p.id)
	if err != nil {
		return nil, bucketError(err)
	}
	p.install(h)
	return h, nil
}

// A stored head is the length of its ETag (2 bytes, big endian), the ETag, and the head as in the bucket.

func encodeStored(h *tier.Head) []byte {
	b, tag := h.Encode(), h.ETag()
	if len(tag) > 1<<16-1 {
		return nil // not kept locally then; the bucket has it
	}
	out := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(tag)+len(b)), uint16(len(tag)))
	return append(append(out, tag...), b...)
}

func decodeStored(b []byte) (*tier.Head, error) {
	if len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
		return nil, fmt.Errorf("%w: stored head is cut short", ErrCorrupt)
	}
	n := 2 + int(binary.BigEndian.Uint16(b))
	h, err := tier.DecodeHead(b[n:])
	if err != nil {
		return nil, err
	}
	h.SetETag(string(b[2:n]))
	return h, nil
}

// install makes h the partition's head, unless a newer one is there.
func (p *Partition) install(h *tier.Head) {
	encoded := encodeStored(h)
	p.set.heads.put(p.id, h)
	p.mu.Lock()
	if h.Version < p.headVersion {
		p.mu.Unlock()
		return
	}
	if !p.headKnown {
		// A restart will ask for the head again unless it finds this one and its start.
		p.startSaved = max(p.startSaved, h.Start)
	}
	p.headVersion, p.headKnown, p.headDirty = h.Version, true, encoded
	p.tiered, p.ceiling = max(p.tiered, h.End), max(p.ceiling, h.Ceiling)
	p.releaseParts(p.tiered)
	if h.Owner == p.set.o.Broker && h.OwnerIncarnation == p.set.o.Incarnation {
		p.raiseCovered() // what another owner's head covers isn't what this one has
	}
	p.extents, p.archived = int(h.Objects), h.Bytes
	p.headStart = h.Start
	late := h.Start > p.startSaved
	if !late {
		p.setStart(h.Start)
	}
	if p.ceiling > p.wantCeiling {
		p.wantCeiling = 0
	}
	p.mergeEpochs(h.Epochs)
	safe := p.isSafe()
	p.mu.Unlock()
	p.set.markDirty(p)
	if safe {
		p.set.tellSafe(p)
	}
	if late {
		if err := p.raiseStart(p.set.ctx); err != nil {
			p.set.event(Warn, p, "the start offset could not be written to the log; it moves when that is possible", err)
		}
	}
}

// mergeEpochs puts epochs that only the head knows in front of the local ones. The caller holds p.mu.
func (p *Partition) mergeEpochs(head []tier.EpochStart) {
	if len(head) == 0 || len(p.epochs) > 0 && p.epochs[0].Epoch <= head[0].Epoch {
		return
	}
	merged := make([]EpochStart, 0, len(head)+len(p.epochs))
	for _, e := range head {
		if present := e.Epoch == p.epoch && e.Owner == p.set.o.Incarnation; present {
			continue // it begins with its first batch
		}
		if len(p.epochs) == 0 || e.Epoch < p.epochs[0].Epoch {
			merged = append(merged, e)
		}
	}
	p.epochs = append(merged, p.epochs...)
}

// version is that of the newest head known here, 0 when there is none.
func (p *Partition) version() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.headVersion
}

// owner is how this broker signs heads under the partition's present epoch.
func (p *Partition) owner() tier.Owner {
	p.mu.Lock()
	defer p.mu.Unlock()
	return tier.Owner{Broker: p.set.o.Broker, Incarnation: p.set.o.Incarnation, Epoch: p.epoch}
}

// claimed returns the head with this broker as its owner, claiming it if that has not been done under this epoch:
// the same broker in its own data directory claims lazily, before its first change. The caller holds swap.
func (p *Partition) claimed(ctx context.Context) (*tier.Head, error) {
	return p.claimedIn(ctx, nil)
}

// claimedIn is claimed, and the head names the stream unless it is nil.
func (p *Partition) claimedIn(ctx context.Context, stream *tier.PendingStream) (*tier.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, p.set.o.BucketCallTimeout)
	defer cancel()
	h, err := p.head(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	owned, topic := p.headOwned, p.Topic()
	o := tier.ClaimOptions{Starts: p.epochStarts(), Stream: stream}
	p.mu.Unlock()
	if h != nil && len(p.foreignStreams(h)) > 0 {
		// Where this epoch begins isn't known before the adoption: above all that the streams may hold, lest the epoch before
		// it be taken for one without offsets.
		at := h.Ceiling
		if n := len(h.Epochs); n > 0 {
			at = max(at, h.Epochs[n-1].Start)
		}
		o.Starts[len(o.Starts)-1].Start = at
	}
	if owned && h != nil && (stream == nil || slices.ContainsFunc(h.Pending, p.set.ownStream)) {
		return h, nil
	}
	h, err = p.set.o.Archive.ClaimWith(ctx, p.id, topic, h, p.owner(), o)
	if errors.Is(err, tier.ErrConflict) {
		// The cached head was old: somebody (an earlier run) has swapped since. Look, then claim once more.
		if err := p.refreshHead(ctx); err != nil {
			return nil, err
		}
		if h, err = p.head(ctx); err != nil {
			return nil, err
		}
		h, err = p.set.o.Archive.ClaimWith(ctx, p.id, topic, h, p.owner(), o)
	}
	if err != nil {
		return nil, p.lost(err)
	}
	p.install(h)
	p.mu.Lock()
	p.headOwned = true
	p.mu.Unlock()
	return h, nil
}

// epochStarts is the epoch history with the present epoch in it, which begins at the next offset until it has a
// batch. The caller holds p.mu.
func (p *Partition) epochStarts() []EpochStart {
	starts := slices.Clone(p.epochs)
	if n := len(starts); n == 0 || starts[n-1].Epoch != p.epoch {
		starts = append(starts, p.epochStart(max(p.next, p.tiered)))
	}
	return starts
}

func (p *Partition) epochStart(at int64) EpochStart {
	return EpochStart{Epoch: p.epoch, Start: at, Owner: p.set.o.Incarnation}
}

// swapped installs the outcome of a head change.
func (p *Partition) swapped(h *tier.Head, err error) error {
	if err != nil {
		return p.lost(err)
	}
	p.install(h)
	return nil
}

// lost deals with a claim or change of the head that failed. When another owner has the partition, or its topic was
// deleted, it stops serving at once, whatever etcd says.
func (p *Partition) lost(err error) error {
	switch {
	case errors.Is(err, tier.ErrFenced):
		p.fail("the head in the bucket names another owner", err)
		return fmt.Errorf("%w: %w", ErrNotOwner, err)
	case errors.Is(err, tier.ErrTombstone):
		p.fail("the head in the bucket says that the topic was deleted", err)
		return fmt.Errorf("%w: %w", ErrNotOwner, err)
	}
	p.mu.Lock()
	p.headOwned = false // look again before the next change
	p.mu.Unlock()
	return bucketError(err)
}

// bucketError gives errors of the archive the names that callers of this package act on.
func bucketError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, tier.ErrCorrupt):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrOffsetOutOfRange), errors.Is(err, ErrNotOwner):
		return err
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}
