// Package restore builds a cluster from its bucket alone: the same topics under the same ids, the same settings,
// offsets, record bytes and group positions. Brokers, disks and etcd may all be gone.
//
// # What is read
//
//	cluster/root, cluster/<incarnation>/<revision>   topics and settings (package tier/catalog)
//	head/...                                         every partition's archive
//	wal/...                                          what the heads' pending streams hold behind it
//	__consumer_offsets                               where groups stand: a partition like any other
//
// A topic that only heads know (it was made in the last seconds) is restored too, without retention until an operator gives it
// its settings back; partitions that only heads know count; a topic whose heads are tombstones goes on being deleted.
//
// # Steps
//
// Each can be repeated, and the whole is repeated by the same command after a crash at any point:
//
//	1  etcd: cluster record and mark, create-only     nothing else may use this etcd until 8
//	2  swap cluster/root                              new cluster id and incarnation, "restore" set: no node of the
//	                                                  old cluster starts any more, none of the new one yet
//	3  seal every WAL stream                          old brokers can't acknowledge "object" writes any more
//	4  swap every head (make missing ones)            incarnation and epoch rise: old owners lose at their next swap
//	5  etcd: topics, settings, epochs                 nobody owns anything
//	6  put cluster/<new incarnation>/<revision>       the bucket alone is enough again
//	7  swap cluster/root                              "restore" goes
//	8  etcd: the mark goes                            the controller places all partitions
//
// Step 4 is one swap per partition: it raises the epoch by a thousand (clients may have seen epochs under which no head was
// claimed, and ignore lower ones) and gives up the offsets from the end to the ceiling, all of which the old cluster may have
// handed out. Pending streams stay in the head: the new owner adopts them as after every failover, and jumps then, because its
// assignment says so. So group positions need no correction: whatever was committed lies below the next offset, and a position in
// the gap reads on at the first new record. Groups that stand in a gap are listed.
//
// # Invariants
//
//  1. Fencing rests on swaps and seals, never on the belief that the old cluster is dead.
//  2. Nothing in the bucket is deleted.
//  3. Until 7 and 8 no node starts on the bucket or on the etcd. Who began another restore of the same bucket has swapped the root: this
//     one then ends before it changes anything more but heads, whose swaps it loses.
//  4. A head that can't be read, or that belongs to an unknown life of the cluster, stops the restore before step 1, unless it is told
//     to leave such partitions as they are.
//
// # Is the old cluster dead?
//
// What a bucket holds can't tell an idle cluster from a dead one, and an idle cluster makes no puts. So Quiet asks: it swaps a question into
// the root, which every leading controller reads each few seconds and answers. No answer in three times that, and no change of heads, streams
// and snapshots meanwhile, is as much as a bucket can say; the rest is the operator's word, and 1.
//
// # Concurrency
//
// Heads are read and swapped by Options.Parallel goroutines; nothing outlives a call.
package restore
