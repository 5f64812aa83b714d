// Package group coordinates consumer groups: it decides who is a member, who owns which partition, and where each group
// stands in each partition. It is a pure state machine: (state, request, now) -> (records, replies). It starts no
// goroutine, reads no clock, does no I/O and knows no server; the same calls give the same bytes.
//
// # Owner
//
// One Machine holds all groups of one shard: one partition of the internal topic __consumer_offsets. Whoever runs it (the
// journal) calls it from one goroutine at a time and keeps these rules:
//
//  1. Replay: a new Machine gets every record of the partition, in order, through Apply; then SetTopics and Loaded once.
//     Requests are handled only after Loaded.
//  2. Every call that returns a Step has applied the Step's records already, through the same Apply. The caller appends
//     them to the partition as one batch, in the order of the calls (a step is small, but for deletions: those may be cut
//     into several batches). If the append fails, or turns out not to be durable,
//     or the epoch is lost, the Machine is thrown away and every token is answered NOT_COORDINATOR.
//  3. A Step's replies are released when its own records and those of every Step before it are durable, not before: a
//     reply may rest on anything that was applied when it was made. So a reader never sees what a crash could take back.
//  4. Tick is called when NextDeadline has come (later is fine: sessions only last longer). NextDeadline may change with
//     every call.
//  5. A caller that goes away is reported by Cancel; its member stays until its session ends, as in Kafka.
//
// # Tokens
//
// Handle takes a token that the caller chose, not used by any other call under way. Exactly one Reply with that token is
// returned: by Handle itself, or, for JoinGroup and SyncGroup which wait for other members, by a later Step.
//
// # Durable and volatile
//
// Durable is what Apply built from records: committed offsets, the last generation of a classic group with its members,
// subscriptions and assignments, and all of a consumer group (KIP-848). Volatile, rebuilt by Loaded and lost with the
// machine, as in Kafka: joins and syncs that wait, member ids handed out but not used yet, timers. After a failover every
// member has a whole session timeout to come back.
//
// # Records
//
// The keys and values are Kafka's own, so that tools that read __consumer_offsets understand them. A null value is a
// tombstone. Numbers are big endian; the int16 at the start of a key names its kind.
//
//	kind  key                                  value
//	0, 1  group, topic, partition              OffsetCommitValue, written as version 4 (with the topic id), read from 0
//	2     group                                GroupMetadataValue, written as version 3, read from 0
//	3     group                                ConsumerGroupMetadataValue: group epoch, hash of topic metadata
//	4     group                                ConsumerGroupPartitionMetadataValue: not used, skipped when read
//	5     group, member                        ConsumerGroupMemberMetadataValue
//	6     group                                ConsumerGroupTargetAssignmentMetadataValue: assignment epoch
//	7     group, member                        ConsumerGroupTargetAssignmentMemberValue
//	8     group, member                        ConsumerGroupCurrentMemberAssignmentValue
//	16    group, regular expression            ConsumerGroupRegularExpressionValue
//
// Keys are unique per thing, so the partition can be compacted; Snapshot gives the records that rebuild the present
// state, at most one for each key, in an order that depends on the state alone. Records may come twice or, after compaction,
// without those before them: Apply builds what it can.
//
// # Invariants
//
//  1. Apply is the only function that changes durable state, live and at replay. It never fails: what it can't read it
//     skips and counts (Stats.BadRecords).
//  2. Replaying the records of all Steps, or Snapshot and all Steps after it, gives the same Snapshot byte for byte.
//  3. Within one generation of a classic group, one assignment: a member is told its partitions only in the
//     generation the leader assigned them in, and older generations are fenced from commits.
//  4. In a consumer group, a partition is in the assignment of at most one member at a time: it is given to its
//     new owner only after the former one gave it up, left, or was fenced.
//  5. A committed offset changes only by a commit, and goes only by OffsetDelete, DeleteGroups, TopicsDeleted or expiry.
//  6. Every wait has a deadline: joins end with the rebalance timeout, members with their session.
//  7. Nothing in a request can panic the machine or make it allocate more than a constant times the request's size.
//
// # Where it differs from Kafka
//
// All of these are invisible to clients that behave, and were chosen because what Kafka does loses something.
//
//   - A call that waits and is superseded by the same member's next one is answered REBALANCE_IN_PROGRESS; Kafka leaves it
//     unanswered.
//   - A group to which nobody ever belonged (member ids were handed out, no more) leaves no record.
//   - Offsets of an empty group count their retention from the later of their commit and the group's end, so that an offset
//     an administrator has just set doesn't expire at once.
//   - A member of the new protocol that joins again with epoch 0 under its own id is taken in anew, without the partitions
//     it had; Kafka fences it until its session ends.
//   - If the last member of the new protocol is replaced by its static self in the classic protocol, the group rebalances.
//   - What members say of themselves is bounded, for each group and for each shard: GROUP_MAX_SIZE_REACHED. Kafka takes any
//     amount into memory, and fails when the group's record is too large.
//   - Member ids handed out and not used are bounded for each group, and so are groups for each shard.
//
// # Never
//
// It never checks access rights, never decides which shard a group belongs to, and never limits the rate of anything:
// that is the caller's part. Offsets of transactions (TxnOffsetCommit) have no place here yet; no record kind is in their
// way.
package group
