package admin

import (
	"strings"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// Ailments of partitions: why one has no leader, or none that lasts.
const (
	ailUnplaced   = "unplaced"      // the controller has not given it to a broker yet
	ailWaiting    = "waiting"       // its owner is dead and may have the only copy of its last records
	ailFailover   = "failing over"  // its owner is dead, everything is in the bucket: another broker takes it over
	ailRestarting = "restarting"    // its owner is back as another run
	ailOpening    = "being opened"  // its owner claims it and reads its log
	ailFailed     = "failed"        // its owner can't serve it and tries again
	ailEnding     = "being deleted" // its topic is
)

// ailments lists them all.
var ailments = []string{ailUnplaced, ailWaiting, ailFailover, ailRestarting, ailOpening, ailFailed, ailEnding}

// ailment says what is the matter with a partition, "" when it is served.
func ailment(img *cluster.Image, t *cluster.Topic, a *cluster.Assignment, placed bool) string {
	if !placed || a.State == cluster.Unassigned {
		return ailUnplaced
	}
	b, alive := img.Broker(a.Owner)
	switch {
	case t.Deleting:
		return ailEnding
	case !alive && !a.Safe:
		return ailWaiting
	case !alive:
		return ailFailover
	case b.Incarnation != a.OwnerIncarnation:
		return ailRestarting
	case a.State == cluster.Failed:
		return ailFailed
	case a.State == cluster.Starting, a.State == cluster.Recovering:
		return ailOpening
	}
	return ""
}

// brokerTally is what the assignments say about one broker.
type brokerTally struct {
	partitions int            // that it owns
	serving    int            // of those
	only       int            // of those: it may have the only copy of their last records
	in, out    int            // moves under way to it, from it
	states     map[string]int // of what it owns
}

// tally sums up an image. It costs the number of partitions.
type tally struct {
	brokers  map[int32]*brokerTally
	states   map[string]int // of all partitions
	ailments map[string]int // of those that are not served
	total    int
	moving   int
	epochs   int64 // ownerships that were ever begun, of the partitions there are
	topics   map[frame.TopicID]*topicTally
	examples map[string][]partitionRef // a few partitions of each ailment
}

type topicTally struct {
	topic  *cluster.Topic
	epochs int64
	ill    int
}

type partitionRef struct {
	topic *cluster.Topic
	id    frame.PartitionID
	a     cluster.Assignment
}

// maxExamples bounds how many partitions a problem names.
const maxExamples = 3

func tallyOf(img *cluster.Image) *tally {
	s := &tally{brokers: map[int32]*brokerTally{}, states: map[string]int{}, ailments: map[string]int{},
		topics: map[frame.TopicID]*topicTally{}, examples: map[string][]partitionRef{}}
	for _, b := range img.Brokers() {
		if b.OwnsPartitions() {
			s.broker(b.ID)
		}
	}
	for _, t := range img.Topics() {
		tt := &topicTally{topic: t}
		s.topics[t.ID] = tt
		for n := range t.Partitions {
			id := frame.PartitionID{Topic: t.ID, Partition: n}
			a, placed := img.Assignment(id)
			s.add(img, tt, id, a, placed)
		}
	}
	return s
}

func (s *tally) broker(id int32) *brokerTally {
	b := s.brokers[id]
	if b == nil {
		b = &brokerTally{states: map[string]int{}}
		s.brokers[id] = b
	}
	return b
}

func (s *tally) add(img *cluster.Image, tt *topicTally, id frame.PartitionID, a cluster.Assignment, placed bool) {
	s.total++
	if ail := ailment(img, tt.topic, &a, placed); ail != "" {
		s.ailments[ail]++
		if ail != ailEnding {
			tt.ill++
		}
		if len(s.examples[ail]) < maxExamples {
			s.examples[ail] = append(s.examples[ail], partitionRef{tt.topic, id, a})
		}
	}
	if !placed {
		s.states[stateName(cluster.Unassigned)]++
		return
	}
	s.states[stateName(a.State)]++
	s.epochs += int64(a.Epoch) + 1
	tt.epochs += int64(a.Epoch) + 1
	if a.Owner != cluster.NoBroker {
		b := s.broker(a.Owner)
		b.partitions++
		b.states[stateName(a.State)]++
		if a.State == cluster.Writing || a.State == cluster.Draining {
			b.serving++
		}
		if !a.Safe {
			b.only++
		}
		if a.Target != cluster.NoBroker {
			b.out++
		}
	}
	if a.Target != cluster.NoBroker {
		s.moving++
		s.broker(a.Target).in++
	}
}

func stateName(s cluster.State) string { return strings.ToLower(s.String()) }
