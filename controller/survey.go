package controller

import (
	"maps"
	"slices"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// Survey is what an operator wants to know about partitions and brokers, counted over
// a whole image.
type Survey struct {
	Partitions int
	States     map[cluster.State]int // of those that have an assignment
	Unplaced   int                   // no broker has been found for them yet
	Serving    int                   // Writing at a living owner
	// Waiting ones have a dead owner whose disk may hold the only copy of something: they
	// wait for their broker, or for an operator who forces them away.
	Waiting int
	// Orphaned ones have a dead owner and are Safe: they are being failed over.
	Orphaned int
	Moving   int // a target is set, by a living owner
	Wishes   int // moves that are wished for and not done
	Brokers  []BrokerSurvey
}

// BrokerSurvey is one broker, alive or not: every one that lives, owns something, or
// is wished away.
type BrokerSurvey struct {
	ID       int32
	Alive    bool
	Draining bool // by itself (it shuts down) or by wish
	Removed  bool // by wish
	Owned    int  // partitions
	Serving  int  // of these, Writing at this very run
	Unsafe   int  // of these, what only this broker may have
	Incoming int  // moves to it
	Outgoing int  // moves from it
}

// Drained reports whether nothing is left at a broker that drains.
func (b *BrokerSurvey) Drained() bool {
	return (b.Draining || b.Removed) && b.Owned == 0 && b.Incoming == 0
}

// Removable reports whether a removed broker may be switched off for good.
func (b *BrokerSurvey) Removable() bool { return b.Removed && b.Drained() }

// Look surveys an image. It costs a walk over all partitions.
func Look(img State) Survey {
	s := Survey{States: map[cluster.State]int{}, Wishes: len(img.Moves())}
	at := map[int32]*BrokerSurvey{}
	broker := func(id int32) *BrokerSurvey {
		b := at[id]
		if b == nil {
			b = &BrokerSurvey{ID: id}
			at[id] = b
		}
		return b
	}
	runs := map[int32]string{}
	for _, x := range img.Brokers() {
		if x.OwnsPartitions() {
			b := broker(x.ID)
			b.Alive, b.Draining = true, x.Draining
			runs[x.ID] = x.Incarnation
		}
	}
	for id, w := range img.BrokerWishes() {
		b := broker(id)
		b.Draining, b.Removed = b.Draining || w.Drains(), w.Removed
	}
	for _, t := range img.Topics() {
		for n := range t.Partitions {
			a, ok := img.Assignment(frame.PartitionID{Topic: t.ID, Partition: n})
			s.Partitions++
			switch {
			case !ok:
				s.Unplaced++
				continue
			case a.Owner == cluster.NoBroker:
				s.Unplaced++
				s.States[a.State]++
				continue
			}
			s.States[a.State]++
			s.count(&a, broker(a.Owner), runs[a.Owner])
			if a.Target != cluster.NoBroker && at[a.Owner].Alive {
				s.Moving++
				at[a.Owner].Outgoing++
				broker(a.Target).Incoming++
			}
		}
	}
	s.Brokers = sorted(at)
	return s
}

func (s *Survey) count(a *cluster.Assignment, b *BrokerSurvey, run string) {
	b.Owned++
	if !a.Safe {
		b.Unsafe++
	}
	switch {
	case !b.Alive && a.Safe:
		s.Orphaned++
	case !b.Alive:
		s.Waiting++
	case a.State == cluster.Writing && a.OwnerIncarnation == run:
		s.Serving++
		b.Serving++
	}
}

func sorted(at map[int32]*BrokerSurvey) []BrokerSurvey {
	out := make([]BrokerSurvey, 0, len(at))
	for _, id := range slices.Sorted(maps.Keys(at)) {
		out = append(out, *at[id])
	}
	return out
}
