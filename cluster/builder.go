package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tierbroker/tierbroker/frame"
)

// builder makes the next image out of the last one and some events. It is a pure
// function of both; it belongs to one goroutine and ends with build.
type builder struct {
	prefix string
	base   *Image
	next   Image
	byName *cowEdit[string, *Topic]
	byID   *cowEdit[frame.TopicID, *Topic]
	shards *cowEdit[uint32, *shard]
	places *cowEdit[frame.TopicID, []place]
	moves  *cowEdit[frame.PartitionID, MoveWish]

	ownDeleted, ownBrokers, ownConfigs, ownCandidates, ownCorrupt, ownWishes bool // cloned already
	reconfigure                                                              bool
}

// emptyImage is what a mirror starts from.
func emptyImage(l localLayers) *Image {
	i := &Image{topics: &topicSet{}, moves: &moveSet{}, layers: l}
	i.local = i.layersMerged()
	return i
}

func (i *Image) layersMerged() map[string]string {
	l := i.ConfigLayers(i.layers.broker, nil)
	return l.Merged()
}

func newBuilder(prefix string, base *Image) *builder {
	return &builder{prefix: prefix, base: base, next: *base,
		byName: base.topics.byName.edit(), byID: base.topics.byID.edit(),
		shards: base.shards.edit(), places: base.places.edit(), moves: base.moves.byID.edit()}
}

// put takes over a key's value. A value that can not be decoded leaves what the
// image had and is listed in Corrupt.
func (b *builder) put(kv *mvccpb.KeyValue) {
	key, ok := strings.CutPrefix(string(kv.Key), b.prefix)
	if !ok {
		return
	}
	if err := b.putKey(key, kv); err != nil {
		b.markCorrupt(key, err.Error())
		return
	}
	b.unmarkCorrupt(key)
}

func (b *builder) putKey(key string, kv *mvccpb.KeyValue) error {
	kind, rest := splitKey(key)
	switch kind {
	case keyMeta:
		m, err := decodeMeta(kv.Value)
		if err != nil {
			return err
		}
		b.next.meta = m
	case keyBrokers:
		id, err := parseInt32(rest)
		if err != nil {
			return err
		}
		r, err := decodeBroker(id, kv.Lease, kv.Value)
		if err != nil {
			return err
		}
		b.putBroker(r)
	case keyTopics:
		return b.putTopic(rest, kv)
	case keyDeleted:
		return b.putDeleted(rest, kv.Value)
	case keyAssign:
		n, err := parseShardNumber(rest)
		if err != nil {
			return err
		}
		s, err := decodeShard(n, kv.ModRevision, kv.Value)
		if err != nil {
			return err
		}
		b.putShard(n, s)
	case keyConfig:
		return b.putConfig(DefaultConfig, kv.Value)
	case keyBrokerConfig:
		id, err := parseInt32(rest)
		if err != nil {
			return err
		}
		return b.putConfig(id, kv.Value)
	case keyProducers:
		n, err := strconv.ParseInt(string(kv.Value), 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%.20q is no producer id", kv.Value)
		}
		b.next.producers = n
	case keyControllers:
		return b.putController(rest, kv.Value)
	case keyElection:
		id, err := parseInt32(string(kv.Value))
		if err != nil {
			return err
		}
		b.putCandidate(candidate{key: b.prefix + key, revision: kv.CreateRevision, broker: id})
	case keyOperator:
		return b.putWish(rest, kv)
	}
	return nil // names are read by transactions only; unknown keys are of later versions
}

// splitKey returns the part of the schema a key belongs to and the rest.
func splitKey(key string) (kind, rest string) {
	switch key {
	case keyMeta, keyConfig, keyProducers:
		return key, ""
	}
	if rest, ok := strings.CutPrefix(key, keyBrokerConfig); ok {
		return keyBrokerConfig, rest
	}
	if i := strings.IndexByte(key, '/'); i >= 0 {
		return key[:i+1], key[i+1:]
	}
	return "", key
}

