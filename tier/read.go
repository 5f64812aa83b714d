package tier

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Batches are whole batches, in offset order, as slices of shared memory. Slices don't end where batches end. They are valid until
// Release, which must be called once when there is one.
type Batches struct {
	Slices  [][]byte
	Bytes   int
	First   int64 // base offset of the first batch; may lie below the offset asked for, or above it after a void
	Next    int64 // where to read on
	Release func()
}

// Read returns whole batches from the one that holds offset on, or from the next one when no batch holds it. It returns at most
// maxBytes, but one batch always. It ends early where that saves work: at the end of a block or an object. Nothing is returned
// that its block's checksum doesn't cover. Without batches in [offset, h.End) the result is empty, and Next is h.End.
//
// ErrOffsetOutOfRange: offset is not in [h.Start, h.End). ErrGone: h is too old. ErrCorrupt: the bucket has bad bytes.
func (a *Archive) Read(ctx context.Context, h *Head, offset int64, maxBytes int, op bucket.Op) (Batches, error) {
	if offset < h.Start || offset >= h.End {
		return Batches{}, fmt.Errorf("read at %d of [%d, %d) of %v: %w", offset, h.Start, h.End, h.ID, ErrOffsetOutOfRange)
	}
	for offset < h.End {
		e, err := a.extentAt(ctx, h, offset)
		if err != nil {
			return Batches{}, err
		}
		offset = max(offset, e.Start)
		if e.Kind != KindVoid {
			b, err := a.readExtent(ctx, op, h, &e, offset, int64(maxBytes))
			if err != nil || b.Bytes > 0 {
				return b, err
			}
		}
		offset = e.End
	}
	return Batches{First: h.End, Next: h.End}, nil
}

// readExtent reads from one extent. The result is empty when the extent has no batch at or after offset.
func (a *Archive) readExtent(ctx context.Context, op bucket.Op, h *Head, e *Extent, offset, maxBytes int64) (Batches, error) {
	v, err := a.view(ctx, op, h, e)
	if err != nil {
		return Batches{}, err
	}
	first := sort.Search(len(v.blocks), func(i int) bool { return v.blocks[i].Last >= offset })
	if first == len(v.blocks) || v.blocks[first].Base >= e.End {
		return Batches{}, nil
	}
	last := first + 1
	size := v.blocks[first].Stored
	for last < len(v.blocks) && size+v.blocks[last].Stored <= maxBytes && v.blocks[last].Last < e.End {
		size += v.blocks[last].Stored
		last++
	}
	blocks := v.blocks[first:last]
	d, err := a.readBlocks(ctx, op, e, blocks, size)
	if err != nil {
		return Batches{}, err
	}
	b, err := cutBatches(&d.s, blocks, offset, e.End, maxBytes)
	if err != nil {
		d.release()
		return Batches{}, withKey(err, e.Key)
	}
	if b.Bytes == 0 {
		d.release()
		return b, nil
	}
	b.Release = d.release
	a.readAhead(op, h, e, &blocks[len(blocks)-1], offset, b.Next)
	return b, nil
}

// blockData holds bytes of an object.
type blockData struct {
	s       scatter
	cached  cache.Slices // where they are from, if from the cache
	release func()
}

// verify is verifyBlocks, but it passes over the blocks that were right before in the same memory: a reader that takes a block in
// many small pieces must not pay for all of it each time. Blocks are named by their checksum too, so one of another block table
// is not taken for them.
func (d *blockData) verify(blocks []Block) int {
	c := cursor{s: &d.s}
	for i := range blocks {
		k := &blocks[i]
		switch {
		case k.Stored > d.s.size-c.pos:
			return i
		case d.cached.Verified(k.Off, k.Stored, k.CRC):
			c.seek(c.pos + k.Stored)
		case c.crc(k.Stored) != k.CRC:
			return i
		default:
			d.cached.SetVerified(k.Off, k.Stored, k.CRC)
		}
	}
	return -1
}

// readBlocks reads consecutive blocks and verifies each. When a checksum is wrong it drops what is in memory and reads once more.
func (a *Archive) readBlocks(ctx context.Context, op bucket.Op, e *Extent, blocks []Block, size int64) (blockData, error) {
	for again := false; ; again = true {
		d, err := a.fetch(ctx, op, e, blocks[0].Off, size)
		if err != nil {
			return blockData{}, fmt.Errorf("read offset %d: %w", blocks[0].Base, gone(err, e.Key))
		}
		bad := d.verify(blocks)
		if bad < 0 {
			return d, nil
		}
		d.release()
		if a.opts.Cache != nil {
			a.opts.Cache.Drop(e.Key)
		}
		if again {
			return blockData{}, &CorruptError{Key: e.Key, Part: fmt.Sprintf("block at byte %d (offsets %d to %d)", blocks[bad].Off, blocks[bad].Base, blocks[bad].Last),
				Reason: fmt.Sprintf("checksum is not %08x", blocks[bad].CRC)}
		}
	}
}

