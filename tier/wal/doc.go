// Package wal owns WAL streams: what lies in the bucket below wal/, byte by byte.
//
// A broker's run (incarnation) has one stream: objects with numbers from 0 on, in each of which lie batches of many partitions that
// are not rolled yet. It is how a write becomes safe from the loss of a machine before it is worth a data object.
//
//	seq      0        1      ...    F      ...     A-1      A      A+1     A+2
//	      opening   swept  swept  data    data    data   in flight ...
//	                              ^ floor         ^ newest acknowledged
//	after a failover:             F      ...     A-1   A (landed)  SEAL   leftover
//	                              `------ entries ------------'
//
// Every object is put with the condition that its key doesn't exist. That condition is the fence: whoever puts an object first under
// a number decides what the number is, data of the writer or the end of the stream. See docs/format/wal-object.md, whose example the
// tests decode. Keys: wal/<hash>/<broker>/<incarnation>/<number, 20 digits>.
//
// # Writer
//
// Numbers are given by Put. Up to MaxInFlight uploads run at once; each is repeated, without end, until it is known what is under
// its number:
//
//	sending ── ok ───────────────────────────────► landed ── all before have landed ──► acknowledged
//	   ▲  └─── any error ──► reading back ── my attempt ──┘
//	   │                        │   └── a seal, or another writer's object ──► stream is dead: this number and all behind it fail
//	   └── pause ◄── nothing there, or unreadable
//
// Each object says how far the stream was acknowledged when it was built (Acked: all numbers below it were), the floor (the lowest
// number that may still matter), and has an attempt id that no other has. Floor < Acked except in a stream that has nothing yet: the
// newest acknowledged object is never below the floor. Every CombineEvery objects one carries the footers of all since the floor.
//
// Failure points, and what they leave: before a put, nothing; a put whose outcome is unknown, an object that was never acknowledged
// and is read by the successor, or not; between landing and acknowledgement, the same; a crash at any time, a stream that somebody
// seals. A sweep that fails is repeated; deleting what is deleted already is no error.
//
// # Seal
//
// A successor puts a seal under the first number at or after the newest object's Acked that is not there. If there is data now, it
// goes on behind it. A seal that was put holds if no object in the stream says that its number was acknowledged; otherwise the
// number had been swept under the successor's eyes, the seal means nothing, and the successor begins again. The highest seal that
// holds is the end of the stream. Seals of several successors are the same, whoever put them. They stay for ever.
//
// # Promises
//
//  1. What was acknowledged is below the end that any successor sees, and nothing is acknowledged under a number at or above it.
//     A writer acknowledges n only after it has seen its own objects under all numbers up to n. A seal that was put under a number
//     where data never was keeps the writer from ever having that number. Where data was and was swept, the sweep
//     followed an acknowledged object with a floor above the number, and so with Acked above it; the newest acknowledged object of an unsealed
//     stream is never swept, and says no less. Where a sealed stream was swept, the true seal stands at a higher number.
//  2. Acknowledgements are in the order of numbers.
//  3. Numbers below the floor, and at or above the seal, do not exist to any reader.
//  4. A writer deletes only below a floor that an acknowledged object carries. A successor deletes data objects of sealed streams
//     only, when every entry is dead to its partition; and what lies behind the seal.
//  5. No part is served whose checksum is wrong; that is verified by package tier, which reads the extents that entries turn into.
//  6. Decoders are bounded: hostile bytes cost an error, and memory in proportion to what is there.
//
// A number in [floor, Acked) that isn't there was swept, or lost: Sealed.Missing tells which. What it held of a partition shows
// as a hole in that partition's offsets, which package tier refuses to adopt.
//
// # Concurrency
//
// All methods may be called by many goroutines; a Builder by one. A Writer has one goroutine per upload under way, and Close waits
// for them. No lock is held during I/O. Memory: the objects under way, and the footers of what is not swept. A Sealed holds the
// footers of its stream, encoded; they are read once.
//
// The package knows no clock but Options.Now, which only stamps objects, and the pauses between attempts. It never logs.
package wal
