package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

const (
	tailGuess   = 32 << 10 // bytes of an object's end that are read first
	tailReaders = 8        // objects whose ends are read at the same time
)

// footers are those of a sealed stream, read when first needed.
type footers struct {
	turn   chan struct{} // held by who reads them
	loaded bool
	parts  map[frame.PartitionID][]placed
	order  []placed
}

func newFooters() footers { return footers{turn: make(chan struct{}, 1)} }

// placed is an encoded part and where it lies.
type placed struct {
	object int // index in Sealed.objects
	part   partHead
}

// Entries returns what the stream has of a partition, in the order of offsets; of two that begin at the same offset the one with the
// lower number comes first. Later epochs may have taken offsets back: whoever adopts must cut by the head's epoch history. What the
// stream holds is read once, at the first call, and kept for all partitions.
func (s *Sealed) Entries(ctx context.Context, id frame.PartitionID) ([]Entry, error) {
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	out := make([]Entry, 0, len(s.footers.parts[id]))
	for _, p := range s.footers.parts[id] {
		e, err := s.entry(p)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return cmp.Compare(a.Start, b.Start) })
	return out, nil
}

// Partitions returns the partitions that the stream has anything of, in order.
func (s *Sealed) Partitions(ctx context.Context) ([]frame.PartitionID, error) {
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	ids := make([]frame.PartitionID, 0, len(s.footers.parts))
	for id := range s.footers.parts {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, frame.PartitionID.Compare)
	return ids, nil
}

func (s *Sealed) entry(p placed) (Entry, error) {
	o := s.objects[p.object]
	e, err := decodePart(p.part.bytes)
	if err != nil {
		return e, withKey(err, s.Stream.Key(o.seq))
	}
	e.Seq, e.Key, e.Size, e.Off = o.seq, s.Stream.Key(o.seq), o.size, p.part.off
	return e, nil
}

// load reads the footers, once.
func (s *Sealed) load(ctx context.Context) error {
	select {
	case s.footers.turn <- struct{}{}:
		defer func() { <-s.footers.turn }()
	case <-ctx.Done():
		return fmt.Errorf("read footers of WAL stream %v: %w", s.Stream, context.Cause(ctx))
	}
	if s.footers.loaded {
		return nil
	}
	all, err := s.readFooters(ctx)
	if err != nil {
		return fmt.Errorf("read footers of WAL stream %v: %w", s.Stream, err)
	}
	parts, order := map[frame.PartitionID][]placed{}, []placed{}
	for i, b := range all {
		if b == nil {
			continue
		}
		f, err := decodeFooter(b)
		if err == nil && f.incarnation != s.Stream.Incarnation {
			err = corrupt("footer", "it belongs to stream %q", f.incarnation)
		}
		if err == nil {
			err = f.walkParts(func(p partHead) error {
				parts[p.id] = append(parts[p.id], placed{object: i, part: p})
				order = append(order, placed{object: i, part: p})
				return nil
			})
		}
		if err != nil {
			return withKey(err, s.Stream.Key(s.objects[i].seq))
		}
	}
	s.footers.parts, s.footers.order, s.footers.loaded = parts, order, true
	return nil
}

// readFooters returns the encoded footer of each object, nil for those that are gone by now.
func (s *Sealed) readFooters(ctx context.Context) ([][]byte, error) {
	all := make([][]byte, len(s.objects))
	if len(s.objects) == 0 {
		return all, nil
	}
	newest := len(s.objects) - 1
	t, err := s.tail(ctx, newest)
	if err != nil {
		return nil, err
	}
	all[newest] = t.footer
	known := s.combined(ctx, newest, t)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(tailReaders)
	for i := range newest {
		if f, ok := known[s.objects[i].seq]; ok {
			all[i] = f
			continue
		}
		g.Go(func() error {
			t, err := s.tail(gctx, i)
			all[i] = t.footer
			return err
		})
	}
	return all, g.Wait()
}

