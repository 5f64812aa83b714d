package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// Object is an opened data object: everything but its blocks.
type Object struct {
	Key       string
	Size      int64
	FooterOff int64 // where the blocks end and the sections begin
	IndexOff  int64 // where the sections begin that a reader needs
	Identity  Identity
	Blocks    []Block
	Sections  []Section

	b  bucket.Bucket
	op bucket.Op
}

const (
	openGuess = 64 << 10  // bytes that are read first when nothing is known of an object
	maxFooter = 128 << 20 // bytes of a tail that are ever read at once
)

// OpenObject reads footer, identity and block table of a data object. It needs no head.
func OpenObject(ctx context.Context, b bucket.Bucket, op bucket.Op, key string) (*Object, error) {
	info, err := b.Stat(ctx, op, key)
	if err != nil {
		return nil, fmt.Errorf("open object: %w", gone(err, key))
	}
	return openObject(ctx, b, op, key, info.Size, max(0, info.Size-openGuess))
}

// openObject reads the tail from off on, and more when that is not enough.
func openObject(ctx context.Context, b bucket.Bucket, op bucket.Op, key string, size, off int64) (*Object, error) {
	o, err := readTail(ctx, b, op, key, size, off)
	if err != nil {
		return nil, err
	}
	o.b = b
	return o, nil
}

// getter is the part of a bucket that reads.
type getter interface {
	Get(ctx context.Context, op bucket.Op, key string, off, n int64, dst []byte) (int, bucket.Info, error)
}

// readTail is openObject for an object of which no more is read through it. A checksum that fails is given a second try: the bytes
// may have been damaged on the way.
func readTail(ctx context.Context, b getter, op bucket.Op, key string, size, off int64) (*Object, error) {
	if size < trailerLen+int64(len(headMagic)) || size > MaxObjectSize || off < 0 || off > size-trailerLen {
		return nil, &CorruptError{Key: key, Part: "object", Reason: fmt.Sprintf("%d bytes, sections at %d", size, off)}
	}
	again := false
	for {
		if size-off > maxFooter {
			return nil, &CorruptError{Key: key, Part: "footer", Reason: fmt.Sprintf("%d bytes, at most %d are allowed", size-off, maxFooter)}
		}
		tail := make([]byte, size-off)
		if _, _, err := b.Get(ctx, op, key, off, size-off, tail); err != nil {
			return nil, fmt.Errorf("open object: %w", gone(err, key))
		}
		o, more, err := parseTail(tail, off, size)
		switch {
		case err == nil && more < off:
			off = more
		case err == nil:
			o.Key, o.op = key, op
			return o, nil
		case again || !errors.Is(err, ErrCorrupt):
			return nil, withKey(err, key)
		default:
			again = true
		}
	}
}

// parseTail reads the end of an object of size bytes, from off on. When the tail is too short it returns where it should begin.
func parseTail(tail []byte, off, size int64) (o *Object, more int64, err error) {
	if int64(len(tail)) != size-off || len(tail) < trailerLen {
		return nil, 0, corrupt("trailer", "%d bytes of %d", len(tail), size)
	}
	t, err := parseTrailer(tail[len(tail)-trailerLen:], size)
	if err != nil {
		return nil, 0, err
	}
	dirOff := size - trailerLen - int64(t.dirLen)
	if dirOff < off {
		return nil, max(0, dirOff-openGuess), nil
	}
	sections, err := parseDirectory(tail[dirOff-off:], t)
	if err != nil {
		return nil, 0, err
	}
	o = &Object{Size: size, FooterOff: dirOff, IndexOff: dirOff, Sections: sections}
	var need [2][]byte // identity, block table
	for i := range sections {
		s := &sections[i]
		o.FooterOff = min(o.FooterOff, s.Off)
		if s.Type != SectionIdentity && s.Type != SectionBlocks {
			continue
		}
		o.IndexOff = min(o.IndexOff, s.Off)
		if s.Off < off {
			continue
		}
		b := tail[s.Off-off : s.Off-off+s.Len]
		if checksum(b) != s.CRC {
			return nil, 0, corrupt(s.Type.String(), "checksum is %08x, want %08x", checksum(b), s.CRC)
		}
		need[s.Type-SectionIdentity] = b
	}
	if o.IndexOff < off {
		return nil, o.IndexOff, nil
	}
	if need[0] == nil || need[1] == nil {
		return nil, 0, corrupt("directory", "identity or block table is missing")
	}
	if o.Identity, err = decodeIdentity(need[0]); err != nil {
		return nil, 0, err
	}
	if o.Blocks, err = decodeBlocks(need[1], o.FooterOff); err != nil {
		return nil, 0, err
	}
	return o, off, o.checkBlocks()
}

// checkBlocks compares the block table with the identity.
func (o *Object) checkBlocks() error {
	i, n := &o.Identity, len(o.Blocks)
	if n == 0 || o.Blocks[0].Base != i.Base || o.Blocks[n-1].Last >= i.End {
		return corrupt("block table", "%d blocks don't fit offsets [%d, %d)", n, i.Base, i.End)
	}
	return nil
}

