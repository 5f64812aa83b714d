package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tierbroker/tierbroker/frame"
)

// fewKeys is up to how many keys a range is deleted key by key: that is cheaper for later
// reads than a range tombstone.
const fewKeys = 32

// Batch collects changes that become visible together, in the order in which they were
// made. It is used by one goroutine. An error of a call is kept and returned by Commit.
type Batch struct {
	s     *Store
	b     *pebble.Batch
	err   error
	puts  int                            // entries put, which the store does not show yet
	times []timeRef                      // time keys put, likewise
	cuts  map[frame.PartitionID]*timeCut // what deletions leave of the time keys in the store
	pos   uint64                         // checkpoint
	extra []byte
	point bool // a checkpoint is set
	key   [maxKeyLen]byte
	end   [maxKeyLen]byte
	val   []byte
}

type timeRef struct {
	id       frame.PartitionID
	ts, last int64
}

// timeCut says what the batch leaves of the time keys that the store shows of a partition.
type timeCut struct {
	floor int64 // those of entries below this offset are gone
	above bool  // some were deleted from above: then the highest one left is ts, if found
	ts    int64
	found bool
}

// NewBatch returns an empty batch. Close it.
func (s *Store) NewBatch() *Batch {
	return &Batch{s: s, b: s.db.NewBatch()}
}

// Empty reports whether there is nothing to commit.
func (b *Batch) Empty() bool { return b.b.Empty() && !b.point && b.err == nil }

// Len returns the size of the collected changes, in bytes.
func (b *Batch) Len() int { return b.b.Len() }

func (b *Batch) fail(err error) {
	if err != nil && b.err == nil {
		b.err = err
	}
}

func (b *Batch) set(key, val []byte) { b.fail(b.b.Set(key, val, nil)) }

func (b *Batch) delete(key []byte) { b.fail(b.b.Delete(key, nil)) }

func (b *Batch) deleteRange(from, to []byte) { b.fail(b.b.DeleteRange(from, to, nil)) }

// PutEntry adds the entry of a batch, above all entries of the partition. newMax says that
// e.MaxTimestamp is above that of all entries before it (RunningMax gives that maximum
// after a start or a deletion): such entries are in the time index too.
func (b *Batch) PutEntry(id frame.PartitionID, e Entry, newMax bool) {
	if e.Base < 0 || e.Last < e.Base {
		b.fail(fmt.Errorf("index: put entry [%d, %d] of %s: bad offsets", e.Base, e.Last, id))
		return
	}
	b.val = appendEntry(b.val[:0], &e)
	b.set(entryKey(b.key[:0], id, e.Last), b.val)
	b.puts++
	if newMax {
		b.set(timeKey(b.key[:0], id, e.MaxTimestamp, e.Last), nil)
		b.times = append(b.times, timeRef{id: id, ts: e.MaxTimestamp, last: e.Last})
	}
}

// PutProducer keeps the state of a producer in a partition.
func (b *Batch) PutProducer(id frame.PartitionID, pid int64, val []byte) {
	b.set(producerKey(b.key[:0], id, pid), val)
}

// DeleteProducer forgets a producer.
func (b *Batch) DeleteProducer(id frame.PartitionID, pid int64) {
	b.delete(producerKey(b.key[:0], id, pid))
}

// PutMeta keeps the meta of a partition, which makes [Store.Partitions] list it.
func (b *Batch) PutMeta(id frame.PartitionID, val []byte) {
	b.set(prefix(b.key[:0], kindMeta, id), val)
}

// PutHead keeps a copy of the partition's head.
func (b *Batch) PutHead(id frame.PartitionID, val []byte) {
	b.set(prefix(b.key[:0], kindHead, id), val)
}

// PutFileUse says that the log file that starts at fileBase holds frames of the partition,
// the highest offset among them being last.
func (b *Batch) PutFileUse(fileBase uint64, id frame.PartitionID, last int64) {
	b.val = binary.BigEndian.AppendUint64(b.val[:0], uint64(last))
	b.set(fileKey(b.key[:0], fileBase, id), b.val)
}

// DropFileUse forgets all uses of a log file.
func (b *Batch) DropFileUse(fileBase uint64) {
	b.deleteRange(filePrefix(b.key[:0], fileBase), filePrefixEnd(b.end[:0], fileBase))
}

