package tier

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// VerifyOptions configure Verify.
type VerifyOptions struct {
	MetaOnly bool           // heads, pages, footers and listings; no batches are read
	Progress func(Progress) // called after each block; nil for none
}

// Progress says how far Verify is.
type Progress struct {
	Objects, Batches, Records int64
	Bytes, TotalBytes         int64 // of batches
}

// Verify checks everything that the bucket has of a partition: the head against its objects and the objects against the head,
// every checksum of blocks, sections and batches, contiguity of offsets, and the indexes against the data. It streams. Whatever is
// wrong is told to report; an error means that it could not go on.
func (a *Archive) Verify(ctx context.Context, id frame.PartitionID, opts VerifyOptions, report func(Problem)) error {
	h, err := a.Load(ctx, id)
	if err != nil {
		return fmt.Errorf("verify %v: %w", id, err)
	}
	v := verifier{a: a, ctx: ctx, h: h, opts: opts, report: report, op: bucket.Op{Class: bucket.ClassTool, Topic: h.Topic, Kind: bucket.KindData}}
	v.progress.TotalBytes = h.Bytes
	if err := v.extents(); err != nil {
		return fmt.Errorf("verify %v: %w", id, err)
	}
	if err := v.listings(); err != nil {
		return fmt.Errorf("verify %v: %w", id, err)
	}
	return nil
}

type verifier struct {
	a        *Archive
	ctx      context.Context
	h        *Head
	opts     VerifyOptions
	report   func(Problem)
	op       bucket.Op
	progress Progress
}

// isDamage reports whether err is about one object; anything else stops the work.
func isDamage(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrGone) || errors.Is(err, ErrFeature) || errors.Is(err, bucket.ErrRange)
}

func (v *verifier) problem(key string, offset int64, format string, args ...any) {
	v.report(Problem{Key: key, Offset: offset, What: fmt.Sprintf(format, args...)})
}

// extents goes through the head's extents in order.
func (v *verifier) extents() error {
	next := int64(-1)
	running := int64(-1)
	var bytes, records, count int64
	for e, err := range v.a.Extents(v.ctx, v.h) {
		if err != nil {
			if !isDamage(err) {
				return err
			}
			v.problem("", next, "%v", err)
			return nil // without its page nothing more can be said
		}
		if next >= 0 && e.Start != next {
			v.problem(e.Key, e.Start, "extent begins here, the one before ends at %d", next)
		}
		if e.RunningMax < max(running, e.MaxTimestamp) {
			v.problem(e.Key, e.Start, "running maximum %d is below %d", e.RunningMax, max(running, e.MaxTimestamp))
		}
		next, running = e.End, e.RunningMax
		bytes, records, count = bytes+e.Bytes, records+e.Records, count+1
		check := v.object
		switch e.Kind {
		case KindVoid:
			continue
		case KindWAL:
			check = v.part
		case KindData:
		}
		if err := check(&e); err != nil {
			if !isDamage(err) {
				return err
			}
			if errors.Is(err, ErrGone) && e.Kind == KindWAL && v.merged(&e) {
				continue
			}
			v.problem(e.Key, e.Start, "%v", err)
		}
		v.progress.Objects++
	}
	if bytes != v.h.Bytes || records != v.h.Records || count != v.h.Objects {
		v.problem(HeadKey(v.h.ID), -1, "it counts %d bytes, %d records, %d extents; the extents have %d, %d, %d", v.h.Bytes, v.h.Records, v.h.Objects, bytes, records, count)
	}
	return nil
}

func (v *verifier) object(e *Extent) error {
	o, err := openObject(v.ctx, v.a.opts.Sweep, v.op, e.Key, e.Size, e.IndexOff)
	if err != nil {
		return err
	}
	i := &o.Identity
	if i.ID() != v.h.ID || i.Start > e.Start || i.End < e.End {
		v.problem(e.Key, e.Start, "it is [%d, %d) of %v, the head says [%d, %d)", i.Start, i.End, i.ID(), e.Start, e.End)
	}
	if o.IndexOff != e.IndexOff || o.FooterOff != e.FooterOff {
		v.problem(e.Key, e.Start, "sections begin at %d and %d, the head says %d and %d", o.FooterOff, o.IndexOff, e.FooterOff, e.IndexOff)
	}
	if whole := i.Start == e.Start && i.End == e.End; whole && (i.MaxTimestamp != e.MaxTimestamp || i.RetentionTime != e.RetentionTime || i.Bytes != e.Bytes || i.Records != e.Records) {
		v.problem(e.Key, e.Start, "timestamps or counts of the object are not those of the head")
	}
	for _, s := range o.Sections {
		if _, _, err := o.SectionBytes(v.ctx, s.Type); err != nil {
			if !isDamage(err) {
				return err
			}
			v.problem(e.Key, e.Start, "%v", err)
		}
	}
	if v.opts.MetaOnly {
		return nil
	}
	return v.data(o)
}

