package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members of the classic protocol in a consumer group. A join never waits: it answers the member's own epoch as the
// generation, and no leader, so that no client assigns; its sync answers what the server assigned.

func (m *Machine) joinConsumer(g *group, j *joinRequest, w *waiter) {
	c := g.consumer
	id := j.MemberID
	if id == "" {
		id = m.opts.NewID()
	}
	sub, e := c.checkJoin(m, j, id)
	if e != nil {
		m.answer(w, joinError(j.MemberID, e))
		return
	}
	if j.MemberID == "" && j.InstanceID == nil && j.Version >= 4 {
		m.answer(w, joinError(id, kerr.MemberIDRequired))
		return
	}
	if j.InstanceID != nil && c.static[*j.InstanceID] != "" {
		old := c.members[c.static[*j.InstanceID]]
		switch {
		case j.MemberID == "" && m.mayDowngrade(c, old) && m.downgrade(c, old.id):
			// The last one of the new protocol came back in the classic one: it joins with all others.
			g.classic.joinRequest(m, j, w)
			return
		case j.MemberID == "":
			m.replaceMember(c, old, id)
		case old.id != id:
			m.answer(w, joinError(j.MemberID, kerr.FencedInstanceID))
			return
		}
	} else if j.InstanceID != nil && j.MemberID != "" {
		m.answer(w, joinError(j.MemberID, kerr.UnknownMemberID))
		return
	}
	meta := memberMeta{
		instance: j.InstanceID, rack: sub.Rack, clientID: j.client.ID, host: j.client.Host, topics: sortedNames(sub.Topics),
		rebalance: j.rebalance, classic: &classicMeta{j.SessionTimeoutMillis, j.protocols},
	}
	owned := make([]kmsg.ConsumerMemberAssignmentTopic, 0, len(sub.OwnedPartitions))
	for _, t := range sub.OwnedPartitions {
		owned = append(owned, kmsg.ConsumerMemberAssignmentTopic(t))
	}
	m.timers.cancel(timerKey{timerRebalance, g.id, id})
	m.follow(c, id, meta, m.fromNames(owned), true)
	mem := c.members[id]
	m.timers.cancel(timerKey{timerMemberJoin, g.id, id})
	m.timers.set(m.now.mono+int64(j.rebalance), timerKey{timerMemberSync, g.id, id})
	c.touch(m, mem)
	r := kmsg.NewPtrJoinGroupResponse()
	protocolType, protocol := consumerType, j.protocols[0].name
	r.MemberID, r.Generation, r.ProtocolType, r.Protocol = id, mem.now.epoch, &protocolType, &protocol
	m.answer(w, r)
}

func (c *consumer) checkJoin(m *Machine, j *joinRequest, id string) (sub kmsg.ConsumerMemberMetadata, e *kerr.Error) {
	if len(c.members) >= m.opts.ConsumerMaxSize && c.members[id] == nil {
		return sub, kerr.GroupMaxSizeReached
	}
	old := c.members[id]
	if old == nil && j.InstanceID != nil {
		old = c.members[c.static[*j.InstanceID]]
	}
	held := 0
	if old != nil {
		held = old.bytes
	}
	if !m.fits(&c.weight, held, j.bytes()) {
		return sub, kerr.GroupMaxSizeReached
	}
	if j.ProtocolType != consumerType || len(j.protocols) == 0 {
		return sub, kerr.InconsistentGroupProtocol
	}
	classics, supports := 0, map[string]int{}
	for _, mem := range c.members {
		if mem.meta.classic == nil || mem.id == id {
			continue
		}
		classics++
		for _, p := range mem.meta.classic.protocols {
			supports[p.name]++
		}
	}
	sub, ok := readSubscription(j.protocols[0].meta)
	if !ok || !slices.ContainsFunc(j.protocols, func(p protocol) bool { return supports[p.name] == classics }) {
		return sub, kerr.InconsistentGroupProtocol
	}
	return sub, nil
}

