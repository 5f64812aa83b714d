package tier

import (
	"fmt"
	"hash/crc32"

	"github.com/tierbroker/tierbroker/batch"
)

// layout is the first pass of an upload: it looks at every batch and ends up with everything but the batches themselves. It
// keeps a few bytes per batch.
type layout struct {
	spec       ObjectSpec
	blockBytes int64

	ident  Identity
	blocks []Block
	block  Block // under way; Stored 0 when there is none
	index  indexBuilder
	next   int64 // offset that the next batch must have, -1 before the first
	crc    uint32
	off    int64

	footerOff int64 // where the sections begin
	indexOff  int64 // where the sections begin that a reader needs: block table, identity, directory
	size      int64
	tail      []byte // everything after the blocks
}

func newLayout(spec ObjectSpec, blockBytes int) *layout {
	l := &layout{spec: spec, blockBytes: int64(blockBytes), next: -1}
	l.ident = Identity{MinTimestamp: -1, MaxTimestamp: -1, MinAppendTime: -1, MaxAppendTime: -1, RetentionTime: -1}
	l.crc = checksum([]byte(headMagic))
	l.off = int64(len(headMagic))
	return l
}

// add looks at one batch.
func (l *layout) add(b []byte, e BatchInfo) error {
	h, err := batch.ParseHeader(b)
	if err != nil {
		return fmt.Errorf("batch at offset %d: %w", e.Base, err)
	}
	if h.Size() != len(b) {
		return fmt.Errorf("batch at offset %d has %d bytes, its header says %d: %w", h.BaseOffset, len(b), h.Size(), ErrNotContiguous)
	}
	if err := batch.CheckCRC(b); err != nil {
		return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
	}
	return l.addChecked(&h, e, b)
}

// addHeader looks at one batch of which only the header is at hand, or more. The checksum in it is taken at its word: it goes into
// those of block and object, and Put refuses a body that has other bytes.
func (l *layout) addHeader(b []byte, e BatchInfo) error {
	h, err := batch.ParseHeader(b)
	if err != nil {
		return fmt.Errorf("batch at offset %d: %w", e.Base, err)
	}
	if h.Size() != e.Size {
		return fmt.Errorf("batch at offset %d has %d bytes, its header says %d: %w", h.BaseOffset, e.Size, h.Size(), ErrNotContiguous)
	}
	return l.addChecked(&h, e, b)
}

// batchCRC is the checksum crc of what goes before, followed by a batch, of which b has the header at least.
func batchCRC(crc uint32, h *batch.Header, b []byte) uint32 {
	if size := h.Size(); size > len(b) || size > directCRC {
		crc = crc32.Update(crc, castagnoli, b[:batch.PrefixLen])
		return combineCRC(crc, h.CRC, int64(size-batch.PrefixLen))
	}
	return crc32.Update(crc, castagnoli, b)
}

// addChecked takes in a batch; b is all of it, or its header.
func (l *layout) addChecked(h *batch.Header, e BatchInfo, b []byte) error {
	base, last, size := h.BaseOffset, h.LastOffset(), int64(h.Size())
	if err := l.place(base, last); err != nil {
		return err
	}
	if l.block.Stored > 0 && l.block.Stored+size > l.blockBytes {
		l.endBlock()
	}
	if l.off+size > MaxObjectSize {
		return fmt.Errorf("object of more than %d bytes: %w", int64(MaxObjectSize), ErrTooLarge)
	}
	k := &l.block
	if k.Stored == 0 {
		*k = Block{Base: base, Off: l.off, MaxTimestamp: h.MaxTimestamp}
	}
	k.Last = last
	k.Stored += size
	k.Batches++
	k.Records += int64(h.RecordCount)
	k.MaxTimestamp = max(k.MaxTimestamp, h.MaxTimestamp)
	k.CRC = batchCRC(k.CRC, h, b)
	l.off += size
	l.index.add(base, last, size, h.MaxTimestamp)
	l.describe(h, e)
	return nil
}

// place checks that the batch's offsets follow those before it.
func (l *layout) place(base, last int64) error {
	s := &l.spec
	ok := last >= base && last < s.End
	switch {
	case l.next >= 0:
		ok = ok && (base == l.next || s.Sparse && base > l.next)
	case s.Sparse:
		ok = ok && last >= s.Start && (base >= s.Start || s.AllowBefore)
	default:
		ok = ok && last >= s.Start && (base == s.Start || base < s.Start && s.AllowBefore)
	}
	if !ok {
		return fmt.Errorf("batch [%d, %d] in object [%d, %d), expected offset %d: %w", base, last, s.Start, s.End, max(l.next, s.Start), ErrNotContiguous)
	}
	if l.next < 0 {
		l.ident.Base = base
	}
	l.next = last + 1
	return nil
}