// data reads all blocks, and compares each batch with the offset index.
func (v *verifier) data(o *Object) error {
	var indexErr error
	index, stop := iter.Pull(func(yield func(IndexEntry) bool) {
		indexErr = o.OffsetIndex(v.ctx, yield)
	})
	defer stop()
	_, hasIndex, err := o.SectionBytes(v.ctx, SectionOffsetIndex)
	if err != nil && !isDamage(err) {
		return err
	}
	c := objectCheck{v: v, o: o, next: o.Identity.Base}
	if hasIndex {
		c.index = index
	}
	err = o.streamBlocks(v.ctx, c.block, func(k *Block, err error) error {
		v.problem(o.Key, k.Base, "%v", err)
		c.damaged, c.next = true, k.Last+1
		for range k.Batches {
			c.entry()
		}
		return v.ctx.Err()
	})
	if err != nil {
		return err
	}
	if indexErr != nil {
		return indexErr
	}
	i := &o.Identity
	if !c.damaged && (c.batches != i.Batches || c.records != i.Records || c.bytes != i.Bytes) {
		v.problem(o.Key, i.Start, "it has %d batches, %d records, %d bytes; its identity says %d, %d, %d", c.batches, c.records, c.bytes, i.Batches, i.Records, i.Bytes)
	}
	return nil
}

// objectCheck is where Verify stands inside an object.
type objectCheck struct {
	v       *verifier
	o       *Object
	index   func() (IndexEntry, bool)
	next    int64
	damaged bool

	batches, records, bytes int64
}

func (c *objectCheck) entry() (IndexEntry, bool) {
	if c.index == nil {
		return IndexEntry{}, false
	}
	return c.index()
}

func (c *objectCheck) block(k *Block, b []byte) error {
	size, count, records, maxTime := int64(len(b)), int64(0), int64(0), int64(noTime)
	last := int64(-1)
	for len(b) > 0 {
		pos := size - int64(len(b))
		h, one, rest, err := batch.Next(b)
		if err == nil {
			err = batch.CheckCRC(one)
		}
		if err != nil {
			c.v.problem(c.o.Key, c.next, "batch at byte %d: %v", k.Off+pos, err)
			c.damaged, c.next = true, k.Last+1
			return c.v.ctx.Err()
		}
		if h.BaseOffset != c.next && !(c.sparse() && h.BaseOffset > c.next) {
			c.v.problem(c.o.Key, h.BaseOffset, "batch begins here, the one before ends at %d", c.next)
		}
		if x, ok := c.entry(); c.index != nil && (!ok || x.Base != h.BaseOffset || x.Last != h.LastOffset() || x.Pos != pos || x.Size != int64(len(one)) || x.MaxTimestamp != h.MaxTimestamp) {
			c.v.problem(c.o.Key, h.BaseOffset, "offset index has %+v for this batch", x)
		}
		c.next, last = h.LastOffset()+1, h.LastOffset()
		count, records, maxTime = count+1, records+int64(h.RecordCount), max(maxTime, h.MaxTimestamp)
		b = rest
	}
	if last != k.Last || count != k.Batches || records != k.Records || maxTime != k.MaxTimestamp {
		c.v.problem(c.o.Key, k.Base, "block table has %+v, the block ends at offset %d with %d batches, %d records, timestamps up to %d", *k, last, count, records, maxTime)
	}
	c.batches, c.records, c.bytes = c.batches+count, c.records+records, c.bytes+size
	p := &c.v.progress
	p.Batches, p.Records, p.Bytes = p.Batches+count, p.Records+records, p.Bytes+size
	if c.v.opts.Progress != nil {
		c.v.opts.Progress(*p)
	}
	return c.v.ctx.Err()
}

func (c *objectCheck) sparse() bool {
	for _, f := range c.o.Identity.Flags {
		if f == FlagSparse {
			return true
		}
	}
	return false
}

// listings looks for objects that the head doesn't name. It remembers a number per name, not the names.
func (v *verifier) listings() error {
	seed := maphash.MakeSeed()
	named := map[uint64]bool{}
	err := v.a.allRefs(v.ctx, v.h, func(key string) { named[maphash.String(seed, key)] = true })
	if err != nil {
		if !isDamage(err) {
			return err
		}
		v.problem(HeadKey(v.h.ID), -1, "what it names is not known completely: %v", err)
		return nil
	}
	visit := func(i bucket.Info) error {
		epoch, ok := keyEpoch(i.Key)
		note := ""
		switch {
		case !ok:
			note = "unknown object"
		case named[maphash.String(seed, i.Key)]:
		case epoch < v.h.Epoch:
			note = "nothing names it: the sweep will delete it"
		default:
			note = "nothing names it: it is being uploaded, or was left by an upload of this epoch that failed"
		}
		if note != "" {
			v.report(Problem{Key: i.Key, Offset: -1, What: note, Note: true})
		}
		return nil
	}
	for _, prefix := range []string{DataPrefix(v.h.ID), PagePrefix(v.h.ID)} {
		if err := listAll(v.ctx, v.a.opts.Sweep, v.op, prefix, visit); err != nil {
			return err
		}
	}
	return nil
}
