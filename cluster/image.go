package cluster

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/tierbroker/tierbroker/frame"
)

// Image is the state of the cluster at one etcd revision. It is immutable: every
// method may be called from any goroutine, and what it returns must not be
// changed.
type Image struct {
	revision    int64
	meta        Meta
	topics      *topicSet
	deleted     map[frame.TopicID]*DeletedTopic
	shards      *cowMap[uint32, *shard]
	places      *cowMap[frame.TopicID, []place]
	brokers     []Broker // sorted by id
	configs     map[int32]map[string]string
	candidates  []candidate // sorted by create revision
	controllers []ControllerNode
	local       map[string]string
	layers      localLayers
	corrupt     map[string]*CorruptError
	wishes      map[int32]BrokerWish
	moves       *moveSet
	partitioned int   // partitions that have an assignment
	producers   int64 // first producer id that was not handed out
}

// Meta identifies the cluster.
type Meta struct {
	ClusterID   string `json:"clusterId"`
	Incarnation string `json:"incarnation"` // changes when the cluster is restored from its bucket
	Schema      int    `json:"schema"`
	CreatedAt   int64  `json:"createdAt"` // ms since 1970
}

// DefaultConfig is the id under which the cluster-wide broker settings are kept.
const DefaultConfig int32 = -1

// place says in which shard some neighbouring partitions of a topic are kept.
type place struct {
	first, count int32
	shard        uint32
}

// candidate is a node that wants to be, or is, the controller.
type candidate struct {
	key      string
	revision int64 // create revision: the oldest leads
	broker   int32
}

// localLayers are the settings that hold for this node.
type localLayers struct {
	broker int32
	static map[string]string
}

// topicSet is the part of an image that changes with topics only, so that the
// sorted list is made once however many images share it.
type topicSet struct {
	byName *cowMap[string, *Topic]
	byID   *cowMap[frame.TopicID, *Topic]
	once   sync.Once
	sorted []*Topic
}

// moveSet is the part of an image that changes with wishes for moves only.
type moveSet struct {
	byID   *cowMap[frame.PartitionID, MoveWish]
	once   sync.Once
	sorted []MoveWish
}

func (s *moveSet) list() []MoveWish {
	s.once.Do(func() {
		s.sorted = make([]MoveWish, 0, s.byID.len())
		for _, w := range s.byID.all() {
			s.sorted = append(s.sorted, w)
		}
		slices.SortFunc(s.sorted, func(a, b MoveWish) int { return a.ID.Compare(b.ID) })
	})
	return s.sorted
}

// Revision is the etcd revision the image stands for; 0 before the first load.
func (i *Image) Revision() int64 { return i.revision }

// ClusterID is the cluster's unique id.
func (i *Image) ClusterID() string { return i.meta.ClusterID }

// Meta returns what identifies the cluster.
func (i *Image) Meta() Meta { return i.meta }

// TopicByName returns a topic, nil when there is none. Topics being deleted are
// found too; see Topic.Deleting.
func (i *Image) TopicByName(name string) *Topic {
	t, _ := i.topics.byName.get(name)
	return t
}

// TopicByID returns a topic, nil when there is none.
func (i *Image) TopicByID(id frame.TopicID) *Topic {
	t, _ := i.topics.byID.get(id)
	return t
}

