package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fault is an error with a text of its own for the client.
type fault struct {
	err  *kerr.Error
	text string
}

func invalid(text string) *fault { return &fault{kerr.InvalidRequest, text} }

// why is an error with its usual text.
func why(e *kerr.Error) *fault { return &fault{e, e.Description} }

func (m *Machine) consumerGroupHeartbeat(client Client, r *kmsg.ConsumerGroupHeartbeatRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	client.ID = client.ID[:min(len(client.ID), maxClientID)]
	f := m.checkBeat(r)
	switch {
	case f != nil:
	case r.MemberEpoch < 0:
		f = m.leaveBeat(r, resp)
	default:
		f = m.memberBeat(client, r, resp)
	}
	if f != nil {
		resp.ErrorCode, resp.ErrorMessage = f.err.Code, &f.text
	}
	return resp
}

// checkBeat tells what is wrong with the request alone.
func (m *Machine) checkBeat(r *kmsg.ConsumerGroupHeartbeatRequest) *fault {
	emptied := func(s *string) bool { return s != nil && *s == "" }
	switch {
	case r.Group == "":
		return invalid("GroupId can't be empty.")
	case emptied(r.InstanceID):
		return invalid("InstanceId can't be empty.")
	case emptied(r.RackID):
		return invalid("RackId can't be empty.")
	case !validName(r.Group) || !validName(r.MemberID) || !validOptional(r.InstanceID) || !validOptional(r.SubscribedTopicRegex):
		return invalid("A name is too long.")
	case r.MemberEpoch < leaveStaticEpoch:
		return invalid("MemberEpoch is invalid.")
	case r.MemberID == "" && (r.Version >= 1 || r.MemberEpoch != 0):
		return invalid("MemberId can't be empty.")
	case r.MemberEpoch == leaveStaticEpoch && r.InstanceID == nil:
		return invalid("InstanceId can't be null.")
	}
	if r.MemberEpoch == 0 {
		switch {
		case r.RebalanceTimeoutMillis < 0:
			return invalid("RebalanceTimeoutMs must be provided in first request.")
		case r.Topics == nil || len(r.Topics) > 0:
			return invalid("TopicPartitions must be empty when (re-)joining.")
		case r.SubscribedTopicNames == nil && r.SubscribedTopicRegex == nil:
			return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
		}
	}
	if a := r.ServerAssignor; a != nil && !slices.Contains(m.opts.ConsumerAssignors, *a) {
		return &fault{kerr.UnsupportedAssignor, "ServerAssignor is not supported."}
	}
	if p := r.SubscribedTopicRegex; p != nil && *p != "" {
		if _, err := compilePattern(*p); err != nil {
			return &fault{kerr.InvalidRegularExpression, "SubscribedTopicRegex is not a valid regular expression: " + err.Error()}
		}
	}
	return nil
}

// leaveBeat is the last heartbeat of a member.
func (m *Machine) leaveBeat(r *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) *fault {
	g := m.groups[r.Group]
	if g == nil || g.consumer == nil {
		return why(kerr.GroupIDNotFound)
	}
	c := g.consumer
	mem, f := c.known(r.MemberID, r.InstanceID)
	if f != nil {
		return f
	}
	resp.MemberID, resp.MemberEpoch = &mem.id, r.MemberEpoch
	if r.InstanceID == nil || r.MemberEpoch == leaveEpoch {
		c.fence(m, mem)
		return nil
	}
	// A static member keeps its partitions until it is back or its session ends.
	now := mem.now
	now.epoch, now.revoking = leaveStaticEpoch, nil
	m.timers.cancel(timerKey{timerRebalance, g.id, mem.id})
	m.emitKey(kindCurrent, now.append(), g.id, mem.id)
	return nil
}

// known finds a member by its ids.
func (c *consumer) known(id string, instance *string) (*member, *fault) {
	if instance != nil {
		owner, ok := c.static[*instance]
		if !ok {
			return nil, why(kerr.UnknownMemberID)
		}
		if owner != id {
			return nil, why(kerr.FencedInstanceID)
		}
	}
	mem := c.members[id]
	if mem == nil {
		return nil, why(kerr.UnknownMemberID)
	}
	return mem, nil
}

// memberBeat is a heartbeat of a member that joins, or stays. Nothing is emitted before all checks are done.
func (m *Machine) memberBeat(client Client, r *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) *fault {
	id, owned := r.MemberID, ownedPartitions(r.Topics)
	if id == "" {
		id = m.opts.NewID()
	}
	g, plan, f := m.openConsumer(r.Group, id, r.MemberEpoch == 0)
	if f != nil {
		return f
	}
	var c *consumer
	if g != nil {
		c = g.consumer
	}
	var mem *member
	if c != nil {
		if mem, f = c.checkMember(r, id, owned); f != nil {
			return f
		}
	}
	if f = m.roomForBeat(client, c, mem, r); f != nil {
		return f
	}
	c = m.create(r.Group, g, plan)
	if plan != nil {
		// It may come in the place of a member that was there before the group changed.
		if mem, f = c.checkMember(r, id, owned); f != nil {
			return f
		}
	}
	before := m.admit(c, mem, id, r)
	meta := memberMeta{rebalance: -1}
	if old := c.members[id]; old != nil {
		meta = old.meta
	}
	takeOver(&meta, client, r)
	m.follow(c, id, meta, owned, r.Topics != nil)
	mem = c.members[id]
	c.touch(m, mem)

	resp.MemberID, resp.MemberEpoch = &mem.id, mem.now.epoch
	resp.HeartbeatIntervalMillis = int32(m.opts.ConsumerHeartbeat.Milliseconds())
	complete := r.RebalanceTimeoutMillis >= 0 && (r.SubscribedTopicNames != nil || r.SubscribedTopicRegex != nil) && r.Topics != nil
	if r.MemberEpoch == 0 || complete || !mem.now.assigned.equal(before) {
		a := &kmsg.ConsumerGroupHeartbeatResponseAssignment{}
		for _, t := range mem.now.assigned {
			a.Topics = append(a.Topics, kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{TopicID: t.topic, Partitions: t.parts})
		}
		resp.Assignment = a
	}
	return nil
}

