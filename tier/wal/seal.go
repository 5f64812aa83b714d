package wal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

const (
	sealPause    = 20 * time.Millisecond // first pause between attempts of a seal, doubled each time
	maxSealPause = time.Second
)

// Sealed is a stream that has an end.
type Sealed struct {
	Stream  StreamID
	Floor   uint64   // numbers below do not exist
	End     uint64   // number of the seal: it and what follows do not exist
	Missing []uint64 // in [Floor, End), the first thousand: swept, or lost
	Absent  uint64   // how many are missing in all

	b       bucket.Bucket
	op      bucket.Op
	objects []found // data in [Floor, End), in order
	beyond  []found // data below Floor or above End: garbage
	footers footers
}

// Seal ends a stream, or finds that it is ended. Nobody whose lease may be alive must be sealed: it would lose its stream. clusterInc is
// the incarnation of the cluster that seals. It goes on until ctx ends. A stream without objects gets its seal under number 0, so that its
// writer can never begin.
func Seal(ctx context.Context, b bucket.Bucket, op bucket.Op, id StreamID, clusterInc string) (*Sealed, error) {
	s := sealer{b: b, op: op, id: id, cluster: clusterInc, placed: map[uint64]uint64{}}
	return s.run(ctx, true)
}

// Find returns a stream that is sealed already. ErrNotSealed.
func Find(ctx context.Context, b bucket.Bucket, op bucket.Op, id StreamID) (*Sealed, error) {
	s := sealer{b: b, op: op, id: id}
	return s.run(ctx, false)
}

type sealer struct {
	b       bucket.Bucket
	op      bucket.Op
	id      StreamID
	cluster string
	top     header            // of the newest data object that was read: objects never change
	placed  map[uint64]uint64 // seals that this sealer has put, and their floors
}