// DropPartition forgets all about a partition, except for its uses of log files.
func (b *Batch) DropPartition(id frame.PartitionID) {
	for _, kind := range []byte{kindEntry, kindProducer, kindTime} {
		b.deleteRange(prefix(b.key[:0], kind, id), prefixEnd(b.end[:0], kind, id))
	}
	b.delete(prefix(b.key[:0], kindMeta, id))
	b.delete(prefix(b.key[:0], kindHead, id))
	b.times = keepTimes(b.times, func(t timeRef) bool { return t.id != id })
	b.cut(id).leave(0, false)
}

// DeleteEntriesBelow deletes the entries of batches that end below offset.
func (b *Batch) DeleteEntriesBelow(id frame.PartitionID, offset int64) {
	if offset <= 0 {
		return
	}
	b.deleteEntries(prefix(b.key[:0], kindEntry, id), entryKey(b.end[:0], id, offset))
	b.deleteTimesBelow(id, offset)
}

// DeleteEntriesFrom deletes the entries of batches that end at or above offset. The running
// maximum falls back to that of the entries before them.
func (b *Batch) DeleteEntriesFrom(id frame.PartitionID, offset int64) {
	offset = max(offset, 0)
	b.deleteEntries(entryKey(b.key[:0], id, offset), prefixEnd(b.end[:0], kindEntry, id))
	b.deleteTimesFrom(id, offset)
}

// deleteEntries deletes a range of entries with as little tombstone as it takes.
func (b *Batch) deleteEntries(from, to []byte) {
	if b.puts > 0 { // some may be in this batch, where they can't be counted
		b.deleteRange(from, to)
		return
	}
	b.iterate(from, to, func(it *pebble.Iterator) {
		n := 0
		for ok := it.First(); ok && n <= fewKeys; ok = it.Next() {
			n++
		}
		if n > fewKeys {
			b.deleteRange(from, to)
			return
		}
		for ok := it.First(); ok; ok = it.Next() {
			b.delete(it.Key())
		}
	})
}

// deleteTimesBelow deletes the time keys of entries below offset, except for the highest
// of them. Time keys rise in offset order, so these are the first ones.
func (b *Batch) deleteTimesBelow(id frame.PartitionID, offset int64) {
	below := func(t timeRef) bool { return t.id == id && t.last < offset }
	highest := timeRef{last: -1}
	for _, t := range b.times {
		if below(t) {
			highest = t
		}
	}
	b.times = keepTimes(b.times, func(t timeRef) bool {
		if !below(t) || t == highest {
			return true
		}
		b.delete(timeKey(b.key[:0], id, t.ts, t.last))
		return false
	})
	b.iterate(prefix(b.key[:0], kindTime, id), prefixEnd(b.end[:0], kindTime, id), func(it *pebble.Iterator) {
		var keep []byte // the highest below offset so far
		n := 0
		for ok := it.First(); ok; ok = it.Next() {
			_, last, ok := parseTimeKey(it.Key())
			if !ok {
				b.fail(badValue("time key"))
				return
			}
			if last >= offset {
				break
			}
			if n++; n > 1 && n <= fewKeys {
				b.delete(keep)
			}
			keep = append(keep[:0], it.Key()...)
		}
		if n > fewKeys {
			b.deleteRange(prefix(b.key[:0], kindTime, id), keep)
		}
		c := b.cut(id)
		switch {
		case keep == nil:
		case highest.last >= 0: // the highest is in this batch
			b.delete(keep)
			c.floor = max(c.floor, offset)
		default:
			_, last, _ := parseTimeKey(keep)
			c.floor = max(c.floor, last)
		}
	})
}