// del takes a key away. The cluster's identity stays: nothing that is known to be
// this cluster becomes another one because a key was lost.
func (b *builder) del(fullKey []byte) {
	key, ok := strings.CutPrefix(string(fullKey), b.prefix)
	if !ok {
		return
	}
	b.unmarkCorrupt(key)
	kind, rest := splitKey(key)
	switch kind {
	case keyBrokers:
		if id, err := parseInt32(rest); err == nil {
			b.cloneBrokers()
			b.next.brokers = slices.DeleteFunc(b.next.brokers, func(r Broker) bool { return r.ID == id })
		}
	case keyTopics:
		if id, err := frame.ParseTopicID(rest); err == nil {
			b.delTopic(id)
		}
	case keyDeleted:
		if id, err := frame.ParseTopicID(rest); err == nil {
			b.cloneDeleted()
			delete(b.next.deleted, id)
		}
	case keyAssign:
		if n, err := parseShardNumber(rest); err == nil {
			b.putShard(n, nil)
		}
	case keyProducers:
		b.next.producers = 0
	case keyConfig:
		b.setConfig(DefaultConfig, nil)
	case keyBrokerConfig:
		if id, err := parseInt32(rest); err == nil {
			b.setConfig(id, nil)
		}
	case keyControllers:
		b.delController(rest)
	case keyElection:
		b.cloneCandidates()
		full := b.prefix + key
		b.next.candidates = slices.DeleteFunc(b.next.candidates, func(c candidate) bool { return c.key == full })
	case keyOperator:
		b.delWish(rest)
	}
}

// build returns the next image, which stands for a revision.
func (b *builder) build(revision int64) *Image {
	b.next.revision = revision
	if b.reconfigure {
		if local := b.next.layersMerged(); !maps.Equal(local, b.base.local) {
			b.next.local = local
			b.reconfigureTopics()
		}
	}
	byName, byID := b.byName.done(), b.byID.done()
	if byName != b.base.topics.byName || byID != b.base.topics.byID {
		b.next.topics = &topicSet{byName: byName, byID: byID}
	}
	b.next.shards, b.next.places = b.shards.done(), b.places.done()
	if moves := b.moves.done(); moves != b.base.moves.byID {
		b.next.moves = &moveSet{byID: moves}
	}
	img := b.next
	return &img
}

// reconfigureTopics applies changed broker defaults to every topic.
func (b *builder) reconfigureTopics() {
	for id, t := range b.byID.done().all() {
		c := *t
		c.ConfigErr = nil
		c.configure(b.next.local)
		b.byID.set(id, &c)
		b.byName.set(c.Name, &c)
	}
}

func (b *builder) putTopic(rest string, kv *mvccpb.KeyValue) error {
	id, err := frame.ParseTopicID(rest)
	if err != nil {
		return err
	}
	t, err := decodeTopic(id, kv.ModRevision, kv.Value)
	if err != nil {
		return err
	}
	t.configure(b.next.local)
	b.byID.set(id, t)
	b.byName.set(t.Name, t)
	return nil
}

func (b *builder) delTopic(id frame.TopicID) {
	t, ok := b.byID.get(id)
	if !ok {
		return
	}
	b.byID.del(id)
	// The name may be another topic's already when both are in one batch.
	if n, ok := b.byName.get(t.Name); ok && n.ID == id {
		b.byName.del(t.Name)
	}
}

func (b *builder) putDeleted(rest string, value []byte) error {
	id, err := frame.ParseTopicID(rest)
	if err != nil {
		return err
	}
	var d DeletedTopic
	if err := decodeRecord(value, &d); err != nil {
		return err
	}
	if d.ID != id || d.Partitions < 0 || d.Partitions > MaxPartitionsPerTopic {
		return fmt.Errorf("names topic %s with %d partitions", d.ID, d.Partitions)
	}
	b.cloneDeleted()
	b.next.deleted[id] = &d
	return nil
}