// describe adds the batch to the identity.
func (l *layout) describe(h *batch.Header, e BatchInfo) {
	i := &l.ident
	i.Batches++
	i.Records += int64(h.RecordCount)
	i.Bytes += int64(h.Size())
	i.MinTimestamp = minTime(i.MinTimestamp, h.FirstTimestamp)
	i.MaxTimestamp = max(i.MaxTimestamp, h.MaxTimestamp)
	retain := e.RetentionTime
	if e.AppendTime > 0 {
		i.MinAppendTime = minTime(i.MinAppendTime, e.AppendTime)
		i.MaxAppendTime = max(i.MaxAppendTime, e.AppendTime)
	}
	if retain == 0 {
		retain = RetentionTime(h.MaxTimestamp, e.AppendTime)
	}
	i.RetentionTime = max(i.RetentionTime, retain)
	if n := len(i.Epochs); n > 0 && i.Epochs[n-1].Epoch == h.LeaderEpoch {
		i.Epochs[n-1].End = h.LastOffset() + 1
		return
	}
	i.Epochs = append(i.Epochs, EpochRange{Epoch: h.LeaderEpoch, Start: h.BaseOffset, End: h.LastOffset() + 1})
}

// RetentionTime is the time from which a batch's age counts: its largest timestamp, or its append time when that is earlier
// (a producer's clock may be years ahead) or when it has no timestamp.
func RetentionTime(maxTimestamp, appendTime int64) int64 {
	if appendTime > 0 && (maxTimestamp < 0 || maxTimestamp > appendTime) {
		return appendTime
	}
	return maxTimestamp
}

// minTime is the smaller of two times of which -1 means unknown.
func minTime(a, b int64) int64 {
	if a < 0 || b < 0 {
		return max(a, b)
	}
	return min(a, b)
}

func (l *layout) endBlock() {
	if l.block.Stored == 0 {
		return
	}
	l.block.Plain = l.block.Stored
	l.crc = combineCRC(l.crc, l.block.CRC, l.block.Stored)
	l.blocks = append(l.blocks, l.block)
	l.block = Block{}
	l.index.endBlock()
}

// finish builds the sections. The small ones that every reader needs come last, so that one short read gets them all.
func (l *layout) finish(cluster, incarnation string) error {
	l.endBlock()
	s := &l.spec
	if len(l.blocks) == 0 || l.next != s.End && !s.Sparse {
		return fmt.Errorf("object [%d, %d) ends at offset %d: %w", s.Start, s.End, l.next, ErrNotContiguous)
	}
	i := &l.ident
	i.Format, i.Cluster, i.ClusterIncarnation = identityFormat, cluster, incarnation
	i.Topic, i.TopicID, i.Partition, i.Epoch = s.Topic, s.ID.Topic, s.ID.Partition, s.Epoch
	i.Start, i.End, i.LogStart, i.Created, i.History = s.Start, s.End, s.LogStart, s.Now, s.Epochs
	if len(s.Aborted) == 0 {
		i.Flags = append(i.Flags, FlagNoAborted)
	}
	if s.Sparse {
		i.Flags = append(i.Flags, FlagSparse)
	}
	ident, err := i.encode()
	if err != nil {
		return err
	}
	l.footerOff = l.off
	var dir []Section
	add := func(t SectionType, required bool, b []byte) {
		dir = append(dir, Section{Type: t, Required: required, Off: l.footerOff + int64(len(l.tail)), Len: int64(len(b)), CRC: checksum(b)})
		l.tail = append(l.tail, b...)
	}
	l.tail = make([]byte, 0, len(l.index.done)+len(s.Producers)+len(ident)+64*len(l.blocks)+1024)
	add(SectionOffsetIndex, false, l.index.done)
	add(SectionAborted, false, appendAborted(nil, s.Aborted))
	if len(s.Producers) > 0 {
		add(SectionProducers, false, s.Producers)
	}
	l.indexOff = l.footerOff + int64(len(l.tail))
	add(SectionBlocks, true, appendBlocks(nil, l.blocks))
	add(SectionIdentity, true, ident)
	l.size = l.footerOff + int64(len(l.tail)) + int64(len(dir)*dirEntryLen) + trailerLen
	l.tail = appendFooter(l.tail, dir, l.size)
	l.crc = crc32.Update(l.crc, castagnoli, l.tail)
	l.index = indexBuilder{}
	if l.size > MaxObjectSize {
		return fmt.Errorf("object of %d bytes: %w", l.size, ErrTooLarge)
	}
	return nil
}

// extent describes the finished object for a head.
func (l *layout) extent(key string) Extent {
	i := &l.ident
	return Extent{
		Start: i.Start, End: i.End, Kind: KindData, Key: key, Size: l.size, IndexOff: l.indexOff, FooterOff: l.footerOff,
		MaxTimestamp: i.MaxTimestamp, MaxAppendTime: i.MaxAppendTime, RetentionTime: i.RetentionTime,
		Bytes: i.Bytes, Records: i.Records, Epoch: i.Epoch,
	}
}
