package tier

import (
	"context"
	"fmt"
	"strings"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// An extent of kind wal is a part of a WAL object: whole batches, one after the other, and nothing that tells where they begin. A
// part is small (a few megabytes, or one batch), so it is read once as a whole, verified by the checksum that the extent has, and
// walked. What comes out of that is a block table like that of a data object, kept in memory in the same way; from then on the part is
// read like any other extent, and each block is verified again when it is read.

// maxWALPart is how many bytes the part of a WAL object may have that a head names: one batch may be that long.
const maxWALPart = 128 << 20

// checkWAL says whether the place of an extent of kind wal is possible.
func (e *Extent) checkWAL() bool {
	return strings.HasPrefix(e.Key, WALFolder) && e.Off > 0 && e.Len > 0 && e.Len <= maxWALPart && e.Size <= MaxObjectSize && e.Off <= e.Size-e.Len
}

// viewKey is what the extent's block table is kept under: a WAL object has many.
func (e *Extent) viewKey() string {
	if e.Kind != KindWAL {
		return e.Key
	}
	return fmt.Sprintf("%s@%d", e.Key, e.Off)
}

// partLoader returns what loads the block table of a part. A checksum that is wrong is given a second try, past the cache.
func (a *Archive) partLoader(op bucket.Op, id frame.PartitionID, e Extent) func(context.Context) (any, int64, error) {
	return func(ctx context.Context) (any, int64, error) {
		for again := false; ; again = true {
			d, err := a.fetch(ctx, op, &e, e.Off, e.Len)
			if err != nil {
				return nil, 0, fmt.Errorf("read part of %s at byte %d: %w", e.Key, e.Off, gone(err, e.Key))
			}
			blocks, err := partBlocks(&d.s, &e, a.opts.BlockBytes)
			d.release()
			if err == nil {
				return &view{blocks: blocks}, int64(len(blocks))*blockCost + 256, nil
			}
			if a.opts.Cache != nil {
				a.opts.Cache.Drop(e.Key)
			}
			if again {
				return nil, 0, withKey(err, e.Key)
			}
		}
	}
}

// partBlocks verifies a part and makes a block table of it.
func partBlocks(s *scatter, e *Extent, blockBytes int) ([]Block, error) {
	c := cursor{s: s}
	if got := c.crc(e.Len); got != e.CRC {
		return nil, corrupt(e.part(), "checksum is %08x, want %08x", got, e.CRC)
	}
	var blocks []Block
	var scratch [batch.HeaderLen]byte
	c = cursor{s: s}
	sums := cursor{s: s}
	next, pos := int64(-1), int64(0)
	k := Block{Off: e.Off}
	flush := func() {
		k.Stored = pos - (k.Off - e.Off)
		k.Plain, k.CRC = k.Stored, sums.crc(k.Stored)
		blocks = append(blocks, k)
	}
	for pos < e.Len {
		h, err := c.header(&scratch)
		if err == nil && int64(h.Size()) > e.Len-pos {
			err = errBlockEnd
		}
		if err != nil {
			return nil, corrupt(e.part(), "batch at its byte %d: %v", pos, err)
		}
		if next >= 0 && h.BaseOffset != next || h.BaseOffset < 0 || h.LastOffset() < h.BaseOffset || h.LastOffset() > maxOffset-1 {
			return nil, corrupt(e.part(), "batch [%d, %d] at its byte %d, the one before ends at %d", h.BaseOffset, h.LastOffset(), pos, next)
		}
		if stored := pos - (k.Off - e.Off); k.Batches > 0 && stored+int64(h.Size()) > int64(blockBytes) {
			flush()
			k = Block{Off: e.Off + pos}
		}
		if k.Batches == 0 {
			k.Base, k.MaxTimestamp = h.BaseOffset, h.MaxTimestamp
		}
		k.Last, k.MaxTimestamp = h.LastOffset(), max(k.MaxTimestamp, h.MaxTimestamp)
		k.Records += int64(h.RecordCount)
		k.Batches++
		next, pos = h.LastOffset()+1, pos+int64(h.Size())
		c.seek(pos)
	}
	flush()
	if blocks[0].Base > e.Start || next < e.End {
		return nil, corrupt(e.part(), "it holds [%d, %d), the head says [%d, %d)", blocks[0].Base, next, e.Start, e.End)
	}
	return blocks, nil
}

func (e *Extent) part() string {
	return fmt.Sprintf("part at byte %d (offsets %d to %d)", e.Off, e.Start, e.End-1)
}

// batchesEnd is where the batches of an extent end in its object.
func (e *Extent) batchesEnd() int64 {
	if e.Kind == KindWAL {
		return e.Off + e.Len
	}
	return e.FooterOff
}

// stored is about how many bytes of its object are the extent's.
func (e *Extent) stored() int64 {
	if e.Kind == KindWAL {
		return e.Len
	}
	return e.Size
}
