package tier

import (
	"context"
	"fmt"

	"github.com/tierbroker/tierbroker/batch"
)

// spanBytes is how much a streaming reader asks for at once: several blocks cost one request.
const spanBytes = 4 << 20

// streamBlocks reads an object's blocks in order and calls fn with the bytes of each, which are valid during the call. It holds
// spanBytes, or one block if that is larger. A block whose checksum is wrong twice is given to bad, which decides: its error ends
// the stream.
func (o *Object) streamBlocks(ctx context.Context, fn func(k *Block, b []byte) error, bad func(k *Block, err error) error) error {
	var buf []byte
	for i := 0; i < len(o.Blocks); {
		n, size := i, int64(0)
		for n < len(o.Blocks) && (n == i || size+o.Blocks[n].Stored <= spanBytes) {
			size += o.Blocks[n].Stored
			n++
		}
		if int64(cap(buf)) < size {
			buf = make([]byte, size)
		}
		if err := o.readSpan(ctx, o.Blocks[i:n], buf[:size]); err != nil {
			return err
		}
		b := buf[:size]
		for ; i < n; i++ {
			k := &o.Blocks[i]
			err := error(nil)
			if one := b[:k.Stored]; checksum(one) != k.CRC {
				err = bad(k, &CorruptError{Key: o.Key, Part: fmt.Sprintf("block at byte %d (offsets %d to %d)", k.Off, k.Base, k.Last), Reason: fmt.Sprintf("checksum is not %08x", k.CRC)})
			} else {
				err = fn(k, one)
			}
			if err != nil {
				return err
			}
			b = b[k.Stored:]
		}
	}
	return nil
}

// readSpan fills buf with consecutive blocks, a second time when a checksum is wrong.
func (o *Object) readSpan(ctx context.Context, blocks []Block, buf []byte) error {
	for range 2 {
		if _, _, err := o.b.Get(ctx, o.op, o.Key, blocks[0].Off, int64(len(buf)), buf); err != nil {
			return fmt.Errorf("read offset %d: %w", blocks[0].Base, gone(err, o.Key))
		}
		s := newScatter([][]byte{buf})
		if verifyBlocks(&s, blocks) < 0 {
			return nil
		}
	}
	return nil // the caller looks at each block
}

// Batches streams the batches of [start, end) in order, verified by their blocks.
func (o *Object) Batches(ctx context.Context, start, end int64, fn func(b []byte, h *batch.Header) error) error {
	fatal := func(_ *Block, err error) error { return err }
	return o.streamBlocks(ctx, func(k *Block, b []byte) error {
		if k.Last < start || k.Base >= end {
			return nil
		}
		for len(b) > 0 {
			h, one, rest, err := batch.Next(b)
			if err != nil {
				return withKey(blockError(k, k.Stored-int64(len(b)), err), o.Key)
			}
			if h.LastOffset() >= start && h.BaseOffset < end {
				if err := fn(one, &h); err != nil {
					return err
				}
			}
			b = rest
		}
		return nil
	}, fatal)
}