// combined returns what the newest combined footers say. They only spare reads: without them, or when they are damaged, every object is
// read.
func (s *Sealed) combined(ctx context.Context, newest int, t tail) map[uint64][]byte {
	at := newest
	if t.combinedOff == t.footerOff {
		i, ok := slices.BinarySearchFunc(s.objects, t.lastIndex, func(o found, seq uint64) int { return cmp.Compare(o.seq, seq) })
		if !ok {
			return nil
		}
		at = i
		var err error
		if t, err = s.tail(ctx, at); err != nil || t.combinedOff == t.footerOff {
			return nil
		}
	}
	b := make([]byte, t.footerOff-t.combinedOff)
	if int64(len(b)) > maxCombinedFrame {
		return nil
	}
	if _, _, err := s.b.Get(ctx, s.op, s.Stream.Key(s.objects[at].seq), t.combinedOff, int64(len(b)), b); err != nil || checksum(b) != t.combinedCRC {
		return nil
	}
	list, err := decodeCombined(b, s.objects[at].seq)
	if err != nil {
		return nil
	}
	out := make(map[uint64][]byte, len(list)+1)
	for _, n := range list {
		out[n.seq] = n.footer
	}
	if t.footer != nil {
		out[s.objects[at].seq] = t.footer
	}
	return out
}

// tail is the end of an object.
type tail struct {
	trailer
	footer []byte // nil when the object is gone
}

// tail reads the end of an object, a second time when it is damaged.
func (s *Sealed) tail(ctx context.Context, i int) (tail, error) {
	o := s.objects[i]
	t, err := readTail(ctx, s.b, s.op, s.Stream.Key(o.seq), o.seq, o.size)
	if errors.Is(err, tier.ErrCorrupt) {
		t, err = readTail(ctx, s.b, s.op, s.Stream.Key(o.seq), o.seq, o.size)
	}
	if errors.Is(err, bucket.ErrNotFound) {
		return tail{}, nil // swept since it was listed
	}
	return t, err
}

func readTail(ctx context.Context, b bucket.Bucket, op bucket.Op, key string, seq uint64, size int64) (tail, error) {
	if size < headerLen+trailerLen || size > MaxObject+maxCombined+maxFooter {
		return tail{}, &tier.CorruptError{Key: key, Part: "object", Reason: fmt.Sprintf("%d bytes", size)}
	}
	n := min(size-headerLen, tailGuess)
	buf := make([]byte, n)
	if _, _, err := b.Get(ctx, op, key, size-n, n, buf); err != nil {
		return tail{}, err
	}
	t, err := parseTrailer(buf[n-trailerLen:], size)
	if err == nil && t.seq != seq {
		err = corrupt("trailer", "it is object %d", t.seq)
	}
	if err != nil {
		return tail{}, withKey(err, key)
	}
	want := size - trailerLen - t.footerOff
	if want > maxFooter {
		return tail{}, &tier.CorruptError{Key: key, Part: "footer", Reason: fmt.Sprintf("%d bytes, at most %d are allowed", want, maxFooter)}
	}
	f := buf[:n-trailerLen]
	if want > int64(len(f)) {
		f = make([]byte, want)
		if _, _, err := b.Get(ctx, op, key, t.footerOff, want, f); err != nil {
			return tail{}, err
		}
	}
	f = slices.Clone(f[int64(len(f))-want:])
	if got := checksum(f); got != t.footerCRC {
		return tail{}, &tier.CorruptError{Key: key, Part: "footer", Reason: fmt.Sprintf("checksum is %08x, want %08x", got, t.footerCRC)}
	}
	d, err := decodeFooter(f)
	if err == nil && d.end != t.combinedOff {
		err = corrupt("footer", "parts end at %d, the trailer says %d", d.end, t.combinedOff)
	}
	if err != nil {
		return tail{}, withKey(err, key)
	}
	return tail{trailer: t, footer: f}, nil
}
