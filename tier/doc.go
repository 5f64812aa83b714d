// Package tier owns the archive of a partition: what lies in the bucket below data/, page/, head/ and history/, byte by byte.
//
//	head (CAS) ──► inline extents ──────────────► data objects, immutable
//	     │                                              ▲
//	     └──► pages ──► pages ──► ... ──► extents ──────┘
//
// A head is the root of one partition. It is replaced by compare-and-swap only, and that swap is the only commit: an object is part
// of the archive when a head names it, directly or through a page, and not before. An extent is one range of offsets: in a
// data object, in a part of a WAL object (whose own format package tier/wal owns: a head says where the part lies), or void (given up, never assigned). Extents follow each other without a
// hole from the head's first extent to End. Start is where clients may begin; it may lie inside an extent, and inside a batch.
// Older extents are in immutable pages of 1,024, older pages in pages of pages; each entry has the maximum of all timestamps below
// it, and the running maximum up to it, so that an offset or a timestamp costs one page per level.
//
// A data object is a run of blocks, each of whole batches as the client sent them, and sections behind them, found through a
// directory at the end. See docs/format/data-object.md, head.md and page.md, whose examples the tests decode.
//
// # Promises
//
//  1. A head's version rises by one with each swap. The bytes of an attempt are frozen, and hold an id that no other attempt has. What
//     became of an attempt is decided by reading back, never guessed: won, lost, or to be sent again.
//  2. Versions that were seen never fall: who is shown an older head, or none, refuses to go on (ErrHeadRegressed).
//  3. Only the owner that a head names may change it. Claim is refused at an equal epoch of another owner and at a lower one.
//  4. No offset at or above the ceiling was ever assigned, if all owners keep to it: append refuses extents above it, and every swap
//     raises it to End plus ten times the last roll, at least 2^20.
//  5. Start and End never fall. A roll begins at End, and its objects hold every offset up to the new End.
//  6. Nothing is served whose block's checksum is wrong. A block is verified when it is first read from a chunk in memory, and again
//     when that chunk was fetched again. It is read once more from the bucket before it is reported.
//  7. An object is deleted only when the newest head says that it is dead: dropped for longer than the delay; or named by
//     nothing and of an earlier epoch, so that nobody can commit it any more; or handed over by the run that wrote it, after the head has
//     passed the version that would have named it. An older head that is kept protects what it names. Unknown keys are reported.
//  8. Order: an object is put before the swap that names it, a page before the head; the head drops an object before it is deleted,
//     and forgets that it dropped it after. A crash anywhere leaves an orphan, never a hole.
//  9. No partition deletes a WAL object, or drops one: other partitions have parts in it. Extents that name one are merged into data
//     objects before all others, and stay in the head until then.
//
// 10. Decoders are bounded: hostile bytes cost an error, and memory in proportion to what is there.
//
// # Crashes and failures
//
// Everything here may be repeated. After ErrInDoubt, or a crash, load the head and look. A failed upload leaves at most an orphan of
// the current epoch, which Discard hands to the sweep; orphans of a crashed run are swept under the next epoch.
//
// # Concurrency
//
// All methods may be called by many goroutines. A Head that came out of here is never changed. An Archive starts a goroutine per load
// of a footer or page that is not in memory, so that the load goes on when its reader gives up, and no others; Close waits for
// them. No lock is held during I/O. Memory: MetaBytes for footers and pages, a few words for each partition whose head was seen. Uploads
// and merges stream: a few bytes per batch and one span of 4 MiB.
//
// The package knows no CommitLog, no index, and no clock: times are arguments. It never logs.
package tier
