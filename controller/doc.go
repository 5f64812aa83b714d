// Package controller decides which broker owns which partition.
//
// It is a pure function, Plan, from an image of the cluster and the time to the
// changes that are due, and a thin shell, Controller, that is elected, waits for
// images, and writes what Plan returns. Plan has no memory: a controller that
// takes over goes on where the last one stopped. What needs time rests on times
// that are stored (FailedAt, TargetSince, a wish's Since, a broker's StartedAt).
//
// # What Plan does
//
// With a partition, by what it finds:
//
//	no assignment           place it, Safe (nothing was acknowledged yet)
//	Unassigned              place it, at the target of its move if that lives
//	owner dead, Safe        fail over: place it at once, at its target first
//	owner dead, not Safe    it waits for its broker, whose disk may hold the only copy;
//	                        a wish with Force takes it to its target, with Jump
//	owner dead, deleting    place it: somebody has to put the tombstone
//	owner is another run    Starting there; a Safe one leaves a draining broker at once, and
//	                        one that restarts a third time before it serves it
//	owner lives, Failed     Starting there after a back-off of 1 s that doubles with each
//	                        failure in a row to a minute; with Force it goes to the target
//	owner lives, Writing    a move may begin: by wish, or because the broker drains
//	a move under way        it goes on, or is taken back (Target is cleared) when the target
//	                        is dead or draining, not warm within 5 s, its time is over, or
//	                        nobody wants it any more
//
// A partition whose owner died before it was Writing counts a failure: one that
// kills its brokers wanders ever more slowly and does not take the cluster along.
//
// Placing: internal topics go to brokers labelled "coordinator" when there are any,
// all other topics to brokers without the label unless there are none. Among those
// the rack with the fewest partitions of the topic for its weight, then the broker
// likewise, then the one with the least load for its weight (partitions, and
// bytes when loads are known), then the lowest id. Draining brokers get nothing.
//
// A partition that is where a wish with Keep wants it is marked (Placed) before the wish
// is removed: PlanAuto leaves it there as long as its owner is the same.
//
// Moves are begun in this order: from brokers that shut down, from brokers that
// operators drain, by wish (oldest first); as many as the settings allow in all, from
// one broker and to one broker. What a broker recovers counts against it.
//
// A target that was not warm in time is no target of that partition for 30 s: another
// one is chosen, a wish waits and ends when the target fails it twice, and only a broker
// that shuts down and has no other hands over to it.
//
// A wish for a move is removed when its partition is Writing at the target, when the
// move took too long, or when it is impossible: the partition is gone, the target
// drains, or for a minute the target or the owner of a partition that is not Safe is
// dead.
//
// A deleted topic whose partitions all are done is taken off the list: its name
// becomes free.
//
// # Invariants
//
//   - Every Starting has an epoch higher than all before it.
//   - A change names the assignment it was planned on and is made only while that
//     holds, under this controller's term.
//   - No owner that lives and serves is ever passed over: a move is its own release.
//   - No change is due twice, and plans converge: with nothing else happening, a few
//     plans after each other end in an empty one.
//
// # Where it can fail
//
//   - The controller dies in the middle of a batch: every change stands alone, and the
//     next controller plans on what is there.
//   - An answer is lost: the change is made or not, and the next plan is made on an
//     image that shows it (a barrier after an unknown outcome).
//   - A deposed controller goes on: every write compares its election key.
//   - A broker flaps: each death moves what is Safe away once, its return moves nothing
//     back by itself before it has been up for a while (rebalance.delay).
//   - Nobody can take a partition: it stays where it is and is looked at with every
//     new image.
package controller