func (b *builder) putBroker(r Broker) {
	b.cloneBrokers()
	i, found := slices.BinarySearchFunc(b.next.brokers, r.ID, func(x Broker, id int32) int { return cmp.Compare(x.ID, id) })
	if found {
		b.next.brokers[i] = r
		return
	}
	b.next.brokers = slices.Insert(b.next.brokers, i, r)
}

func (b *builder) putCandidate(c candidate) {
	b.cloneCandidates()
	list := slices.DeleteFunc(b.next.candidates, func(x candidate) bool { return x.key == c.key })
	list = append(list, c)
	slices.SortFunc(list, func(x, y candidate) int { return cmp.Compare(x.revision, y.revision) })
	b.next.candidates = list
}

func (b *builder) putConfig(broker int32, value []byte) error {
	var m map[string]string
	if err := decodeRecord(value, &m); err != nil {
		return err
	}
	b.setConfig(broker, m)
	return nil
}

func (b *builder) setConfig(broker int32, m map[string]string) {
	if !b.ownConfigs {
		b.ownConfigs = true
		b.next.configs = cloneMap(b.next.configs)
	}
	if len(m) == 0 {
		delete(b.next.configs, broker)
	} else {
		b.next.configs[broker] = m
	}
	b.reconfigure = true
}

// putShard replaces a shard, nil removes it, and keeps the places in step.
func (b *builder) putShard(n uint32, s *shard) {
	old, _ := b.shards.get(n)
	if s == nil && old == nil {
		return
	}
	if s == nil {
		b.shards.del(n)
	} else {
		b.shards.set(n, s)
	}
	if sameRuns(old, s) {
		return // only states changed: the common case
	}
	for _, r := range runsOf(old) {
		b.next.partitioned -= len(r.entries)
		ps, _ := b.places.get(r.topic)
		ps = slices.DeleteFunc(slices.Clone(ps), func(p place) bool { return p.shard == n })
		if len(ps) == 0 {
			b.places.del(r.topic)
		} else {
			b.places.set(r.topic, ps)
		}
	}
	for _, r := range runsOf(s) {
		b.next.partitioned += len(r.entries)
		ps, _ := b.places.get(r.topic)
		ps = append(slices.Clone(ps), place{first: r.first, count: int32(len(r.entries)), shard: n})
		slices.SortFunc(ps, func(x, y place) int { return cmp.Compare(x.first, y.first) })
		b.places.set(r.topic, ps)
	}
}

func runsOf(s *shard) []run {
	if s == nil {
		return nil
	}
	return s.runs
}

func sameRuns(a, b *shard) bool {
	return slices.EqualFunc(runsOf(a), runsOf(b), func(x, y run) bool {
		return x.topic == y.topic && x.first == y.first && len(x.entries) == len(y.entries)
	})
}

func (b *builder) markCorrupt(key, hint string) {
	b.cloneCorrupt()
	b.next.corrupt[key] = &CorruptError{Key: b.prefix + key, Hint: hint}
}

func (b *builder) unmarkCorrupt(key string) {
	if _, bad := b.next.corrupt[key]; bad {
		b.cloneCorrupt()
		delete(b.next.corrupt, key)
	}
}

func (b *builder) cloneCorrupt() {
	if !b.ownCorrupt {
		b.ownCorrupt = true
		b.next.corrupt = cloneMap(b.next.corrupt)
	}
}

func (b *builder) cloneDeleted() {
	if !b.ownDeleted {
		b.ownDeleted = true
		b.next.deleted = cloneMap(b.next.deleted)
	}
}

func (b *builder) cloneBrokers() {
	if !b.ownBrokers {
		b.ownBrokers = true
		b.next.brokers = slices.Clone(b.next.brokers)
	}
}

func (b *builder) cloneCandidates() {
	if !b.ownCandidates {
		b.ownCandidates = true
		b.next.candidates = slices.Clone(b.next.candidates)
	}
}

// cloneMap copies a map and makes one where there is none.
func cloneMap[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m)+1)
	maps.Copy(c, m)
	return c
}
