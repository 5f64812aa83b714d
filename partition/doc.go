// Package partition is where hot and cold meet: a Partition is one offset space over the local commit log and the
// archive in the bucket, and a Set is all partitions of a broker over one log, one index and one archive.
//
// # A write
//
//	Append     validates the batch, checks the producer's sequence, assigns offsets and enqueues the frame;
//	           all of that under the partition's lock, none of it I/O
//	Written    the frame is in the page cache; whoever waits first writes for all
//	commit     the commit loop sees the log's watermarks move: written entries of async topics become visible;
//	loop       synced entries go into the index, with the checkpoint, as one batch, and then become visible
//	Durable    returns when the loop has passed the frame
//	roll       puts durable batches into data objects and swaps the head, for a busy partition once for up to twelve
//	reclaim    drops the oldest log file once every partition in it is tiered past it
//
// # Offsets
//
//	start <= tiered <= durable <= next <= ceiling
//	local <= durable; everything in [local, next) is in the log
//
// tiered is the head's end. Nothing in [start, durable) is in neither place: local <= max(tiered, start).
//
// # Invariants
//
//  1. Offset order is log order: offsets are assigned and frames enqueued under one lock.
//  2. An entry is in the index only if its frame is synced; the checkpoint covers exactly the entries before it.
//  3. The durable offset and the start offset never go back while somebody may have seen them. A failed write returns
//     next to the last stored batch; where consumers may have seen more (async), the partition skips to the ceiling
//     and leaves the gap void.
//  4. A log file is dropped only after the index, flushed, no longer points into it, and heads that cover its records
//     are in the index: a restart without the bucket never reuses an offset.
//  5. One goroutine writes the index (the commit loop); one holder of swap changes a partition's head.
//  6. No lock is held over I/O.
//
// # Crash
//
// After a crash at any point the log is replayed from the checkpoint; what was synced is there again, what was not is
// either there or gone as a whole suffix. A crash between upload and swap leaves an orphan object, never a hole. Without
// an index, offsets, producers and places are rebuilt from log and heads.
//
// A take-over (takeover.go) may be interrupted before and after each of its steps, by a crash, an earlier owner that goes on, or
// another successor: seals are the same whoever puts them, and its one swap replaces the version of the head for which it
// has read the streams, or loses.
//
// # What it never does
//
// It knows no Kafka protocol and no error codes (package broker maps errors), logs nothing (events are handed to
// OnEvent), and deletes no data that it can't prove covered: what pins the log and can't be rolled moves to a quarantine
// file.
package partition
