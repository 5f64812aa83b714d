// Package cluster holds what all nodes of a cluster agree on: which topics
// exist, which brokers live, who owns which partition, and the dynamic
// settings. It is stored in etcd, either embedded in the process or an existing
// cluster, and mirrored into every node as an immutable Image.
//
// # Schema
//
// Every key starts with Options.Prefix (default "/tierbroker/"):
//
//	meta                      cluster id, cluster incarnation, schema version (JSON)
//	brokers/<id>              one living broker, bound to its lease (JSON)
//	topics/<topic id>         one topic (JSON)
//	names/<folded name>       topic id and name; create-only, so a name has one owner
//	deleted/<topic id>        a topic whose objects still wait for the sweep (JSON)
//	assign/<shard>            about 500 partitions: owner, epoch, state (binary)
//	config/default            dynamic broker settings of the whole cluster (JSON)
//	config/broker/<id>        dynamic settings of one broker (JSON)
//	operator/broker/<id>      what operators want of a broker: drained, removed (JSON)
//	operator/move/<topic id>/<partition>  a move that operators wish for (JSON)
//	restore                   mark of a restore that is not finished (JSON)
//	producers                 next producer id that was never handed out
//	election/<lease>          candidates for the controller; the oldest key leads
//	controllers/<lease>       one living controller, bound to its lease (JSON)
//
// docs/format/etcd.md describes every value with an example that a test decodes.
//
// # Invariants
//
//  1. An Image is never changed after it was published. A new one shares all
//     that did not change, so that one event costs the size of what it touches
//     and not the size of the cluster.
//  2. An Image contains whole etcd revisions only, and its revision never falls.
//  3. A partition's epoch never falls. It rises by one at every Starting, which
//     the controller writes, or the owner when it hands over to the target of a
//     planned move. Every change of the owner compares owner, incarnation, epoch and
//     state first; every change of the controller the whole assignment it was planned on.
//  4. Every transaction of the controller compares the create revision of its
//     election key: a controller that lost its term changes nothing.
//  5. A topic name belongs to one topic until that topic is deleted and every
//     owner has reported its partition Deleted.
//  6. Nothing read from etcd can panic the process or make it allocate more than
//     the value's own size: values are capped and decoded with bounds.
//
// # States of a partition
//
//	Unassigned -> Starting -> Recovering -> Writing -> Draining -> Unassigned
//	                  \-----------\------------\--------> Failed
//
// Starting is written by the controller with a new epoch, from any state. The
// owner writes the rest: Recovering, Writing, Draining, Unassigned (its release),
// Failed, and Deleted once the head of a partition of a deleted topic is a
// tombstone. The controller takes Failed back to Starting after a back-off and
// removes Deleted ones.
//
// A planned move, each step one transaction, each compared with all before it:
//
//	controller: Target = t            (state, owner and epoch stay)
//	target t:   Warm                  (MarkWarm, having loaded head and index)
//	owner:      Writing -> Draining   (when Warm, or when it is about to stop)
//	owner:      Draining -> Starting  (HandOver: t owns it under the next epoch)
//
// Where it can stop, and who goes on:
//
//   - the target dies: the controller clears Target, the owner sees that and goes
//     from Draining back to Writing; after a hand-over it is a dead owner as any other.
//   - the target is not warm in time: the controller clears Target, notes it (Unready),
//     and chooses another one first; the owner has served all the while.
//   - the owner dies: the controller starts the partition at another broker when it
//     is Safe, at once and at the target first, and waits for the broker otherwise.
//   - the owner never drains or never hands over: the controller clears Target when
//     its time (TargetSince) is over.
//   - the controller dies: the next one finds all of this in the image.
//   - the answer of a hand-over is lost: its retry finds the epoch and owner it
//     asked for and counts as made.
//
// # Concurrency
//
// A Client may be used by many goroutines. Calls that change something return
// when the change is committed in etcd and visible in the caller's Image (or the
// context ended after the commit). Unknown outcomes (a timeout after the request
// was sent) are resolved by reading back where the operation can tell, and
// reported as an error otherwise; every operation may be repeated.
//
// # What it never does
//
// It places no partition (package controller does) and touches no data.
package cluster
