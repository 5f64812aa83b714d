// Package bucket is the seam to the object store that holds the archive, and owns everything that is true of every store.
//
// Bucket has six methods: ranged Get, conditional Put, Stat, List, Delete of many keys, and Uploads for the leftovers of
// multipart uploads. Each call carries an Op, which says who calls and what for: it selects the concurrency, deadline and
// hold-off in package s3, and it is how the bill is counted (Meter).
//
// Implementations: Memory, Dir (a directory), s3 (package tier/bucket/s3). Decorators: Fault, Trace, Meter. One suite,
// package buckettest, holds all of them to the promises below.
//
//  1. An object is there whole or not at all. A Put that returned nil is durable, and seen by every later Get, Stat and List.
//  2. A Get returns exactly the bytes asked for, of one version of the object, or an error. Bytes are not verified beyond
//     their number: a range has no checksum in any store, so callers verify what they read.
//  3. A Put verifies size and CRC32C of what arrives, in the store where it can.
//  4. Of several conditional puts of one key with the same condition at most one succeeds. Equal ETags mean equal bytes, so an
//     object whose bytes were never written before has an ETag that no earlier version had.
//  5. The outcome of a conditional put is unknown unless it returned nil. ErrPrecondition can follow one's own success (a
//     retry inside the network), so the caller makes its bytes unique, reads back and compares.
//  6. Lists are in lexicographic order of the key's bytes.
//  7. Errors match one of the sentinels with errors.Is; a context that ended shows as ErrUnavailable and as the context's error.
//  8. No key is also the folder of another key: file systems and some S3 servers cannot hold that, and refuse it with ErrKey.
//
// Keys use a small alphabet (CheckKey). Nothing here knows what an object means. Nothing logs. All implementations may be
// used by many goroutines at once; none keeps a lock while it reads or writes bodies, except Dir, which renames under its lock.
package bucket
