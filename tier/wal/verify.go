package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// VerifyOptions configure Verify.
type VerifyOptions struct {
	MetaOnly bool         // headers, footers and seals; no batches are read
	Entry    func(*Entry) // called for each entry that exists to readers; nil for none
}

// Verify checks everything that the bucket has of a stream: headers, footers, combined footers against the footers they repeat, checksums
// of parts and batches, batches against the footer, floors and acknowledgements that must not fall, and that nothing is missing. It streams.
// A stream whose writer is alive may be swept meanwhile: what is gone then is no problem. Whatever is wrong is told to report; an error
// means that it could not go on.
func Verify(ctx context.Context, b bucket.Bucket, op bucket.Op, id StreamID, opts VerifyOptions, report func(tier.Problem)) error {
	op.Kind = bucket.KindWAL
	v := verifier{b: b, op: op, id: id, opts: opts, report: report, footers: map[uint64][]byte{}}
	s, err := Find(ctx, b, op, id)
	if err != nil && !errors.Is(err, ErrNotSealed) {
		if !isDamage(err) {
			return fmt.Errorf("verify WAL stream %v: %w", id, err)
		}
		v.problem(id.Prefix(), "%v", err)
	}
	if s != nil {
		v.end, v.sealed = s.End, true
	}
	objects, err := list(ctx, b, op, id, 0)
	if err != nil {
		return fmt.Errorf("verify WAL stream %v: %w", id, err)
	}
	for _, f := range objects {
		if err := v.object(ctx, f); err != nil {
			return fmt.Errorf("verify WAL stream %v: %w", id, err)
		}
	}
	if s != nil && s.Absent > 0 {
		v.note(id.Prefix(), "sealed at %d; of numbers %d to %d, %d are not there: swept, or lost", s.End, s.Floor, s.End-1, s.Absent)
	}
	return nil
}

type verifier struct {
	b      bucket.Bucket
	op     bucket.Op
	id     StreamID
	opts   VerifyOptions
	report func(tier.Problem)

	sealed       bool
	end          uint64
	footers      map[uint64][]byte // that no combined footers have repeated yet
	floor, acked uint64            // of the newest object so far
}

func (v *verifier) problem(key, format string, args ...any) {
	v.report(tier.Problem{Key: key, Offset: -1, What: fmt.Sprintf(format, args...)})
}

func (v *verifier) note(key, format string, args ...any) {
	v.report(tier.Problem{Key: key, Offset: -1, What: fmt.Sprintf(format, args...), Note: true})
}

func (v *verifier) object(ctx context.Context, f found) error {
	key := v.id.Key(f.seq)
	o, err := ReadObject(ctx, v.b, v.op, key)
	switch {
	case errors.Is(err, bucket.ErrNotFound):
		return nil // swept since it was listed
	case err != nil && !isDamage(err):
		return err
	case err != nil:
		v.problem(key, "%v", err)
		return nil
	}
	if o.Seal {
		if !v.sealed || f.seq != v.end {
			v.note(key, "a seal that does not hold")
		}
		return nil
	}
	if v.sealed && f.seq > v.end {
		v.note(key, "it lies behind the seal, so nobody reads it: the sweep will delete it")
		return nil
	}
	if o.Floor < v.floor || o.Acked < v.acked {
		v.problem(key, "floor %d, acknowledged up to %d; an object before it says %d and %d", o.Floor, o.Acked, v.floor, v.acked)
	}
	v.floor, v.acked = max(v.floor, o.Floor), max(v.acked, o.Acked)
	for _, c := range o.combined {
		if known, ok := v.footers[c.seq]; ok && !bytes.Equal(known, c.footer) {
			v.problem(key, "its combined footers have another footer of object %d than that object", c.seq)
		}
		delete(v.footers, c.seq)
	}
	v.footers[f.seq] = o.footer
	for i := range o.Entries {
		e := &o.Entries[i]
		if v.opts.Entry != nil {
			v.opts.Entry(e)
		}
		if v.opts.MetaOnly {
			continue
		}
		if err := v.part(ctx, e); err != nil {
			if errors.Is(err, bucket.ErrNotFound) {
				return nil
			}
			if !isDamage(err) {
				return err
			}
			v.report(tier.Problem{Key: key, Offset: e.Start, What: fmt.Sprintf("part of %v at byte %d: %v", e.ID, e.Off, err)})
		}
	}
	return nil
}

// part reads the batches of an entry and compares them with it.
func (v *verifier) part(ctx context.Context, e *Entry) error {
	raw := make([]byte, e.Len)
	for again := false; ; again = true {
		if _, _, err := v.b.Get(ctx, v.op, e.Key, e.Off, e.Len, raw); err != nil {
			return err
		}
		if checksum(raw) == e.CRC {
			break
		}
		if again {
			return corrupt("part", "checksum is %08x, want %08x", checksum(raw), e.CRC)
		}
	}
	for i := range e.Batches {
		x := &e.Batches[i]
		b := raw[x.Pos : x.Pos+x.Size]
		h, one, _, err := batch.Next(b)
		if err == nil {
			err = batch.CheckCRC(one)
		}
		if err != nil {
			return corrupt("batch", "at offset %d: %v", x.Base, err)
		}
		got := BatchInfo{Base: h.BaseOffset, Last: h.LastOffset(), Pos: x.Pos, Size: int32(len(one)), MaxTimestamp: h.MaxTimestamp, AppendTime: x.AppendTime,
			ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, FirstSequence: h.FirstSequence, Records: h.RecordCount}
		if got != *x {
			return corrupt("footer", "it says %+v, the batch %+v", *x, got)
		}
	}
	return nil
}
