package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// recordBytes is how much one read of Records asks for.
const recordBytes = 4 << 20

// Records gives fn the key and value of every record of a partition that a restore brings back, pending streams included, in order.
// Both are valid during the call only; a nil value is a tombstone. A partition without a head has none.
func Records(ctx context.Context, o Options, p *Plan, id frame.PartitionID, fn func(key, value []byte)) error {
	o.setDefaults()
	r := newReader(o, p.root)
	r.peeks = p.peeks       // streams are looked at once
	defer r.archive.Close() //nolint:errcheck // it only waits
	h, _, _, err := r.view(ctx, id)
	if errors.Is(err, tier.ErrNoHead) || err == nil && h.Tombstone {
		return nil
	}
	if err != nil {
		return err
	}
	for at := h.Start; at < h.End; {
		b, err := r.archive.Read(ctx, h, at, recordBytes, bucket.Op{Class: bucket.ClassTool, Topic: h.Topic, Kind: bucket.KindData})
		if err != nil {
			return fmt.Errorf("read %v at offset %d: %w", id, at, err)
		}
		if b.Bytes == 0 {
			return nil
		}
		joined := make([]byte, 0, b.Bytes)
		for _, s := range b.Slices {
			joined = append(joined, s...)
		}
		if b.Release != nil {
			b.Release()
		}
		at = b.Next
		for rest := joined; len(rest) > 0; {
			hdr, one, tail, err := batch.Next(rest)
			if err != nil {
				return fmt.Errorf("read %v before offset %d: %w", id, at, err)
			}
			rest = tail
			if hdr.IsControl() {
				continue
			}
			if err := batch.Iterate(one, func(rec *batch.Record) bool { fn(rec.Key, rec.Value); return true }); err != nil {
				return fmt.Errorf("read %v at offset %d: %w", id, hdr.BaseOffset, err)
			}
		}
	}
	return nil
}