// Topics returns all topics sorted by name. The slice is shared.
func (i *Image) Topics() []*Topic {
	s := i.topics
	s.once.Do(func() {
		s.sorted = make([]*Topic, 0, s.byID.len())
		for _, t := range s.byID.all() {
			s.sorted = append(s.sorted, t)
		}
		slices.SortFunc(s.sorted, func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
	})
	return s.sorted
}

// Deleted returns the topics whose objects wait for the sweep, sorted by id. When
// the bucket holds nothing of a topic any more, Client.FinishDelete forgets it.
func (i *Image) Deleted() []*DeletedTopic {
	return slices.SortedFunc(maps.Values(i.deleted), func(a, b *DeletedTopic) int { return a.ID.Compare(b.ID) })
}

// DeletedTopic returns one entry of Deleted, nil when there is none.
func (i *Image) DeletedTopic(id frame.TopicID) *DeletedTopic { return i.deleted[id] }

// Assignment returns who owns a partition; false when the controller has not
// placed it yet (or there is no such partition).
func (i *Image) Assignment(id frame.PartitionID) (Assignment, bool) {
	e := i.entry(id)
	if e == nil {
		return Assignment{}, false
	}
	return e.Assignment, true
}

func (i *Image) entry(id frame.PartitionID) *entry {
	n, ok := i.shardOf(id)
	if !ok {
		return nil
	}
	s, ok := i.shards.get(n)
	if !ok {
		return nil
	}
	return s.find(id)
}

func (i *Image) shardOf(id frame.PartitionID) (uint32, bool) {
	ps, _ := i.places.get(id.Topic)
	k, ok := slices.BinarySearchFunc(ps, id.Partition, func(p place, n int32) int {
		switch {
		case p.first+p.count <= n:
			return -1
		case p.first > n:
			return 1
		}
		return 0
	})
	if !ok {
		return 0, false
	}
	return ps[k].shard, true
}

// Assignments yields every placed partition, shard by shard.
func (i *Image) Assignments() iter.Seq2[frame.PartitionID, Assignment] {
	return func(yield func(frame.PartitionID, Assignment) bool) {
		for _, s := range i.shards.all() {
			if !s.each(func(id frame.PartitionID, e *entry) bool { return yield(id, e.Assignment) }) {
				return
			}
		}
	}
}

// NumAssignments returns how many partitions are placed.
func (i *Image) NumAssignments() int { return i.partitioned }

// ChangedPartitions yields every partition whose assignment differs from an
// older image's: changed, added, or gone. It costs the size of the shards that
// changed. A nil prev yields all.
func (i *Image) ChangedPartitions(prev *Image) iter.Seq[frame.PartitionID] {
	return func(yield func(frame.PartitionID) bool) {
		if prev == nil {
			for id := range i.Assignments() {
				if !yield(id) {
					return
				}
			}
			return
		}
		for n, s := range i.shards.all() {
			old, _ := prev.shards.get(n)
			if old == s || old != nil && old.revision == s.revision {
				continue
			}
			if !s.each(func(id frame.PartitionID, e *entry) bool {
				o := prev.entry(id)
				return o != nil && o.Assignment == e.Assignment || yield(id)
			}) {
				return
			}
		}
		for n, old := range prev.shards.all() {
			s, _ := i.shards.get(n)
			if old == s || s != nil && old.revision == s.revision {
				continue
			}
			if !old.each(func(id frame.PartitionID, _ *entry) bool {
				return i.entry(id) != nil || yield(id)
			}) {
				return
			}
		}
	}
}

// ChangedTopics yields every topic whose record differs from an older image's,
// and those that are gone. A nil prev yields all.
func (i *Image) ChangedTopics(prev *Image) iter.Seq[frame.TopicID] {
	return func(yield func(frame.TopicID) bool) {
		if prev != nil && prev.topics == i.topics {
			return
		}
		for id, t := range i.topics.byID.all() {
			if prev != nil {
				// A resync makes new values of unchanged records.
				old, _ := prev.topics.byID.get(id)
				if old == t || old != nil && old.Revision == t.Revision && old.Config == t.Config {
					continue
				}
			}
			if !yield(id) {
				return
			}
		}
		if prev == nil {
			return
		}
		for id := range prev.topics.byID.all() {
			if _, ok := i.topics.byID.get(id); !ok && !yield(id) {
				return
			}
		}
	}
}

// Brokers returns the living brokers sorted by id. The slice is shared.
func (i *Image) Brokers() []Broker { return i.brokers }

// Broker returns a living broker.
func (i *Image) Broker(id int32) (Broker, bool) {
	k, ok := slices.BinarySearchFunc(i.brokers, id, func(b Broker, id int32) int { return cmp.Compare(b.ID, id) })
	if !ok {
		return Broker{}, false
	}
	return i.brokers[k], true
}

// Leader returns the broker that clients of a partition should talk to and the
// epoch. It is NoBroker while nobody serves it: not placed, unassigned, failed,
// or its owner (this very run of it) is not alive.
func (i *Image) Leader(id frame.PartitionID) (broker, epoch int32) {
	e := i.entry(id)
	if e == nil {
		return NoBroker, NoEpoch
	}
	switch e.State {
	case Unassigned, Failed, Deleted:
		return NoBroker, e.Epoch
	case Starting, Recovering, Writing, Draining:
	}
	if b, ok := i.Broker(e.Owner); !ok || b.Incarnation != e.OwnerIncarnation {
		return NoBroker, e.Epoch
	}
	return e.Owner, e.Epoch
}

// ControllerID returns the broker id of the leading controller, NoBroker when
// there is none.
func (i *Image) ControllerID() int32 {
	if len(i.candidates) == 0 {
		return NoBroker
	}
	return i.candidates[0].broker
}

// NextProducerID is the first producer id that was not handed out.
func (i *Image) NextProducerID() int64 { return i.producers }

// BrokerConfigs returns all dynamic broker settings by broker id (DefaultConfig:
// of all brokers). The map is shared.
func (i *Image) BrokerConfigs() map[int32]map[string]string { return i.configs }

// BrokerConfig returns the dynamic settings of a broker, or of the whole cluster
// for DefaultConfig; nil when there are none.
func (i *Image) BrokerConfig(broker int32) map[string]string { return i.configs[broker] }

// BrokerDefaults returns the broker settings that hold on this node, dynamic and
// static ones merged; they are what topics fall back to.
func (i *Image) BrokerDefaults() map[string]string { return i.local }

// ConfigLayers returns where the settings of a broker, and of a topic unless it is
// nil, come from. The static layer is this node's.
func (i *Image) ConfigLayers(broker int32, t *Topic) ConfigLayers {
	l := ConfigLayers{Broker: i.configs[broker], DefaultBroker: i.configs[DefaultConfig], Static: i.layers.static}
	if broker == DefaultConfig {
		l.Broker = nil
	}
	if t != nil {
		l.Topic = t.Overrides
	}
	return l
}

// Corrupt returns the keys whose values could not be decoded, sorted. Their last
// good content stays in the image.
func (i *Image) Corrupt() []*CorruptError {
	return slices.SortedFunc(maps.Values(i.corrupt), func(a, b *CorruptError) int { return cmp.Compare(a.Key, b.Key) })
}
