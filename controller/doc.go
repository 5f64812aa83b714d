// Package controller decides which broker owns which partition.
//
// It is a pure function, Plan, from an image of the cluster and the time to the
// changes that are due, and a thin shell, Controller, that is elected, waits for
// images, and writes what Plan returns. Plan has no memory: a controller that
// takes over goes on where the last one stopped.
//
// # What Plan does
//
//  1. A partition of a topic that has no assignment gets an owner: the live
//     broker with the fewest partitions of this topic, then the fewest in all
//     (by weight), then the lowest id. It enters Starting.
//  2. A broker that came back as another incarnation gets its partitions again,
//     in Starting with the next epoch.
//  3. A Failed partition goes back to Starting with the next epoch after a
//     back-off of 1 s that doubles with each failure in a row, to a minute.
//  4. An Unassigned partition (its owner released it) gets an owner as in 1,
//     preferring the target of its move.
//  5. A partition of a topic being deleted whose owner is dead goes to a live
//     broker, which puts the tombstone.
//  6. A deleted topic whose partitions are all done is taken off the list: its
//     name becomes free.
//
// A partition whose owner is dead keeps it: its log may hold records that are
// nowhere else. Clients see no leader until the broker is back.
//
// # Invariants
//
//   - Every Starting has an epoch higher than all before it.
//   - A change names the assignment it was planned on and is made only while that
//     holds, under this controller's term.
//   - No change is due twice: after all changes of a plan are made, Plan of the
//     next image returns none of them.
//   - Internal topics go to brokers labelled "coordinator" when there are any, all
//     other topics to brokers without the label unless there are none.
package controller
