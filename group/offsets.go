package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// applyOffset sets or removes one committed offset.
func (m *Machine) applyOffset(k *keyReader, value []byte) bool {
	id, ok1 := k.bytes()
	topic, ok2 := k.bytes()
	partition, ok3 := k.int32()
	if !k.end(ok1 && ok2 && ok3) {
		return false
	}
	g := m.groups[string(id)]
	if value == nil {
		if g != nil && g.offsets[string(topic)][partition] != nil {
			m.removeOffset(g, string(topic), partition)
		}
		return true
	}
	o := readOffset(value)
	if o == nil {
		return false
	}
	if g == nil {
		g = m.ensure(string(id))
	}
	parts := g.offsets[string(topic)]
	if parts == nil {
		if g.offsets == nil {
			g.offsets = map[string]map[int32]*offset{}
		}
		parts = map[int32]*offset{}
		g.offsets[string(topic)] = parts
	}
	if parts[partition] == nil {
		m.offsets++
	}
	parts[partition] = o
	return true
}

func (m *Machine) removeOffset(g *group, topic string, partition int32) {
	parts := g.offsets[topic]
	delete(parts, partition)
	m.offsets--
	if len(parts) == 0 {
		delete(g.offsets, topic)
	}
	if len(g.offsets) == 0 {
		g.offsets = nil
		m.release(g)
	}
}

// readOffset reads a value of any version, nil if it can't.
func readOffset(value []byte) *offset {
	var v kmsg.OffsetCommitValue
	if len(value) < 2 || value[0] != 0 || value[1] > offsetValueVersion || v.ReadFrom(value) != nil {
		return nil
	}
	o := &offset{at: v.Offset, committed: v.CommitTimestamp, expires: -1, epoch: -1, metadata: v.Metadata}
	if v.Version >= 3 {
		o.epoch = v.LeaderEpoch
	}
	if v.Version == 1 && v.ExpireTimestamp >= 0 {
		o.expires = v.ExpireTimestamp
	}
	if v.Version >= 4 {
		o.topic = v.TopicID
	}
	return o
}

