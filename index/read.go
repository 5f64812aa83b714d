package index

import (
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tierbroker/tierbroker/frame"
)

// span is a range of keys with the memory for it.
type span struct {
	o        pebble.IterOptions
	from, to [maxKeyLen]byte
	seek     [maxKeyLen]byte
}

var spans = sync.Pool{New: func() any { return new(span) }}

// kindSpan is the range of all keys of one kind and partition.
func kindSpan(kind byte, id frame.PartitionID) *span {
	sp := spans.Get().(*span)
	sp.o.LowerBound = prefix(sp.from[:0], kind, id)
	sp.o.UpperBound = prefixEnd(sp.to[:0], kind, id)
	return sp
}

// allSpan is the range of all keys of one kind.
func allSpan(kind byte) *span {
	sp := spans.Get().(*span)
	sp.o.LowerBound = append(sp.from[:0], kind)
	sp.o.UpperBound = append(sp.to[:0], kind+1)
	return sp
}

// read runs fn on an iterator over the range, and gives sp back.
func (s *Store) read(what string, sp *span, fn func(it *pebble.Iterator) error) error {
	defer spans.Put(sp)
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	it, err := s.db.NewIter(&sp.o)
	if err != nil {
		return readError(what, err)
	}
	err = fn(it)
	if iterErr := it.Error(); iterErr != nil {
		err = readError(what, iterErr) // it made fn see an end where there is none
	}
	if closeErr := it.Close(); closeErr != nil && err == nil {
		err = readError(what, closeErr)
	}
	return err
}

// entryAt decodes the entry under the iterator.
func entryAt(it *pebble.Iterator) (Entry, error) {
	val, err := it.ValueAndErr()
	if err != nil {
		return Entry{}, readError("read entry", err)
	}
	e, ok := decodeEntry(it.Key(), val)
	if !ok {
		return Entry{}, badValue("entry")
	}
	return e, nil
}

// one is the entry that seek finds among those of the partition.
func (s *Store) one(id frame.PartitionID, seek func(it *pebble.Iterator, sp *span) bool) (e Entry, found bool, err error) {
	sp := kindSpan(kindEntry, id)
	err = s.read("find entry", sp, func(it *pebble.Iterator) (err error) {
		if found = seek(it, sp); found {
			e, err = entryAt(it)
		}
		return err
	})
	return e, found && err == nil, err
}

// Find returns the first entry that ends at or above offset: the batch that holds it, or
// the next one.
func (s *Store) Find(id frame.PartitionID, offset int64) (Entry, bool, error) {
	return s.one(id, func(it *pebble.Iterator, sp *span) bool {
		return it.SeekGE(entryKey(sp.seek[:0], id, max(offset, 0)))
	})
}

// First returns the partition's first entry.
func (s *Store) First(id frame.PartitionID) (Entry, bool, error) {
	return s.one(id, func(it *pebble.Iterator, _ *span) bool { return it.First() })
}

// Last returns the partition's last entry.
func (s *Store) Last(id frame.PartitionID) (Entry, bool, error) {
	return s.one(id, func(it *pebble.Iterator, _ *span) bool { return it.Last() })
}

// Scan calls fn for the entries that end at or above offset, in order, until fn returns
// false.
func (s *Store) Scan(id frame.PartitionID, offset int64, fn func(Entry) bool) error {
	sp := kindSpan(kindEntry, id)
	return s.read("scan entries", sp, func(it *pebble.Iterator) error {
		for ok := it.SeekGE(entryKey(sp.seek[:0], id, max(offset, 0))); ok; ok = it.Next() {
			e, err := entryAt(it)
			if err != nil {
				return err
			}
			if !fn(e) {
				return nil
			}
		}
		return nil
	})
}

// timeSeek returns the time key that seek finds.
func (s *Store) timeSeek(id frame.PartitionID, seek func(it *pebble.Iterator, sp *span) bool) (ts, last int64, found bool, err error) {
	sp := kindSpan(kindTime, id)
	err = s.read("find time", sp, func(it *pebble.Iterator) error {
		if found = seek(it, sp); !found {
			return nil
		}
		var ok bool
		if ts, last, ok = parseTimeKey(it.Key()); !ok {
			return badValue("time key")
		}
		return nil
	})
	return ts, last, found && err == nil, err
}