// verifyBlocks returns the index of the first block whose checksum is wrong, -1 when all are right.
func verifyBlocks(s *scatter, blocks []Block) int {
	c := cursor{s: s}
	for i := range blocks {
		if blocks[i].Stored > s.size-c.pos || c.crc(blocks[i].Stored) != blocks[i].CRC {
			return i
		}
	}
	return -1
}

func noRelease() {}

// fetch returns bytes of an object, from the cache when there is one.
func (a *Archive) fetch(ctx context.Context, op bucket.Op, e *Extent, off, n int64) (blockData, error) {
	if e.Kind == KindWAL {
		op.Kind = bucket.KindWAL
	}
	if a.opts.Cache != nil {
		s, err := a.opts.Cache.Read(ctx, op, e.Key, e.Size, off, n)
		if err != nil {
			return blockData{}, err
		}
		return blockData{s: newScatter(s.Bufs), cached: s, release: s.Release}, nil
	}
	buf := make([]byte, n)
	if _, _, err := a.opts.Cold.Get(ctx, op, e.Key, off, n, buf); err != nil {
		return blockData{}, err
	}
	return blockData{s: newScatter([][]byte{buf}), release: noRelease}, nil
}

// cutBatches finds the batches from the one that holds offset on, within maxBytes and below end. Only the first block has to be
// walked: the others are taken whole.
func cutBatches(s *scatter, blocks []Block, offset, end, maxBytes int64) (Batches, error) {
	k := &blocks[0]
	from, first, err := findBatch(s, k, offset)
	if err != nil {
		return Batches{}, err
	}
	lastBlock := &blocks[len(blocks)-1]
	to, next := s.size, lastBlock.Last+1
	if to-from > maxBytes || next > end {
		// Only a single block can be too much: the caller chose the others to fit.
		if to, next, err = limitBatches(s, from, first, end, maxBytes); err != nil {
			return Batches{}, err
		}
	}
	if to == from {
		return Batches{First: first, Next: next}, nil
	}
	return Batches{Slices: s.cut(make([][]byte, 0, len(s.bufs)), from, to), Bytes: int(to - from), First: first, Next: next}, nil
}

var errBlockEnd = errors.New("walked past the block's end")

// findBatch returns place and base offset of the first batch of block k, which begins at the scatter's start, that ends at or
// after offset.
func findBatch(s *scatter, k *Block, offset int64) (pos, base int64, err error) {
	if offset <= k.Base {
		return 0, k.Base, nil
	}
	var scratch [batch.HeaderLen]byte
	c := cursor{s: s}
	for c.pos < k.Stored {
		h, err := c.header(&scratch)
		if err != nil {
			return 0, 0, blockError(k, c.pos, err)
		}
		if h.LastOffset() >= offset {
			return c.pos, h.BaseOffset, nil
		}
		if int64(h.Size()) > k.Stored-c.pos {
			break
		}
		c.seek(c.pos + int64(h.Size()))
	}
	return 0, 0, blockError(k, c.pos, errBlockEnd)
}

// limitBatches walks from the batch at from on, and returns where to stop so that no batch but the first passes maxBytes, and none
// reaches end.
func limitBatches(s *scatter, from, first, end, maxBytes int64) (to, next int64, err error) {
	var scratch [batch.HeaderLen]byte
	c := cursor{s: s}
	c.seek(from)
	next = first
	for c.pos < s.size {
		h, err := c.header(&scratch)
		if err == nil && int64(h.Size()) > s.size-c.pos {
			err = errBlockEnd
		}
		if err != nil {
			return 0, 0, corrupt(fmt.Sprintf("batch after offset %d", next), "%v", err)
		}
		if h.BaseOffset >= end || c.pos > from && c.pos+int64(h.Size())-from > maxBytes {
			break
		}
		next = h.LastOffset() + 1
		c.seek(c.pos + int64(h.Size()))
	}
	return c.pos, next, nil
}

func blockError(k *Block, pos int64, err error) error {
	return corrupt(fmt.Sprintf("block at byte %d (offsets %d to %d)", k.Off, k.Base, k.Last), "batch at its byte %d: %v", pos, err)
}
