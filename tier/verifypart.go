package tier

import (
	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// part checks an extent in a WAL object: that the object is there as the head says, the part's checksum, and each batch. Whether the
// object's own footer agrees is what package tier/wal verifies.
func (v *verifier) part(e *Extent) error {
	op := v.op
	op.Kind = bucket.KindWAL
	if v.opts.MetaOnly {
		info, err := v.a.opts.Sweep.Stat(v.ctx, op, e.Key)
		if err != nil {
			return gone(err, e.Key)
		}
		if info.Size != e.Size {
			v.problem(e.Key, e.Start, "it has %d bytes, the head says %d", info.Size, e.Size)
		}
		return nil
	}
	b, err := v.a.readPart(v.ctx, op, e, nil)
	if err != nil {
		return err
	}
	next, maxTime := int64(-1), int64(noTime)
	var bytes, records, count int64
	err = partBatches(b, e, func(one []byte, h *batch.Header) error {
		if err := batch.CheckCRC(one); err != nil {
			v.problem(e.Key, h.BaseOffset, "%v", err)
		}
		if next >= 0 && h.BaseOffset != next || next < 0 && h.BaseOffset > e.Start {
			v.problem(e.Key, h.BaseOffset, "batch begins here, the one before ends at %d", max(next, e.Start))
		}
		next, maxTime = h.LastOffset()+1, max(maxTime, h.MaxTimestamp)
		bytes, records, count = bytes+int64(len(one)), records+int64(h.RecordCount), count+1
		return v.ctx.Err()
	})
	if err != nil {
		return err
	}
	if next < e.End {
		v.problem(e.Key, e.Start, "its batches end at %d, the head says %d", next, e.End)
	}
	// An extent that was cut may still claim the largest timestamp of its whole part.
	if bytes != e.Bytes || records != e.Records || maxTime > e.MaxTimestamp || bytes == e.Len && maxTime != e.MaxTimestamp {
		v.problem(e.Key, e.Start, "%s has %d records in %d bytes with timestamps up to %d, the head says %d in %d up to %d",
			e.part(), records, bytes, maxTime, e.Records, e.Bytes, e.MaxTimestamp)
	}
	p := &v.progress
	p.Batches, p.Records, p.Bytes = p.Batches+count, p.Records+records, p.Bytes+bytes
	if v.opts.Progress != nil {
		v.opts.Progress(*p)
	}
	return nil
}

// merged reports whether the newest head doesn't name a part any more whose object is gone: WAL objects are swept at once when nothing
// needs them.
func (v *verifier) merged(e *Extent) bool {
	h, err := v.a.Load(v.ctx, v.h.ID)
	if err != nil {
		return false
	}
	held, err := v.a.HoldsWAL(v.ctx, h, PendingStream{}, e.Key, e.Start, e.End)
	return err == nil && !held
}