// deleteTimesFrom deletes the time keys of entries that end at or above offset: the last
// ones.
func (b *Batch) deleteTimesFrom(id frame.PartitionID, offset int64) {
	b.times = keepTimes(b.times, func(t timeRef) bool {
		if t.id != id || t.last < offset {
			return true
		}
		b.delete(timeKey(b.key[:0], id, t.ts, t.last))
		return false
	})
	c := b.cut(id)
	left, found := int64(0), false
	defer func() { c.leave(left, found) }()
	b.iterate(prefix(b.key[:0], kindTime, id), prefixEnd(b.end[:0], kindTime, id), func(it *pebble.Iterator) {
		var first []byte // the lowest one to delete so far
		n := 0
		for ok := it.Last(); ok; ok = it.Prev() {
			ts, last, ok := parseTimeKey(it.Key())
			if !ok {
				b.fail(badValue("time key"))
				return
			}
			if last < offset {
				left, found = ts, last >= c.floor
				break
			}
			if n++; n <= fewKeys {
				b.delete(it.Key())
			}
			first = append(first[:0], it.Key()...)
		}
		if n > fewKeys {
			b.deleteRange(first, prefixEnd(b.end[:0], kindTime, id))
		}
	})
}

// cut returns what is noted of the partition's time keys.
func (b *Batch) cut(id frame.PartitionID) *timeCut {
	c := b.cuts[id]
	if c == nil {
		c = new(timeCut)
		if b.cuts == nil {
			b.cuts = map[frame.PartitionID]*timeCut{}
		}
		b.cuts[id] = c
	}
	return c
}

// leave notes a deletion from above; an earlier one may have left less.
func (c *timeCut) leave(ts int64, found bool) {
	if c.above {
		found = found && c.found
		ts = min(ts, c.ts)
	}
	c.above, c.ts, c.found = true, ts, found
}

// RunningMax is [Store.RunningMax] as it will be after the batch: what an entry put next
// must be above to be a new maximum. Needed after DeleteEntriesFrom and DropPartition.
func (b *Batch) RunningMax(id frame.PartitionID) (ts int64, found bool, err error) {
	for i := len(b.times) - 1; i >= 0; i-- {
		if b.times[i].id == id {
			return b.times[i].ts, true, nil
		}
	}
	if c := b.cuts[id]; c != nil && c.above {
		return c.ts, c.found, b.err
	}
	return b.s.RunningMax(id)
}

func keepTimes(times []timeRef, keep func(timeRef) bool) []timeRef {
	out := times[:0]
	for _, t := range times {
		if keep(t) {
			out = append(out, t)
		}
	}
	return out
}

// iterate runs fn over what the store shows of a range.
func (b *Batch) iterate(from, to []byte, fn func(it *pebble.Iterator)) {
	if b.err != nil {
		return
	}
	if err := b.s.enter(); err != nil {
		b.fail(err)
		return
	}
	defer b.s.leave()
	it, err := b.s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		b.fail(readError("delete", err))
		return
	}
	fn(it)
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		b.fail(readError("delete", err))
	}
}

// SetCheckpoint says that the store, with this batch, covers the CommitLog up to the
// position pos. extra is kept with it.
func (b *Batch) SetCheckpoint(pos uint64, extra []byte) {
	b.pos, b.extra, b.point = pos, append(b.extra[:0], extra...), true
}

// Commit makes the changes visible, all at once. They are on disk only after a flush. On
// an error nothing was changed, and the batch may be committed again if it is ErrStalled;
// other errors stay. After success the batch is empty and can be used again.
func (b *Batch) Commit() error {
	if b.err != nil {
		return b.err
	}
	s := b.s
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if b.b.Len() > math.MaxInt32 {
		return fmt.Errorf("index: commit of %d bytes", b.b.Len())
	}
	if err := s.waitRoom(int64(b.b.Len()) * 2); err != nil { // a memtable needs more than the bytes
		return err
	}
	if b.point {
		b.val = append(binary.BigEndian.AppendUint64(b.val[:0], b.pos), b.extra...)
		b.set([]byte{kindCheckpoint}, b.val)
	}
	if b.err != nil {
		return b.err
	}
	if err := b.b.Commit(pebble.NoSync); err != nil {
		return readError("commit", err)
	}
	if err := s.events.failure(); err != nil {
		return err
	}
	s.commits.Add(1)
	b.Reset()
	return nil
}

// Reset drops all changes and errors.
func (b *Batch) Reset() {
	b.b.Reset()
	b.err, b.puts, b.times, b.point = nil, 0, b.times[:0], false
	clear(b.cuts)
}

// Close releases the batch, committed or not.
func (b *Batch) Close() error {
	if err := b.b.Close(); err != nil {
		return fmt.Errorf("index: close batch: %w", err)
	}
	return nil
}
