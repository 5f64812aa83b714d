// Package segment owns the CommitLog: one append-only log of frames in files of fixed
// size. It knows no index, no archive and no records; package frame gives the bytes of a
// frame, and this package says where frames stand, when they are written and synced, and
// which of them still count after a crash.
//
// # Positions and files
//
// A position is a byte address in a space that only grows. A file owns the positions
// from its base on: position p lies at offset p - base. Its first FileHeaderLen bytes
// are its header; frames follow without gaps, each padded with zeros to a multiple of
// 8. The space between the end of a file's frames and the base of the next file is
// never used. Files in the directory:
//
//	<base, 16 hex digits>.log      a file of the log
//	spare-<n>.tmp                  allocated or recycled, waiting for use
//	dropped-<base>.log.tmp         dropped, but still referenced
//	quarantine/                    see Quarantine
//
// The header names the life of the log that wrote the file (a random incarnation), the
// predecessor, and the position where that one's frames end. docs/format/commitlog.md
// has every byte, and an example that a test decodes. All numbers are big-endian:
//
//	 0        8     12    14    16    18    20    24
//	+--------+-----+-----+-----+-----+-----+-----+
//	| magic  | crc |vers.| len |kind |flags|  0  |
//	+--------+-----+-----+-----+-----+-----+-----+
//	24  incarnation u64      32  base u64
//	40  capacity u64         48  predecessor base u64
//	56  predecessor end u64  64  synced u64
//	72  created i64 (ms)     80  16 bytes of 0
//
// The same 96 bytes stand again at offset 1024. At offset 2048 stands the seal, when the
// log was closed in good order, or when a recovery ended the log in this file: magic, crc,
// incarnation, base, end. The crc is CRC32C of all that follows it.
//
// # Promises
//
//  1. Enqueue does no I/O. What waits together is written by one pwritev, straight from
//     the callers' memory, and one fdatasync serves all that wait for it.
//  2. A position that was synced is never given to another frame, nor is one given twice
//     in the life of a Log.
//  3. A frame counts only where its header says it stands, in the life that its file's
//     header names, below the end that the next file's header names. So neither what a
//     recycled file held before nor a frame behind a cut tail is ever taken for data.
//  4. Recovery goes on behind damage to what had been synced, and reports it; what was
//     never known to be synced is cut off at the first damage. Unreadable sectors and
//     frames of newer programs are never cut off.
//  5. What Open showed is on stable storage when it returns: what is not known to be
//     synced is written once more, because a write-back that failed in an earlier life
//     may have left pages that look clean, and then synced.
//  6. A failed or short write, or a failed fdatasync, poisons the log from that position
//     on. Nothing is taken until Reopen; fdatasync is never repeated for the same pages;
//     after Reopen nothing from FailedAt on comes back, in this process or a later one.
//  7. Files are dropped oldest first and durably, so the log on disk never has a hole.
//     Only unreferenced files are recycled or unmapped.
//  8. A new file leaves MinFree bytes of the disk free. Without room, Enqueue fails with
//     ErrFull at once, and works again by itself once there is room.
//
// # Crashes
//
// A file gets its name with its first bytes, before Written returns for any frame in
// it, so the death of the process loses nothing that was written. Its header is synced,
// and its name, before anything in it counts as synced. Files that a newer header passes
// over (empty ones, and those behind a cut) stay until that header is durable, because
// one of them may be the only one to know where its predecessor ended, and are durably
// gone before that header's file can be dropped.
//
// A file has its full size before it has its name, and only a sealed one is made shorter. So
// a last file that is short and not sealed was cut by something else, which is reported even
// when all that is left of it is intact. Zeros up to the end of the frames can't be told from
// a torn tail: the size stays, and no frame is left that knows of more.
//
// # Concurrency
//
// A mutex guards the queue and the counters and is never held over I/O. Waiters become
// writers in turn; two goroutines belong to the log: the syncer does every fdatasync,
// the janitor allocates, recycles and removes files. Close stops both. Readers hold a
// Ref on a file and read its mapping or use pread; both see what pwritev wrote, because
// all three share the page cache.
//
// The package never locks the directory (the caller does), never logs, and never looks
// at the wall clock for a decision.
package segment
