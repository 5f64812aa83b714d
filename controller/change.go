package controller

import (
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// Kind says what a change is, for events and metrics.
type Kind uint8

// The kinds of changes.
const (
	Place     Kind = iota // a new or released partition gets an owner
	Restart               // its owner is back as another run
	Retry                 // it failed and is tried again
	Failover              // its owner is dead and another broker takes it over
	Force                 // an operator takes it away from an owner that may hold the only copy
	BeginMove             // a target is set
	StopMove              // a target is cleared
	Pin                   // it is where an operator wants to keep it
	EndWish               // a wish for a move is done or impossible
	FreeName              // a deleted topic's name becomes free
	numKinds
)

var kindNames = [numKinds]string{
	"place", "restart", "retry", "failover", "force", "begin_move", "stop_move", "pin", "end_wish", "free_name",
}

// String returns the kind in the form of a metric label.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return "invalid"
}

// Kinds lists all kinds.
func Kinds() []Kind {
	all := make([]Kind, numKinds)
	for k := range all {
		all[k] = Kind(k)
	}
	return all
}

// Change is one thing the controller does. What it writes depends on Kind: an
// assignment (the embedded change), the end of Wish, or the end of the deletion of
// the topic ID.Topic.
type Change struct {
	cluster.Change
	Kind  Kind
	Topic string           // name, empty when the topic is unknown
	Wish  cluster.MoveWish // EndWish
	Done  bool             // EndWish: the partition is where it was wished
}

// assigns reports whether the change writes an assignment.
func (c *Change) assigns() bool { return c.Kind < EndWish }

// From returns the broker the partition comes from, NoBroker when from none.
func (c *Change) From() int32 {
	if !c.Exists || !c.assigns() {
		return cluster.NoBroker
	}
	return c.Old.Owner
}

// To returns the broker the partition goes to, NoBroker when to none.
func (c *Change) To() int32 {
	switch {
	case c.Kind == BeginMove:
		return c.New.Target
	case c.Kind == EndWish:
		return c.Wish.Target
	case c.Kind < BeginMove:
		return c.New.Owner
	}
	return cluster.NoBroker
}

// ordered keeps changes in the order of topics and partitions although placing
// comes last.
type ordered struct {
	Change
	order int
}

// Load is what a partition moves, in bytes per second.
type Load struct{ In, Out float64 }

// Loads are the loads that brokers have reported; nil when nothing is known.
type Loads map[frame.PartitionID]Load

func (l Load) total() float64 {
	if s := l.In + l.Out; s > 0 { // also when it is no number
		return min(s, 1e15)
	}
	return 0
}