// SectionBytes reads and verifies the first section of a type. ok is false when the object has none.
func (o *Object) SectionBytes(ctx context.Context, t SectionType) (b []byte, ok bool, err error) {
	for _, s := range o.Sections {
		if s.Type != t {
			continue
		}
		b := make([]byte, s.Len)
		for again := false; ; again = true {
			if _, _, err := o.b.Get(ctx, o.op, o.Key, s.Off, s.Len, b); err != nil {
				return nil, false, fmt.Errorf("read %v: %w", t, gone(err, o.Key))
			}
			if checksum(b) == s.CRC {
				return b, true, nil
			}
			if again {
				return nil, false, &CorruptError{Key: o.Key, Part: t.String(), Reason: fmt.Sprintf("checksum is %08x, want %08x", checksum(b), s.CRC)}
			}
		}
	}
	return nil, false, nil
}

// OffsetIndex calls fn for each entry of the offset index; fn returns false to stop. An object without one has no entries.
func (o *Object) OffsetIndex(ctx context.Context, fn func(IndexEntry) bool) error {
	b, ok, err := o.SectionBytes(ctx, SectionOffsetIndex)
	if err != nil || !ok {
		return err
	}
	return withKey(walkIndex(b, o.Blocks, fn), o.Key)
}

// Aborted returns the aborted transactions.
func (o *Object) Aborted(ctx context.Context) ([]AbortedTxn, error) {
	b, ok, err := o.SectionBytes(ctx, SectionAborted)
	if err != nil || !ok {
		return nil, err
	}
	txns, err := decodeAborted(b)
	return txns, withKey(err, o.Key)
}

// Producers returns the producer snapshot, nil when there is none.
func (o *Object) Producers(ctx context.Context) ([]byte, error) {
	b, _, err := o.SectionBytes(ctx, SectionProducers)
	return b, err
}

// view is what reads need of an extent's object.
type view struct {
	blocks []Block
}

const blockCost = 128 // bytes of memory that a Block takes

// view returns the block table of an extent from memory or bucket.
func (a *Archive) view(ctx context.Context, op bucket.Op, h *Head, e *Extent) (*view, error) {
	if e.Kind != KindData && e.Kind != KindWAL {
		return nil, fmt.Errorf("extent [%d, %d) of %v is of kind %q: %w", e.Start, e.End, h.ID, e.Kind, ErrFeature)
	}
	if v, ok := a.meta.get(e.viewKey()); ok {
		return v.(*view), nil
	}
	return a.loadView(ctx, op, h, *e)
}

func (a *Archive) loadView(ctx context.Context, op bucket.Op, h *Head, e Extent) (*view, error) {
	v, err := loadMeta(ctx, a.meta, e.viewKey(), a.viewLoader(op, h.ID, e))
	if err != nil {
		return nil, err
	}
	return v.(*view), nil
}

func (a *Archive) viewLoader(op bucket.Op, id frame.PartitionID, e Extent) func(context.Context) (any, int64, error) {
	if e.Kind == KindWAL {
		return a.partLoader(op, id, e)
	}
	return func(ctx context.Context) (any, int64, error) {
		o, err := readTail(ctx, a.tails(&e), op, e.Key, e.Size, e.IndexOff)
		if err != nil {
			return nil, 0, err
		}
		if i := &o.Identity; i.ID() != id || i.Base > e.Start || i.End < e.End {
			return nil, 0, &CorruptError{Key: e.Key, Part: "identity",
				Reason: fmt.Sprintf("it is [%d, %d) of %v, the head says [%d, %d) of %v", i.Start, i.End, i.ID(), e.Start, e.End, id)}
		}
		return &view{blocks: o.Blocks}, int64(len(o.Blocks))*blockCost + 256, nil
	}
}

// tails is where an extent's block table is read from: the cache, if the object fits into one chunk, so that one GET brings all of it.
// Of a larger object a whole chunk would be fetched for a few kilobytes, long before a reader gets to the rest of it.
func (a *Archive) tails(e *Extent) getter {
	if c := a.opts.Cache; c != nil && e.Size <= int64(c.ChunkBytes()) {
		return &cachedTail{c: c, size: e.Size, last: -1}
	}
	return a.opts.Cold
}

// cachedTail reads one object through the cache.
type cachedTail struct {
	c    *cache.Cache
	size int64 // of the object
	last int64 // offset of the last Get
}

// Get implements getter. Who asks for the same bytes again found them damaged; they are fetched again.
func (t *cachedTail) Get(ctx context.Context, op bucket.Op, key string, off, n int64, dst []byte) (int, bucket.Info, error) {
	if off == t.last {
		t.c.Drop(key)
	}
	t.last = off
	s, err := t.c.Read(ctx, op, key, t.size, off, n)
	if err != nil {
		return 0, bucket.Info{}, err
	}
	defer s.Release()
	got := 0
	for _, b := range s.Bufs {
		got += copy(dst[got:], b)
	}
	return got, bucket.Info{Key: key, Size: t.size}, nil
}

// prefetchView begins to load a block table and doesn't wait.
func (a *Archive) prefetchView(op bucket.Op, h *Head, e Extent) {
	if _, ok := a.meta.get(e.viewKey()); ok {
		return
	}
	// An error shows again, and is told, when somebody needs the block table.
	_, _ = a.meta.fly(e.viewKey(), a.viewLoader(op, h.ID, e))
}
