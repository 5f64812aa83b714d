package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// applyClassic keeps the value as it is: it is the durable state. A group is either classic or of the new protocol; the
// tombstones of the other one are in the partition too, in an order that compaction may have taken apart.
func (m *Machine) applyClassic(k *keyReader, value []byte) bool {
	id, ok := k.bytes()
	if !k.end(ok) {
		return false
	}
	g := m.groups[string(id)]
	if value == nil {
		if g != nil {
			g.meta = nil
			m.release(g)
		}
		return true
	}
	if _, ok := readClassic(value); !ok {
		return false
	}
	if g == nil {
		g = m.ensure(string(id))
	}
	g.meta = slices.Clone(value)
	return true
}

func readClassic(value []byte) (kmsg.GroupMetadataValue, bool) {
	var v kmsg.GroupMetadataValue
	ok := len(value) >= 2 && value[0] == 0 && value[1] <= 4 && v.ReadFrom(value) == nil
	return v, ok
}

// save emits the record of the present generation.
func (c *classic) save(m *Machine) {
	v := kmsg.GroupMetadataValue{
		Version: classicValueVersion, ProtocolType: c.protocolType, Generation: c.generation, CurrentStateTimestamp: c.since,
	}
	if len(c.members) > 0 {
		protocol, leader := c.protocol, c.leader
		v.Protocol, v.Leader = &protocol, &leader
	}
	for _, mem := range c.list() {
		v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
			MemberID: mem.id, InstanceID: mem.instance, ClientID: mem.clientID, ClientHost: mem.host,
			RebalanceTimeoutMillis: mem.rebalance, SessionTimeoutMillis: mem.session,
			Subscription: mem.metadata(c.protocol), Assignment: mem.assignment,
		})
	}
	m.emitKey(kindClassic, v.AppendTo(nil), c.g.id)
}

// loadClassic makes the live group from the durable one: stable if it has members, all of them with a whole session.
func (m *Machine) loadClassic(g *group) {
	v, ok := readClassic(g.meta)
	if !ok {
		return
	}
	c := newClassic(m, g)
	c.generation, c.protocolType = v.Generation, v.ProtocolType
	if v.Version >= 2 && v.CurrentStateTimestamp >= 0 {
		c.since = v.CurrentStateTimestamp
	}
	if v.Protocol != nil {
		c.protocol = *v.Protocol
	}
	g.classic = c
	for i := range v.Members {
		mem := &v.Members[i]
		if c.members[mem.MemberID] != nil || mem.MemberID == "" || mem.SessionTimeoutMillis < 0 {
			continue
		}
		rebalance := mem.RebalanceTimeoutMillis
		if v.Version == 0 || rebalance < 0 {
			rebalance = mem.SessionTimeoutMillis
		}
		cm := &classicMember{
			id: mem.MemberID, instance: mem.InstanceID, clientID: mem.ClientID, host: mem.ClientHost,
			rebalance: rebalance, session: mem.SessionTimeoutMillis, assignment: mem.Assignment,
			protocols: []protocol{{c.protocol, mem.Subscription}},
		}
		c.add(cm)
		c.touch(m, cm)
	}
	if len(c.members) == 0 {
		return
	}
	c.state = StateStable
	if v.Leader != nil && c.members[*v.Leader] != nil {
		c.leader = *v.Leader
	}
	if len(c.members) > m.opts.MaxSize {
		c.prepare(m)
	}
}
