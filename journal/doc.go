// Package journal runs deterministic machines, each over one partition of an internal topic. A machine is what a
// coordinator knows: (state, request, now) -> (records, replies). The journal appends the records, releases the replies
// when the records are durable, and rebuilds the machine from the partition after a crash or a change of owner.
//
// # A shard
//
//	not owner   the partition isn't here, or doesn't take writes: ErrNotCoordinator
//	loading     a new machine gets every record of the partition: ErrLoading
//	running     Do works
//	failed      an append failed, or was lost, or the epoch is another one: the machine is thrown away, everybody who
//	            waits for it gets ErrNotCoordinator, and loading begins again as long as the partition is here
//
// Options.Partition says which partitions are here; Sync makes every shard look again. A shard also looks whenever it is
// used, so Sync is needed only for shards that nobody asks.
//
// # An operation
//
//	op         runs under the shard's lock on the machine, which has applied the records of its step already
//	append     as one batch (from 16 MiB on: as several, which a crash may come between), under the same lock: the order of the operations is the order of the log
//	written    without the lock
//	durable    the shard's loop waits, in log order, and calls Step.Done in that order
//
// # Invariants
//
//  1. Step.Done is called exactly once, without a lock: with nil only when the records of the step and of all steps before
//     it are durable. So nobody ever sees a state that a crash could take back, readers included.
//  2. What a machine was built on is a prefix of the log of one epoch. Every append is refused unless the partition still
//     has that epoch and ends where the machine's last batch did: a machine that was overtaken leaves nothing in the log.
//  3. Loading reads what DeleteRecords left, in bounded memory besides the machine itself.
//  4. An append that is refused before it enters the log (disk full, queue full) is repeated, in order; meanwhile replies
//     wait. What waits is bounded by Options.MaxHeldBytes: then operations get ErrOverloaded before they run.
//
// # Snapshots
//
// When the batches behind the last snapshot are larger than Options.SnapshotBytes and four times that snapshot, the
// machine's state is written again, into the same partition:
//
//	begin   one batch with one record: marker
//	part    batches of at most 512 KiB of records, zstd; the first record of each is a marker, the others are those that
//	        the machine gave
//	end     one batch with one record: marker with the number of records
//
// The state is taken under the lock, as bytes; the batches are appended without it. Meanwhile the machine goes on, and
// what it appends waits in memory until the end marker is appended: a snapshot is one piece of the log, and the last record
// of a key in the log is always its newest one. When the end is durable, DeleteRecords moves the partition's start
// to the begin marker. Until then everything older is still there: a crash at any step leaves a log that loads.
//
// Loading applies a snapshot that the log begins with, and steps over any other: the records before it
// say the same. A marker is a record whose key starts with the int16 29762 ("tB"), which no kind of record of Kafka's
// internal topics has; docs/format/journal.md has the bytes.
//
// # Time
//
// One timer per shard follows Machine.Deadline. A machine is told the time with every call and reads no clock.
//
// # Concurrency
//
// All methods are safe for concurrent use. A journal has one goroutine per shard, and one more for a shard that writes a
// snapshot; Close ends them all.
//
// # Never
//
// It knows no protocol and no error codes, and writes to no partition but its own. Nobody else may write there:
// a foreign batch makes the next append fail and the shard load again.
package journal
