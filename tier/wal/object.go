package wal

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Object is all that an object of a stream says about itself: for tools.
type Object struct {
	Key                string
	Stream             StreamID
	Seq                uint64
	Size               int64
	Seal               bool
	Floor              uint64
	Acked              uint64   // all numbers below were acknowledged; 0 in a seal
	Writer             string   // random ids, in hexadecimal
	Attempt            string   //
	ClusterID          string   // empty in a seal
	ClusterIncarnation string   // of the writer, or of who sealed
	Created            int64    // milliseconds; 0 in a seal
	Combined           []uint64 // numbers of the objects whose footers it carries too
	Entries            []Entry

	combined []numbered
	footer   []byte
}

// ReadObject reads what an object says about itself, not its batches. Everything but those is verified.
func ReadObject(ctx context.Context, b bucket.Bucket, op bucket.Op, key string) (*Object, error) {
	id, seq, ok := ParseKey(key)
	if !ok {
		return nil, fmt.Errorf("read WAL object: %s is no key of one", key)
	}
	op.Kind = bucket.KindWAL
	info, err := b.Stat(ctx, op, key)
	if err != nil {
		return nil, fmt.Errorf("read WAL object: %w", err)
	}
	s := sealer{b: b, op: op, id: id}
	h, err := s.header(ctx, seq)
	if err != nil {
		return nil, fmt.Errorf("read WAL object: %w", err)
	}
	o := &Object{
		Key: key, Stream: id, Seq: seq, Size: info.Size, Seal: h.seal, Floor: h.floor, Acked: h.acked,
		Writer: hex.EncodeToString(h.writer[:]), Attempt: hex.EncodeToString(h.attempt[:]),
	}
	if h.seal {
		raw, _, err := bucket.GetAll(ctx, b, op, key, sealLen)
		if err == nil {
			_, o.ClusterIncarnation, err = decodeSeal(raw)
		}
		if err != nil {
			return nil, withKey(err, key)
		}
		return o, nil
	}
	if info.Size == sealLen {
		return nil, &tier.CorruptError{Key: key, Part: "object", Reason: "it is as long as a seal"}
	}
	return o, o.readFooter(ctx, b, op)
}

func (o *Object) readFooter(ctx context.Context, b bucket.Bucket, op bucket.Op) error {
	t, err := readTail(ctx, b, op, o.Key, o.Seq, o.Size)
	if err != nil {
		return err
	}
	o.footer = t.footer
	f, err := decodeFooter(t.footer)
	if err != nil {
		return withKey(err, o.Key)
	}
	o.ClusterID, o.ClusterIncarnation, o.Created = f.cluster, f.clusterIncarnation, f.created
	if f.incarnation != o.Stream.Incarnation {
		return &tier.CorruptError{Key: o.Key, Part: "footer", Reason: fmt.Sprintf("it belongs to stream %q", f.incarnation)}
	}
	err = f.walkParts(func(p partHead) error {
		e, err := decodePart(p.bytes)
		e.Seq, e.Key, e.Size, e.Off = o.Seq, o.Key, o.Size, p.off
		o.Entries = append(o.Entries, e)
		return err
	})
	if err != nil {
		return withKey(err, o.Key)
	}
	n := t.footerOff - t.combinedOff
	if n == 0 {
		return nil
	}
	if n > maxCombinedFrame {
		return &tier.CorruptError{Key: o.Key, Part: "combined footers", Reason: fmt.Sprintf("%d bytes", n)}
	}
	raw := make([]byte, n)
	if _, _, err := b.Get(ctx, op, o.Key, t.combinedOff, n, raw); err != nil {
		return fmt.Errorf("read combined footers: %w", err)
	}
	if got := checksum(raw); got != t.combinedCRC {
		return &tier.CorruptError{Key: o.Key, Part: "combined footers", Reason: fmt.Sprintf("checksum is %08x, want %08x", got, t.combinedCRC)}
	}
	if o.combined, err = decodeCombined(raw, o.Seq); err != nil {
		return withKey(err, o.Key)
	}
	for _, c := range o.combined {
		o.Combined = append(o.Combined, c.seq)
	}
	return nil
}

// isDamage reports whether err is about one object; anything else stops the work.
func isDamage(err error) bool {
	return errors.Is(err, tier.ErrCorrupt) || errors.Is(err, tier.ErrFeature) || errors.Is(err, bucket.ErrRange)
}