func (m *Machine) offsetCommit(r *kmsg.OffsetCommitRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.OffsetCommitResponse)
	g, fault := m.checkCommit(r)
	for i := range r.Topics {
		rt := &r.Topics[i]
		topic, unknown := m.resolveTopic(rt.Topic, rt.TopicID, r.Version >= 10)
		if unknown == nil && !validName(topic.Name) {
			unknown = kerr.InvalidTopicException
		}
		t := kmsg.OffsetCommitResponseTopic{Topic: rt.Topic, TopicID: rt.TopicID}
		t.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			p := &rt.Partitions[j]
			t.Partitions[j].Partition = p.Partition
			e := fault
			switch {
			case unknown != nil:
				e = unknown
			case e != nil:
			case p.Metadata != nil && len(*p.Metadata) > m.opts.MaxOffsetMetadataBytes:
				e = kerr.OffsetMetadataTooLarge
			default:
				m.commit(r, g, topic, p)
			}
			t.Partitions[j].ErrorCode = code(e)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (m *Machine) commit(r *kmsg.OffsetCommitRequest, id string, t Topic, p *kmsg.OffsetCommitRequestTopicPartition) {
	o := offset{at: p.Offset, committed: m.now.wall, expires: -1, epoch: -1, topic: t.ID}
	if r.Version >= 6 {
		o.epoch = p.LeaderEpoch
	}
	if p.Metadata != nil {
		o.metadata = *p.Metadata
	}
	// An own retention time is kept only where the one record version that has it can hold the rest.
	if r.Version >= 2 && r.Version <= 4 && r.RetentionTimeMillis >= 0 && validName(o.metadata) {
		o.expires = m.now.wall + min(r.RetentionTimeMillis, 1<<53)
	}
	m.emitOffset(id, t.Name, p.Partition, &o)
}

// checkCommit tells whether the sender may commit to the group.
func (m *Machine) checkCommit(r *kmsg.OffsetCommitRequest) (string, *kerr.Error) {
	member, generation := r.MemberID, r.Generation
	if r.Version == 0 {
		generation = -1
	}
	if !validName(r.Group) {
		return "", kerr.InvalidGroupID
	}
	g := m.groups[r.Group]
	switch {
	case g == nil && generation < 0 && m.full(r.Group):
		return "", kerr.CoordinatorNotAvailable
	case g == nil && generation < 0:
		return r.Group, nil
	case g == nil && r.Version >= 9:
		return "", kerr.GroupIDNotFound
	case g == nil:
		return "", kerr.IllegalGeneration
	case g.consumer != nil:
		return g.id, g.consumer.checkCommit(m, r)
	case g.classic == nil && generation < 0:
		return g.id, nil
	case g.classic == nil:
		// A simple group has no generation to be in.
		return "", kerr.UnknownMemberID
	}
	return g.id, g.classic.checkCommit(m, member, r.InstanceID, generation)
}

// resolveTopic finds the topic that a request names by name or by id.
func (m *Machine) resolveTopic(name string, id [16]byte, byID bool) (Topic, *kerr.Error) {
	if byID {
		if t, ok := m.topics.ByID(id); ok {
			return t, nil
		}
		return Topic{}, kerr.UnknownTopicID
	}
	if t, ok := m.topics.ByName(name); ok {
		return t, nil
	}
	if m.topicsVersion == 0 {
		return Topic{Name: name}, nil
	}
	return Topic{}, kerr.UnknownTopicOrPartition
}

func (m *Machine) offsetFetch(r *kmsg.OffsetFetchRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
	if r.Version >= 8 {
		for i := range r.Groups {
			resp.Groups = append(resp.Groups, m.fetchGroup(&r.Groups[i], r.Version))
		}
		return resp
	}
	one := kmsg.OffsetFetchRequestGroup{Group: r.Group, MemberEpoch: -1}
	if r.Topics != nil {
		one.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(r.Topics))
	}
	for i, t := range r.Topics {
		one.Topics[i] = kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions}
	}
	got := m.fetchGroup(&one, r.Version)
	resp.ErrorCode = got.ErrorCode
	for _, t := range got.Topics {
		out := kmsg.OffsetFetchResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseTopicPartition(p))
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// fetchGroup answers for one group: all its offsets if no topics are named (null), else those that are.
func (m *Machine) fetchGroup(r *kmsg.OffsetFetchRequestGroup, version int16) kmsg.OffsetFetchResponseGroup {
	out := kmsg.OffsetFetchResponseGroup{Group: r.Group}
	g := m.groups[r.Group]
	if g != nil && g.consumer != nil && version >= 9 {
		if e := g.consumer.checkFetch(r.MemberID, r.MemberEpoch); e != nil {
			out.ErrorCode = e.Code
			return out
		}
	}
	// Up to version 1 a null array can't be sent; an empty one asks for nothing.
	if r.Topics == nil && version >= 2 {
		if g != nil {
			out.Topics = m.fetchAll(g, version)
		}
		return out
	}
	for _, t := range r.Topics {
		topic, unknown := Topic{Name: t.Topic}, (*kerr.Error)(nil)
		if version >= 10 {
			topic, unknown = m.resolveTopic("", t.TopicID, true)
		} else if known, ok := m.topics.ByName(t.Topic); ok {
			topic = known
		}
		ot := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID}
		ot.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(t.Partitions))
		for i, p := range t.Partitions {
			var o *offset
			if g != nil && unknown == nil {
				o = g.offsets[topic.Name][p]
			}
			ot.Partitions[i] = fetched(p, o, topic.ID)
			ot.Partitions[i].ErrorCode = code(unknown)
		}
		out.Topics = append(out.Topics, ot)
	}
	return out
}

var noMetadata = ""

// fetched is what is told about one partition. An offset that was committed to another topic of the same name, deleted
// since, doesn't count.
func fetched(partition int32, o *offset, topic [16]byte) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.OffsetFetchResponseGroupTopicPartition{Partition: partition, Offset: -1, LeaderEpoch: -1, Metadata: &noMetadata}
	var none [16]byte
	if o == nil || o.topic != none && topic != none && o.topic != topic {
		return p
	}
	p.Offset, p.LeaderEpoch, p.Metadata = o.at, o.epoch, &o.metadata
	return p
}

func (m *Machine) fetchAll(g *group, version int16) []kmsg.OffsetFetchResponseGroupTopic {
	out := make([]kmsg.OffsetFetchResponseGroupTopic, 0, len(g.offsets))
	for _, name := range sortedKeys(g.offsets) {
		topic, known := m.topics.ByName(name)
		if !known && version >= 10 {
			continue // no id to answer with
		}
		t := kmsg.OffsetFetchResponseGroupTopic{Topic: name, TopicID: topic.ID}
		for _, p := range sortedKeys(g.offsets[name]) {
			if f := fetched(p, g.offsets[name][p], topic.ID); f.Offset >= 0 {
				t.Partitions = append(t.Partitions, f)
			}
		}
		if len(t.Partitions) > 0 {
			out = append(out, t)
		}
	}
	return out
}
