// Package catalog keeps what the bucket knows about the cluster as a whole:
// whose bucket it is, and which topics and settings there are. With the heads of
// the partitions it is enough to build the cluster again from the bucket alone.
//
// # Objects
//
//	cluster/root                       whose bucket this is; swapped, never deleted
//	cluster/<incarnation>/<revision>   topics and settings at one etcd revision
//
// Both have the same frame, described with an example in docs/format/catalog.md:
//
//	magic "TBCL" | kind | codec | required features | plain length | CRC32C | JSON
//
// # Invariants
//
//  1. The root is made by a create-only put, once. A node whose cluster id or
//     incarnation differs from it is refused before it writes anything.
//  2. A snapshot is immutable: its key names the revision it stands for. Two
//     controllers that write the same one write the same content.
//  3. A snapshot is written only when topics or settings differ from the last one:
//     an idle cluster makes no puts.
//  4. The newest snapshots stay; older ones are removed after a newer one was
//     written.
//
// # Who lives
//
// Nobody can tell an idle cluster from a dead one by what the bucket holds, and an idle one makes no puts. So who wants to
// know (a restore) puts a question into the root, and the leading controller, which reads the root every few seconds, swaps
// its answer in. An answer is proof of life; silence is not proof of death: fencing rests on swaps alone.
//
// # Crash behaviour
//
// A put whose answer was lost is read back: the root carries a unique attempt id,
// a snapshot is compared by its content. A controller that dies between two
// snapshots leaves the older one; its successor compares and writes.
//
// # Concurrency
//
// A Catalog may be used by many goroutines; Run by one at a time, usually by the
// leading controller. A second Run elsewhere does no harm.
//
// # What it never does
//
// It does not read or write heads and data; what a restore does is package restore's.
package catalog