func (s *sealer) run(ctx context.Context, create bool) (*Sealed, error) {
	if err := s.id.check(); err != nil {
		return nil, err
	}
	s.op.Kind = bucket.KindWAL
	pause := sealPause
	for {
		out, err := s.attempt(ctx, create)
		if err == nil {
			return out, nil
		}
		if errors.Is(err, ErrNotSealed) || errors.Is(err, tier.ErrFeature) || errors.Is(err, ErrTooLarge) || errors.Is(err, tier.ErrCorrupt) {
			return nil, fmt.Errorf("seal WAL stream %v: %w", s.id, err)
		}
		if serr := sleep(ctx, pause); serr != nil {
			return nil, fmt.Errorf("seal WAL stream %v: %w", s.id, errors.Join(serr, err))
		}
		pause = min(2*pause, maxSealPause)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errMoved = errors.New("the stream went on while it was looked at")

// attempt looks for a seal that holds, puts one if there is none, and describes what lies before it. An error that passes, or errMoved:
// begin again.
func (s *sealer) attempt(ctx context.Context, create bool) (*Sealed, error) {
	objects, err := list(ctx, s.b, s.op, s.id, 0)
	if err != nil {
		return nil, err
	}
	end, ok := topSeal(objects)
	if !ok {
		if !create {
			return nil, ErrNotSealed
		}
		top, err := s.newest(ctx, objects)
		if err != nil {
			return nil, err
		}
		if end, err = s.place(ctx, objects, top); err != nil {
			return nil, err
		}
	}
	floor, mine := s.placed[end]
	if !mine {
		if floor, err = s.read(ctx, end); err != nil {
			return nil, err
		}
	}
	// Whether a seal holds is decided by what is there after it: listed later than it was put.
	if objects, err = list(ctx, s.b, s.op, s.id, 0); err != nil {
		return nil, err
	}
	if higher, _ := topSeal(objects); higher > end {
		return nil, errMoved
	}
	top, err := s.newest(ctx, objects)
	if err != nil {
		return nil, err
	}
	if top.acked > end {
		if !create {
			return nil, ErrNotSealed
		}
		// The number had been swept. The next attempt sees the same seal, so it begins above it.
		return s.above(ctx, objects, top)
	}
	return s.describe(objects, floor, end), nil
}

// above is attempt for a stream whose highest seal means nothing.
func (s *sealer) above(ctx context.Context, objects []found, top header) (*Sealed, error) {
	if _, err := s.place(ctx, objects, top); err != nil {
		return nil, err
	}
	return nil, errMoved // the next attempt finds the seal and looks whether it holds
}

func topSeal(objects []found) (uint64, bool) {
	for i := len(objects) - 1; i >= 0; i-- {
		if objects[i].seal() {
			return objects[i].seq, true
		}
	}
	return 0, false
}

// newest returns the header of the newest data object: what it says was acknowledged is no less than what older ones say. The zero
// header when there is none.
func (s *sealer) newest(ctx context.Context, objects []found) (header, error) {
	for i := len(objects) - 1; i >= 0; i-- {
		if objects[i].seal() {
			continue
		}
		if seq := objects[i].seq; s.top.seq != seq || s.top.attempt == (attemptID{}) {
			h, err := s.header(ctx, seq)
			if err != nil {
				return header{}, err
			}
			s.top = h
		}
		return s.top, nil
	}
	return header{}, nil
}

// header reads the header of an object, a second time when it is damaged.
func (s *sealer) header(ctx context.Context, seq uint64) (h header, err error) {
	key := s.id.Key(seq)
	for range 2 {
		var b [headerLen]byte
		if _, _, err := s.b.Get(ctx, s.op, key, 0, headerLen, b[:]); err != nil {
			if errors.Is(err, bucket.ErrRange) {
				return h, &tier.CorruptError{Key: key, Part: "object", Reason: "it is too short"}
			}
			return h, err
		}
		if h, err = parseHeader(b[:]); err == nil && !h.of(s.id, seq) {
			err = corrupt("header", "it is object %d of broker %d", h.seq, h.broker)
		}
		if err == nil {
			return h, nil
		}
	}
	return h, withKey(err, key)
}

// place puts a seal under the first number that is free, and returns it. It may find another one there.
func (s *sealer) place(ctx context.Context, objects []found, top header) (uint64, error) {
	there := make(map[uint64]bool, len(objects))
	for _, o := range objects {
		there[o.seq] = !o.seal() || o.seq < top.acked
	}
	end, floor := top.acked, top.floor
	for {
		for there[end] {
			end++
		}
		if end > maxSeq {
			return 0, &tier.CorruptError{Key: s.id.Prefix(), Part: "stream", Reason: "its numbers have no end"}
		}
		if end > 0 && end-1 != top.seq {
			// What lies below the seal may carry a higher floor than the newest object that the listing showed.
			h, err := s.header(ctx, end-1)
			if err == nil && !h.seal {
				floor = max(floor, h.floor)
			} else if err != nil && !errors.Is(err, bucket.ErrNotFound) && !errors.Is(err, tier.ErrCorrupt) {
				return 0, err
			}
		}
		b, err := encodeSeal(header{broker: s.id.Broker, stream: checksum([]byte(s.id.Incarnation)), seq: end, floor: min(floor, end), attempt: newAttempt()}, s.cluster)
		if err != nil {
			return 0, err
		}
		_, err = s.b.Put(ctx, s.op, s.id.Key(end), bucket.BytesBody(b), bucket.Condition{IfNoneMatch: true})
		if err == nil {
			s.placed[end] = min(floor, end)
			return end, nil
		}
		h, herr := s.header(ctx, end)
		if herr != nil {
			return 0, errors.Join(err, herr)
		}
		if h.seal {
			return end, nil
		}
		there[end] = true
	}
}

// read verifies a seal and returns its floor.
func (s *sealer) read(ctx context.Context, seq uint64) (floor uint64, err error) {
	key := s.id.Key(seq)
	for range 2 {
		b, _, err := bucket.GetAll(ctx, s.b, s.op, key, sealLen)
		if err != nil {
			return 0, err
		}
		h, _, derr := decodeSeal(b)
		if derr == nil && h.of(s.id, seq) {
			return h.floor, nil
		}
		if derr == nil {
			derr = corrupt("seal", "it is number %d of broker %d", h.seq, h.broker)
		}
		err = withKey(derr, key)
		if errors.Is(err, tier.ErrFeature) {
			return 0, err
		}
	}
	return 0, &tier.CorruptError{Key: key, Part: "seal", Reason: "it cannot be read"}
}

// describe says what lies before the seal.
func (s *sealer) describe(objects []found, floor, end uint64) *Sealed {
	out := &Sealed{Stream: s.id, Floor: floor, End: end, b: s.b, op: s.op, footers: newFooters()}
	next := floor
	for _, o := range objects {
		switch {
		case o.seal():
		case o.seq < floor || o.seq > end:
			out.beyond = append(out.beyond, o)
		default:
			out.missing(next, o.seq)
			out.objects = append(out.objects, o)
			next = o.seq + 1
		}
	}
	out.missing(next, end)
	return out
}

// maxMissing bounds what is told of missing numbers: a seal may stand anywhere.
const maxMissing = 1000

func (s *Sealed) missing(from, to uint64) {
	if from >= to {
		return
	}
	s.Absent += to - from
	for seq := from; seq < to && len(s.Missing) < maxMissing; seq++ {
		s.Missing = append(s.Missing, seq)
	}
}