// classicMember finds a member that uses the classic protocol and is in the generation.
func (c *consumer) classicMember(id string, instance *string, generation int32) (*member, *kerr.Error) {
	mem, f := c.known(id, instance)
	switch {
	case f != nil:
		return nil, f.err
	case mem.meta.classic == nil:
		return nil, kerr.UnknownMemberID
	case mem.now.epoch != generation:
		return nil, kerr.IllegalGeneration
	}
	return mem, nil
}

func (m *Machine) syncConsumer(g *group, r *kmsg.SyncGroupRequest) kmsg.Response {
	c := g.consumer
	mem, e := c.classicMember(r.MemberID, r.InstanceID, r.Generation)
	if e != nil {
		return &kmsg.SyncGroupResponse{ErrorCode: e.Code}
	}
	protocolType, protocol := consumerType, mem.meta.classic.protocols[0].name
	switch {
	case r.ProtocolType != nil && *r.ProtocolType != protocolType || r.Protocol != nil && *r.Protocol != protocol:
		return &kmsg.SyncGroupResponse{ErrorCode: kerr.InconsistentGroupProtocol.Code}
	case c.epoch > mem.now.epoch && mem.now.state != memberUnrevoked:
		m.expectJoin(c, mem)
		return &kmsg.SyncGroupResponse{ErrorCode: kerr.RebalanceInProgress.Code}
	}
	m.timers.cancel(timerKey{timerMemberSync, g.id, mem.id})
	c.touch(m, mem)
	return &kmsg.SyncGroupResponse{
		ProtocolType: &protocolType, Protocol: &protocol, MemberAssignment: m.assignmentBytes(mem, mem.now.assigned),
	}
}

// expectJoin gives a member its rebalance timeout to join again, counted from the first time it was told to.
func (m *Machine) expectJoin(c *consumer, mem *member) {
	k := timerKey{timerMemberJoin, c.g.id, mem.id}
	if m.timers.byKey[k] == nil {
		m.timers.set(m.now.mono+int64(max(mem.meta.rebalance, 0)), k)
	}
}

func (m *Machine) heartbeatConsumer(g *group, r *kmsg.HeartbeatRequest) *kerr.Error {
	c := g.consumer
	mem, e := c.classicMember(r.MemberID, r.InstanceID, r.Generation)
	if e != nil {
		return e
	}
	c.touch(m, mem)
	waits := false // for partitions of its target that others have
	mem.want.each(func(t [16]byte, p int32) {
		owner := c.owner(t, p)
		waits = waits || owner != "" && owner != mem.id
	})
	if mem.now.epoch < c.epoch || mem.now.state == memberUnrevoked || mem.now.state == memberUnreleased && !waits {
		m.expectJoin(c, mem)
		return kerr.RebalanceInProgress
	}
	return nil
}

func (m *Machine) leaveConsumer(g *group, members []kmsg.LeaveGroupRequestMember) []kmsg.LeaveGroupResponseMember {
	c := g.consumer
	out := make([]kmsg.LeaveGroupResponseMember, 0, len(members))
	var leaving []string
	for i := range members {
		who := &members[i]
		id := who.MemberID
		if id == "" && who.InstanceID != nil {
			id = c.static[*who.InstanceID]
		}
		var e *kerr.Error
		mem, f := c.known(id, who.InstanceID)
		switch {
		case f != nil:
			e = f.err
		case mem.meta.classic == nil || slices.Contains(leaving, id):
			e = kerr.UnknownMemberID
		default:
			leaving = append(leaving, id)
		}
		out = append(out, kmsg.LeaveGroupResponseMember{MemberID: who.MemberID, InstanceID: who.InstanceID, ErrorCode: code(e)})
	}
	if len(leaving) > 0 {
		m.removeMembers(c, leaving...)
	}
	return out
}
