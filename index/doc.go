// Package index owns the broker's index: a Pebble store of what is derived from the
// CommitLog and from the bucket, so that it can be found without reading either. It is
// never the only copy of anything: when its directory is lost, it is rebuilt.
//
// # What is in it
//
// One key space, ordered by kind, then partition (see docs/format/index.md for bytes):
//
//	c                                        checkpoint: log position, extra bytes
//	e topic partition last-offset            entry of a batch
//	f file-base topic partition              last offset of a partition in a log file
//	h topic partition                        cached head
//	m topic partition                        meta of a partition
//	p topic partition producer-id            producer state
//	t topic partition max-timestamp last     time key
//	v                                        format version
//
// Entries are keyed by their last offset and not by their first, so that "the batch that
// holds offset x, or the next one" is a single seek.
//
// A time key is written for each entry whose max timestamp is above that of all entries
// before it in the partition: the running maximum. So time keys rise in offset order, and
// the first one at or above a timestamp names the first entry at or above it. When entries
// are deleted from below, the highest time key among them stays: it is the proof that
// later entries without a time key are not above it.
//
// # Invariants
//
//  1. Pebble's own WAL is off: the CommitLog is the log. Commits come one at a time, in the
//     order of the log, and memtables are flushed in that order. What a crash leaves is
//     therefore all of the commits up to some point and none after it, and the checkpoint
//     found among them says which point.
//  2. [Store.FlushedCheckpoint] is read from flushed tables only, so it is never above
//     what a crash would leave.
//  3. A store that cannot be read, or that failed while writing its manifest, reports
//     [ErrCorrupt], for ever. The caller closes it, removes the directory, and rebuilds.
//     A full disk is not that: [ErrStalled] goes away with its cause.
//  4. A store of a newer format is refused with [ErrVersion] and not touched.
//
// # Resources
//
// Block cache and memtables share 64 MiB: usually 32 MiB of cache, and memtables of 16 MiB
// each, which take from the cache when flushing falls behind (at three of them commits
// wait). 256 open tables. There is no state per partition in memory. A reserve of
// disk space is given back when the disk is full, so that what is in memory can
// still be flushed.
//
// # Concurrency
//
// Reads run beside each other and beside a commit. Callbacks may call the store. Close
// waits for running calls; later ones get [ErrClosed]. Background work (flush, compaction)
// is Pebble's, and ends with Close.
package index