func ownedPartitions(in []kmsg.ConsumerGroupHeartbeatRequestTopic) assignment {
	var out assignment
	for _, t := range in {
		for _, p := range t.Partitions {
			out = out.with(t.TopicID, p)
		}
	}
	return out.normal()
}

// openConsumer finds the group for a member's heartbeat, or says how it is to be made: plan is what a classic group with
// members becomes.
func (m *Machine) openConsumer(id, member string, join bool) (g *group, plan *upgrade, f *fault) {
	g = m.groups[id]
	switch {
	case g != nil && g.consumer != nil:
		c := g.consumer
		if len(c.members) >= m.opts.ConsumerMaxSize && c.members[member] == nil {
			return nil, nil, why(kerr.GroupMaxSizeReached)
		}
	case !join:
		return nil, nil, why(kerr.GroupIDNotFound)
	case g == nil && m.full(id):
		return nil, nil, why(kerr.CoordinatorNotAvailable)
	case g != nil && g.classic != nil && g.classic.state != StateEmpty:
		if plan = m.planUpgrade(g); plan == nil {
			return nil, nil, &fault{kerr.GroupIDNotFound, "Group " + id + " is not a consumer group."}
		}
	}
	return g, plan, nil
}

// checkMember tells whether the sender may go on as the member it says it is; nil without a fault is a new member.
func (c *consumer) checkMember(r *kmsg.ConsumerGroupHeartbeatRequest, id string, owned assignment) (*member, *fault) {
	join := r.MemberEpoch == 0
	mem := c.members[id]
	if r.InstanceID != nil {
		owner, ok := c.static[*r.InstanceID]
		switch {
		case !ok && join:
		case !ok:
			return nil, why(kerr.UnknownMemberID)
		case owner == id:
		case !join:
			return nil, why(kerr.FencedInstanceID)
		default:
			old := c.members[owner]
			if old.meta.classic == nil && old.now.epoch != leaveStaticEpoch {
				return nil, why(kerr.UnreleasedInstanceID)
			}
			return old, nil
		}
	}
	switch {
	case mem == nil && join:
		return nil, nil
	case mem == nil:
		return nil, why(kerr.UnknownMemberID)
	case join || r.MemberEpoch == mem.now.epoch:
		return mem, nil
	case r.MemberEpoch == mem.now.previous && r.MemberEpoch < mem.now.epoch && subset(owned, mem.now.assigned) && r.Topics != nil:
		// The answer that raised its epoch was lost.
		return mem, nil
	}
	return nil, why(kerr.FencedMemberEpoch)
}

func subset(a, b assignment) bool {
	ok := true
	a.each(func(t [16]byte, p int32) { ok = ok && b.has(t, p) })
	return ok
}

// admit makes room for a member that joins: a static one takes the place of its former self, one that was known begins
// anew. It returns what the member was assigned as far as it knows.
func (m *Machine) admit(c *consumer, mem *member, id string, r *kmsg.ConsumerGroupHeartbeatRequest) assignment {
	if mem == nil {
		return nil
	}
	if r.MemberEpoch != 0 {
		return mem.now.assigned
	}
	if mem.id != id {
		m.replaceMember(c, mem, id)
		return nil
	}
	// Its first answer may have been lost. Anything later than that is a member that gave up all it had.
	if mem.now.previous != 0 || mem.now.state != memberStable {
		fresh := current{}
		m.emitKey(kindCurrent, fresh.append(), c.g.id, id)
	}
	return nil
}

// replaceMember gives the partitions of a static member to its new self, which has yet to be told of them.
func (m *Machine) replaceMember(c *consumer, old *member, id string) {
	meta, want, now := old.meta, old.want, old.now
	now.epoch, now.previous, now.state, now.revoking = 0, 0, memberStable, nil
	c.emitRemoval(m, old.id)
	c.emitMember(m, id, meta)
	m.emitKey(kindTarget, appendTarget(want), c.g.id, id)
	m.emitKey(kindCurrent, now.append(), c.g.id, id)
}

// takeOver takes what the request says; what is missing in it stays.
func takeOver(meta *memberMeta, client Client, r *kmsg.ConsumerGroupHeartbeatRequest) {
	meta.clientID, meta.host, meta.classic = client.ID, client.Host, nil
	if r.InstanceID != nil {
		meta.instance = r.InstanceID
	}
	if r.RackID != nil {
		meta.rack = r.RackID
	}
	if r.RebalanceTimeoutMillis >= 0 {
		meta.rebalance = r.RebalanceTimeoutMillis
	}
	if r.SubscribedTopicNames != nil {
		meta.topics = sortedNames(r.SubscribedTopicNames)
	}
	if p := r.SubscribedTopicRegex; p != nil {
		if meta.regex = p; *p == "" {
			meta.regex = nil
		}
	}
	if r.ServerAssignor != nil {
		meta.assignor = r.ServerAssignor
	}
}

func sortedNames(in []string) []string {
	out := slices.Clone(in)
	slices.Sort(out)
	return slices.Compact(out)
}
