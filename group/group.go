package group

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The states of groups.
const (
	StateEmpty       State = "Empty"
	StatePreparing   State = "PreparingRebalance"
	StateCompleting  State = "CompletingRebalance"
	StateStable      State = "Stable"
	StateDead        State = "Dead"
	StateAssigning   State = "Assigning"
	StateReconciling State = "Reconciling"
)

const (
	typeClassic  = "classic"
	typeConsumer = "consumer"
	consumerType = "consumer" // protocol type of consumers in the classic protocol
)

// group is one group: committed offsets and, if members ever joined it, either a classic or a consumer group. With
// neither it is what Kafka calls a simple group: an empty classic group without a protocol type.
type group struct {
	id      string
	offsets map[string]map[int32]*offset // durable

	// meta is the value of the last GroupMetadata record as it was written: the durable state of a classic group.
	meta []byte
	// classic is the live classic group, made by Loaded from meta or by the first join; nil with a consumer group.
	classic *classic
	// consumer is the consumer group, made by Apply; nil with a classic group.
	consumer *consumer

	place int    // in Machine.list
	seen  uint64 // the last Tour that visited it
}

// offset is one committed offset.
type offset struct {
	at        int64
	committed int64 // wall clock
	expires   int64 // wall clock; -1: by the retention of the broker
	epoch     int32 // leader epoch, -1 if not known
	topic     [16]byte
	metadata  string
}

// waiter is a call that waits for its reply.
type waiter struct {
	token   Token
	version int16
}

// ensure returns the group with the id, a new one if there is none.
func (m *Machine) ensure(id string) *group {
	g := m.groups[id]
	if g == nil {
		g = &group{id: id}
		m.add(g)
	}
	return g
}

// add makes the group known; one that is known already is fine.
func (m *Machine) add(g *group) {
	if m.groups[g.id] == g {
		return
	}
	m.groups[g.id] = g
	g.place = len(m.list)
	m.list = append(m.list, g)
}

// forget is the opposite of add. The last group of the list takes the place of the one that goes.
func (m *Machine) forget(g *group) {
	delete(m.groups, g.id)
	last := len(m.list) - 1
	m.list[g.place] = m.list[last]
	m.list[g.place].place = g.place
	m.list[last] = nil
	m.list = m.list[:last]
}

// release forgets a group of which nothing is left.
func (m *Machine) release(g *group) {
	if len(g.offsets) == 0 && g.meta == nil && g.consumer == nil && (g.classic == nil || g.classic.vacant()) && m.groups[g.id] == g {
		m.forget(g)
	}
}

// full tells whether one more group would be too many.
func (m *Machine) full(id string) bool {
	return len(m.groups) >= m.opts.MaxGroups && m.groups[id] == nil
}

func (g *group) state() State {
	switch {
	case g.consumer != nil:
		return g.consumer.state()
	case g.classic != nil:
		return g.classic.state
	}
	return StateEmpty
}

func (g *group) memberCount() int {
	switch {
	case g.consumer != nil:
		return len(g.consumer.members)
	case g.classic != nil:
		return len(g.classic.members)
	}
	return 0
}

func (g *group) protocolType() string {
	switch {
	case g.consumer != nil:
		return consumerType
	case g.classic != nil:
		return g.classic.protocolType
	}
	return ""
}

func (g *group) kind() string {
	if g.consumer != nil {
		return typeConsumer
	}
	return typeClassic
}

// empty tells whether nobody is a member, so that the group may be deleted.
func (g *group) empty() bool { return g.state() == StateEmpty }

// dropMembership emits the tombstones of everything but the offsets, and forgets the live group.
func (m *Machine) dropMembership(g *group) {
	if g.classic != nil {
		g.classic.stop(m)
		g.classic = nil
	}
	if g.meta != nil {
		m.emitKey(kindClassic, nil, g.id)
	}
	if g.consumer != nil {
		m.emitConsumerTombstones(g)
	}
}

// loaded makes the volatile state after a replay.
func (g *group) loaded(m *Machine) {
	if g.consumer != nil {
		g.consumer.loaded(m)
		return
	}
	if g.meta != nil {
		m.loadClassic(g)
	}
}

// snapshot yields the records of the group, the offsets last.
func (g *group) snapshot(yield func(Record) bool) bool {
	if g.meta != nil && !yield(Record{appendKey(nil, kindClassic, g.id), slices.Clone(g.meta)}) {
		return false
	}
	if g.consumer != nil && !g.consumer.snapshot(yield) {
		return false
	}
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		parts := g.offsets[topic]
		for _, p := range slices.Sorted(maps.Keys(parts)) {
			if !yield(Record{appendOffsetKey(nil, g.id, topic, p), parts[p].append(nil)}) {
				return false
			}
		}
	}
	return true
}

// validName tells whether a string from a request fits into a record.
func validName(s string) bool { return len(s) <= maxName }

// validOptional is validName for strings that may be missing.
func validOptional(s *string) bool { return s == nil || validName(*s) }

func validGroup(id string) bool { return id != "" && validName(id) }

// errorMessage is Kafka's text of an error, for responses that have room for it.
func errorMessage(e *kerr.Error) *string {
	if e == nil {
		return nil
	}
	return &e.Description
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](in map[K]V) []K { return slices.Sorted(maps.Keys(in)) }
