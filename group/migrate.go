package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// upgrade is what the members of a classic group become in the new protocol.
type upgrade struct {
	members []upgradeMember
	epoch   int32
}

type upgradeMember struct {
	id   string
	meta memberMeta
	has  assignment
}

// planUpgrade tells what a classic group with members becomes; nil if it can't.
func (m *Machine) planUpgrade(g *group) *upgrade {
	c := g.classic
	may := m.opts.ConsumerMigration == MigrationBoth || m.opts.ConsumerMigration == MigrationUpgrade
	if !may || c.protocolType != consumerType || len(c.members) == 0 || len(c.members) >= m.opts.ConsumerMaxSize {
		return nil
	}
	u := &upgrade{epoch: c.generation}
	taken := map[slotID]bool{}
	for _, mem := range c.list() {
		meta := mem.metadata(c.protocol)
		protocols := mem.protocols
		if meta == nil {
			meta = protocols[0].meta
		}
		sub, ok := readSubscription(meta)
		if !ok {
			return nil
		}
		// The first protocol is the one such a member is answered with.
		if i := slices.IndexFunc(protocols, func(p protocol) bool { return p.name == c.protocol }); i > 0 {
			protocols = slices.Concat(protocols[i:i+1], protocols[:i], protocols[i+1:])
		}
		um := upgradeMember{id: mem.id, meta: memberMeta{
			instance: mem.instance, rack: sub.Rack, clientID: mem.clientID, host: mem.host, topics: sortedNames(sub.Topics),
			rebalance: mem.rebalance, classic: &classicMeta{mem.session, protocols},
		}}
		if len(mem.assignment) > 0 {
			var a kmsg.ConsumerMemberAssignment
			if a.ReadFrom(mem.assignment) != nil {
				return nil
			}
			um.has = m.fromNames(a.Topics).filter(func(t [16]byte, p int32) bool {
				free := !taken[slotID{t, p}]
				taken[slotID{t, p}] = true
				return free
			})
		}
		u.members = append(u.members, um)
	}
	return u
}

// slotID is a partition of any topic.
type slotID struct {
	topic [16]byte
	part  int32
}

// readSubscription reads what a consumer says in its join.
func readSubscription(b []byte) (kmsg.ConsumerMemberMetadata, bool) {
	var s kmsg.ConsumerMemberMetadata
	if s.ReadFrom(b) != nil || s.Version < 0 {
		return s, false
	}
	ok := validOptional(s.Rack) && !slices.ContainsFunc(s.Topics, func(t string) bool { return !validName(t) })
	return s, ok
}

func (m *Machine) fromNames(in []kmsg.ConsumerMemberAssignmentTopic) assignment {
	var out assignment
	for _, t := range in {
		topic, ok := m.topics.ByName(t.Topic)
		for _, p := range t.Partitions {
			if ok && p >= 0 && p < topic.Partitions {
				out = out.with(topic.ID, p)
			}
		}
	}
	return out.normal()
}

// create makes sure that there is a consumer group, by the plan if it was a classic one with members. Who waited in a join
// or a sync is sent back, to join the new one.
func (m *Machine) create(id string, g *group, u *upgrade) *consumer {
	if g != nil && g.consumer != nil {
		return g.consumer
	}
	if g != nil && g.classic != nil {
		for _, mem := range slices.Clone(g.classic.list()) {
			g.classic.remove(m, mem.id, kerr.RebalanceInProgress)
		}
	}
	if g != nil {
		m.dropMembership(g)
	}
	if u == nil {
		u = &upgrade{}
	}
	first := consumer{epoch: u.epoch}
	m.emitKey(kindEpoch, first.appendEpoch(), id)
	c := m.groups[id].consumer
	for _, mem := range u.members {
		c.emitMember(m, mem.id, mem.meta)
		now := current{epoch: u.epoch, previous: u.epoch, assigned: mem.has}
		m.emitKey(kindTarget, appendTarget(mem.has), id, mem.id)
		m.emitKey(kindCurrent, now.append(), id, mem.id)
		c.touch(m, c.members[mem.id])
	}
	m.emitKey(kindTargetEpoch, appendTargetEpoch(u.epoch), id)
	return c
}

// mayDowngrade tells whether the group is one of classic members but for the one that goes.
func (m *Machine) mayDowngrade(c *consumer, leaving *member) bool {
	may := m.opts.ConsumerMigration == MigrationBoth || m.opts.ConsumerMigration == MigrationDowngrade
	if !may || leaving.meta.classic != nil || len(c.members) < 2 || len(c.members)-1 > m.opts.MaxSize {
		return false
	}
	for _, mem := range c.members {
		if mem != leaving && mem.meta.classic == nil {
			return false
		}
	}
	return true
}

// downgrade turns a consumer group into a classic one without the member that goes, and lets the others join anew.
func (m *Machine) downgrade(c *consumer, leaving string) bool {
	g := c.g
	next := newClassic(m, g)
	next.protocolType, next.generation = consumerType, c.epoch
	for _, id := range sortedKeys(c.members) {
		mem := c.members[id]
		if id == leaving {
			continue
		}
		next.add(&classicMember{
			id: id, instance: mem.meta.instance, clientID: mem.meta.clientID, host: mem.meta.host, rebalance: mem.meta.rebalance,
			session: mem.meta.classic.session, protocols: mem.meta.classic.protocols, assignment: m.assignmentBytes(mem, mem.want),
		})
	}
	if next.protocol = next.choose(); next.protocol == "" {
		next.grow(-next.bytes)
		return false
	}
	next.to(m, StateStable)
	m.emitConsumerTombstones(g)
	m.add(g)
	g.consumer, g.classic = nil, next
	next.save(m)
	for _, mem := range next.list() {
		next.touch(m, mem)
	}
	next.prepare(m)
	return true
}

// assignmentBytes is an assignment as the classic protocol sends it, in the version of the member's subscription.
func (m *Machine) assignmentBytes(mem *member, a assignment) []byte {
	out := kmsg.ConsumerMemberAssignment{}
	if s, ok := readSubscription(mem.meta.classic.protocols[0].meta); ok {
		out.Version = s.Version
	}
	for _, t := range m.named(a).TopicPartitions {
		out.Topics = append(out.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	return out.AppendTo(nil)
}
