package wal

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Peek describes a stream as it is, sealed or not, and writes nothing. What it says of a stream that isn't sealed is what a seal
// would find now: no less than what was acknowledged before the call, and more may come as long as the writer lives. A stream
// without objects is empty.
func Peek(ctx context.Context, b bucket.Bucket, op bucket.Op, id StreamID) (*Sealed, error) {
	s := sealer{b: b, op: op, id: id}
	out, err := s.run(ctx, false)
	if !errors.Is(err, ErrNotSealed) {
		return out, err
	}
	s.op.Kind = bucket.KindWAL
	for pause := sealPause; ; pause = min(2*pause, maxSealPause) {
		out, err := s.peek(ctx)
		if err == nil {
			return out, nil
		}
		if errors.Is(err, tier.ErrFeature) || errors.Is(err, tier.ErrCorrupt) {
			return nil, fmt.Errorf("look at WAL stream %v: %w", id, err)
		}
		if serr := sleep(ctx, pause); serr != nil {
			return nil, fmt.Errorf("look at WAL stream %v: %w", id, errors.Join(serr, err))
		}
	}
}

func (s *sealer) peek(ctx context.Context) (*Sealed, error) {
	objects, err := list(ctx, s.b, s.op, s.id, 0)
	if err != nil {
		return nil, err
	}
	top, err := s.newest(ctx, objects)
	if err != nil {
		return nil, err
	}
	// As place does, without putting anything. A seal below Acked means nothing.
	end := top.acked
	for _, o := range objects {
		if o.seq == end && !o.seal() {
			end++
		}
	}
	return s.describe(objects, min(top.floor, end), end), nil
}