// FindTime returns the first entry in offset order that ends at or above from and whose
// max timestamp is at least ts. It is one seek in each index, unless an entry before from
// has a timestamp of ts or more: then the entries from there to the next running maximum
// are scanned.
func (s *Store) FindTime(id frame.PartitionID, ts, from int64) (Entry, bool, error) {
	_, last, found, err := s.timeSeek(id, func(it *pebble.Iterator, sp *span) bool {
		return it.SeekGE(timeKey(sp.seek[:0], id, ts, 0))
	})
	if err != nil || !found {
		return Entry{}, false, err
	}
	if last >= from {
		e, ok, err := s.Find(id, last)
		if err != nil || ok && e.Last == last {
			return e, ok, err
		}
	}
	return s.search(id, from, func(e Entry) bool { return e.MaxTimestamp >= ts })
}

// search scans for the first entry that ends at or above from and that match accepts.
func (s *Store) search(id frame.PartitionID, from int64, match func(Entry) bool) (out Entry, found bool, err error) {
	err = s.Scan(id, from, func(e Entry) bool {
		if found = match(e); found {
			out = e
		}
		return !found
	})
	return out, found && err == nil, err
}

// MaxTimestamp returns the entry with the largest max timestamp among those that end at or
// above from; the first of them if there are several. When the largest of all is below
// from, the entries from there on are scanned.
func (s *Store) MaxTimestamp(id frame.PartitionID, from int64) (Entry, bool, error) {
	_, last, found, err := s.timeSeek(id, func(it *pebble.Iterator, _ *span) bool { return it.Last() })
	if err != nil {
		return Entry{}, false, err
	}
	if found && last >= from {
		e, ok, err := s.Find(id, last)
		if err != nil || ok && e.Last == last {
			return e, ok, err
		}
	}
	var best Entry
	found = false
	err = s.Scan(id, from, func(e Entry) bool {
		if !found || e.MaxTimestamp > best.MaxTimestamp {
			best, found = e, true
		}
		return true
	})
	return best, found && err == nil, err
}

// RunningMax returns the largest max timestamp of all entries put, deleted ones from below
// included: what the next entry must be above to be a new maximum.
func (s *Store) RunningMax(id frame.PartitionID) (ts int64, found bool, err error) {
	ts, _, found, err = s.timeSeek(id, func(it *pebble.Iterator, _ *span) bool { return it.Last() })
	return ts, found, err
}

// Producers calls fn for the partition's producers, by id, until fn returns false. val is
// valid during the call.
func (s *Store) Producers(id frame.PartitionID, fn func(pid int64, val []byte) bool) error {
	return s.each("read producers", kindSpan(kindProducer, id), entryKeyLen, func(key, val []byte) bool {
		return fn(getSigned(key[prefixLen:]), val)
	})
}

// each calls fn for all keys of a range, which must have the given length.
func (s *Store) each(what string, sp *span, keyLen int, fn func(key, val []byte) bool) error {
	return s.read(what, sp, func(it *pebble.Iterator) error {
		for ok := it.First(); ok; ok = it.Next() {
			val, err := it.ValueAndErr()
			if err != nil {
				return readError(what, err)
			}
			if len(it.Key()) != keyLen {
				return badValue("key")
			}
			if !fn(it.Key(), val) {
				return nil
			}
		}
		return nil
	})
}

// value returns a copy of a single value.
func (s *Store) value(key []byte) ([]byte, bool, error) {
	if err := s.enter(); err != nil {
		return nil, false, err
	}
	defer s.leave()
	return s.get(key)
}

// Meta returns the meta of a partition.
func (s *Store) Meta(id frame.PartitionID) ([]byte, bool, error) {
	return s.value(prefix(nil, kindMeta, id))
}

// Head returns the copy of a partition's head.
func (s *Store) Head(id frame.PartitionID) ([]byte, bool, error) {
	return s.value(prefix(nil, kindHead, id))
}

// Partitions calls fn for all partitions that have meta, in order, until fn returns false.
// meta is valid during the call.
func (s *Store) Partitions(fn func(id frame.PartitionID, meta []byte) bool) error {
	return s.each("list partitions", allSpan(kindMeta), prefixLen, func(key, val []byte) bool {
		return fn(getID(key[1:]), val)
	})
}

