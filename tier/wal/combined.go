package wal

import (
	"encoding/binary"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/tierbroker/tierbroker/varint"
)

// Combined footers: those of all objects since the floor, so that a successor reads one object instead of hundreds.
//
//	plain length   u32
//	zstd of        objects: each its number (the first one whole, the others as the difference), the footer's length, the footer
const (
	maxCombined      = 64 << 20 // plain
	maxCombinedFrame = maxCombined / 2
)

// codecs are made when first needed.
var codecs = struct {
	enc func() *zstd.Encoder
	dec func() *zstd.Decoder
}{
	enc: sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	}),
	dec: sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxCombined), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			panic(err) // the options are constants
		}
		return d
	}),
}

// numbered is an encoded footer and the number of its object.
type numbered struct {
	seq    uint64
	footer []byte
}

// appendCombined appends combined footers to dst. ok is false when they are too many: readers then read the objects.
func appendCombined(dst []byte, footers []numbered) (out []byte, ok bool) {
	size := 0
	for _, f := range footers {
		size += len(f.footer) + 2*binary.MaxVarintLen64
	}
	if size > maxCombined {
		return dst, false
	}
	plain := make([]byte, 0, size)
	last := uint64(0)
	for _, f := range footers {
		plain = binary.AppendUvarint(plain, f.seq-last)
		plain = binary.AppendUvarint(plain, uint64(len(f.footer)))
		plain = append(plain, f.footer...)
		last = f.seq
	}
	at := len(dst)
	out = codecs.enc().EncodeAll(plain, binary.BigEndian.AppendUint32(dst, uint32(len(plain))))
	return out, len(out)-at <= maxCombinedFrame
}

// decodeCombined reads combined footers of the object with number seq from hostile bytes. Numbers rise, and lie below seq.
func decodeCombined(b []byte, seq uint64) ([]numbered, error) {
	if len(b) < 4 || len(b) > maxCombinedFrame {
		return nil, corrupt("combined footers", "%d bytes", len(b))
	}
	n := binary.BigEndian.Uint32(b)
	if n > maxCombined {
		return nil, corrupt("combined footers", "%d bytes when decompressed", n)
	}
	plain, err := codecs.dec().DecodeAll(b[4:], nil)
	if err != nil || len(plain) != int(n) {
		return nil, corrupt("combined footers", "%d bytes when decompressed instead of %d: %v", len(plain), n, err)
	}
	var out []numbered
	d := varint.Read(plain)
	last := uint64(0)
	for len(d.Rest()) > 0 {
		step := d.Uvarint(maxSeq - last)
		f := numbered{seq: last + step, footer: d.Bytes(int(d.Uvarint(maxFooter)))}
		if d.Bad() || step == 0 && len(out) > 0 || f.seq >= seq {
			return nil, corrupt("combined footers", "entry %d is wrong", len(out))
		}
		out, last = append(out, f), f.seq
	}
	if d.Bad() {
		return nil, corrupt("combined footers", "entry %d is wrong", len(out))
	}
	return out, nil
}