// FileUse calls fn for the partitions that have frames in a log file, with their highest
// offset there, until fn returns false.
func (s *Store) FileUse(fileBase uint64, fn func(id frame.PartitionID, last int64) bool) error {
	sp := spans.Get().(*span)
	sp.o.LowerBound = filePrefix(sp.from[:0], fileBase)
	sp.o.UpperBound = filePrefixEnd(sp.to[:0], fileBase)
	bad := false
	err := s.each("read file use", sp, fileKeyLen, func(key, val []byte) bool {
		_, last, ok := decodeFileUse(key, val)
		if bad = !ok; bad {
			return false
		}
		return fn(getID(key[9:]), last)
	})
	if err == nil && bad {
		return badValue("file use")
	}
	return err
}

// FileUses returns the bases of all log files that are in use, in order.
func (s *Store) FileUses() ([]uint64, error) {
	var out []uint64
	sp := allSpan(kindFileUse)
	err := s.read("list file uses", sp, func(it *pebble.Iterator) error {
		ok := it.First()
		for ok {
			val, err := it.ValueAndErr()
			if err != nil {
				return readError("list file uses", err)
			}
			base, _, good := decodeFileUse(it.Key(), val)
			if !good {
				return badValue("file use")
			}
			out = append(out, base)
			ok = it.SeekGE(filePrefixEnd(sp.seek[:0], base))
		}
		return nil
	})
	return out, err
}

// Checkpoint returns the checkpoint as committed last, flushed or not. ok is false in a new
// store.
func (s *Store) Checkpoint() (pos uint64, extra []byte, ok bool, err error) {
	val, found, err := s.value([]byte{kindCheckpoint})
	if err != nil || !found {
		return 0, nil, false, err
	}
	pos, extra, ok = decodeCheckpoint(val)
	if !ok {
		return 0, nil, false, badValue("checkpoint")
	}
	return pos, extra, true, nil
}

// FlushedCheckpoint returns the checkpoint that is on disk: what a crash would leave. It
// is 0 in a new store. When it can't be read, it is the one known before.
func (s *Store) FlushedCheckpoint() uint64 {
	s.durable.Lock()
	seen, pos := s.durable.seen, s.durable.pos
	s.durable.Unlock()
	if s.events.flushCount() == seen || s.enter() != nil {
		return pos
	}
	defer s.leave()
	return s.refreshDurable()
}

// refreshDurable reads the checkpoint from flushed tables only. The caller holds a call.
func (s *Store) refreshDurable() uint64 {
	seen := s.events.flushCount()
	pos, err := s.readDurable()
	s.durable.Lock()
	defer s.durable.Unlock()
	if err == nil && seen >= s.durable.seen {
		s.durable.seen, s.durable.pos = seen, pos
	}
	return s.durable.pos
}

func (s *Store) readDurable() (pos uint64, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound:                []byte{kindCheckpoint},
		UpperBound:                []byte{kindCheckpoint + 1},
		OnlyReadGuaranteedDurable: true,
	})
	if err != nil {
		return 0, err
	}
	if it.First() {
		var ok bool
		if pos, _, ok = decodeCheckpoint(it.Value()); !ok {
			err = badValue("checkpoint")
		}
	}
	return pos, errors.Join(err, it.Error(), it.Close())
}

// Metrics are figures for operators.
type Metrics struct {
	DiskBytes       uint64 // of all files of the store
	Tables          int64
	MemTableBytes   uint64
	CacheBytes      int64
	CacheHits       int64
	CacheMisses     int64
	Flushes         int64
	Compactions     int64
	CompactionDebt  uint64 // bytes
	ReadAmplify     int
	BackgroundError error // of the last flush or compaction, nil when it went well
}

// Metrics returns the current figures; all zero in a closed store.
func (s *Store) Metrics() Metrics {
	if s.enter() != nil {
		return Metrics{}
	}
	defer s.leave()
	m := s.db.Metrics()
	_, bad := s.events.watch()
	total := m.Total()
	return Metrics{
		DiskBytes:       m.DiskSpaceUsage(),
		Tables:          total.TablesCount,
		MemTableBytes:   m.MemTable.Size,
		CacheBytes:      m.BlockCache.Size,
		CacheHits:       m.BlockCache.Hits,
		CacheMisses:     m.BlockCache.Misses,
		Flushes:         m.Flush.Count,
		Compactions:     m.Compact.Count,
		CompactionDebt:  m.Compact.EstimatedDebt,
		ReadAmplify:     m.ReadAmp(),
		BackgroundError: bad,
	}
}
