package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// newMemberTimeout is how long a member that never had an answer may wait in a join, in milliseconds: its client can't
// send heartbeats yet, and may be gone.
const newMemberTimeout = 5 * 60 * 1000

// maxPending bounds the member ids of a group that were handed out and not used yet.
const maxPending = 10_000

// maxClientID bounds what of a client id goes into member ids and records.
const maxClientID = 1024

func joinError(member string, e *kerr.Error) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupResponse()
	r.MemberID, r.ErrorCode = member, e.Code
	return r
}

// joinRequest is a join of which everything was read and copied.
type joinRequest struct {
	*kmsg.JoinGroupRequest
	client    Client
	protocols []protocol
	rebalance int32
	token     Token
}

func (m *Machine) joinGroup(client Client, token Token, r *kmsg.JoinGroupRequest) {
	w := m.wait(token, r.Version)
	if e := m.checkJoin(r); e != nil {
		m.answer(w, joinError(r.MemberID, e))
		return
	}
	client.ID = client.ID[:min(len(client.ID), maxClientID)]
	j := &joinRequest{r, client, readProtocols(r.Protocols), r.RebalanceTimeoutMillis, token}
	if r.Version == 0 || j.rebalance < 0 {
		j.rebalance = r.SessionTimeoutMillis
	}
	g := m.groups[r.Group]
	if g != nil && g.consumer != nil {
		if len(g.consumer.members) > 0 {
			m.joinConsumer(g, j, w)
			return
		}
		m.dropMembership(g)
		g = m.groups[r.Group]
	}
	if g == nil || g.classic == nil {
		if r.MemberID != "" {
			m.answer(w, joinError(r.MemberID, kerr.UnknownMemberID))
			return
		}
		if m.full(r.Group) {
			m.answer(w, joinError("", kerr.CoordinatorNotAvailable))
			return
		}
		g = m.ensure(r.Group)
		g.classic = newClassic(m, g)
	}
	g.classic.joinRequest(m, j, w)
	m.release(g)
}

func (m *Machine) checkJoin(r *kmsg.JoinGroupRequest) *kerr.Error {
	switch session := int64(r.SessionTimeoutMillis); {
	case !validGroup(r.Group):
		return kerr.InvalidGroupID
	case session < m.opts.MinSessionTimeout.Milliseconds() || session > m.opts.MaxSessionTimeout.Milliseconds():
		return kerr.InvalidSessionTimeout
	case !validName(r.MemberID) || r.InstanceID != nil && len(*r.InstanceID) > maxName-64 || !validName(r.ProtocolType):
		return kerr.InvalidRequest
	}
	for i := range r.Protocols {
		if !validName(r.Protocols[i].Name) {
			return kerr.InvalidRequest
		}
	}
	return nil
}

// readProtocols copies the protocols, of equal names the first.
func readProtocols(in []kmsg.JoinGroupRequestProtocol) []protocol {
	seen := make(map[string]struct{}, len(in))
	out := make([]protocol, 0, len(in))
	for _, p := range in {
		if _, dup := seen[p.Name]; dup {
			continue
		}
		seen[p.Name] = struct{}{}
		out = append(out, protocol{p.Name, slices.Clone(p.Metadata)})
	}
	return out
}

func (c *classic) accepts(m *Machine, id string) bool {
	mem := c.members[id]
	switch c.state {
	case StatePreparing:
		return mem != nil && mem.join != nil || c.joining < m.opts.MaxSize
	case StateCompleting, StateStable:
		return mem != nil || len(c.members) < m.opts.MaxSize
	}
	return true
}

func (c *classic) joinRequest(m *Machine, j *joinRequest, w *waiter) {
	_, pending := c.pending[j.MemberID]
	switch {
	case !c.roomForJoin(m, j):
		m.answer(w, joinError(j.MemberID, kerr.GroupMaxSizeReached))
	case !c.accepts(m, j.MemberID):
		c.remove(m, j.MemberID, kerr.GroupMaxSizeReached)
		m.answer(w, joinError("", kerr.GroupMaxSizeReached))
		c.settle(m)
	case !c.supported(j.ProtocolType, j.protocols):
		m.answer(w, joinError(j.MemberID, kerr.InconsistentGroupProtocol))
	case j.MemberID == "" && j.InstanceID != nil:
		c.joinStatic(m, j, w)
	case j.MemberID == "":
		id := j.client.ID + "-" + m.opts.NewID()
		if j.Version < 4 {
			c.addMember(m, j, id, w)
			return
		}
		if len(c.pending) >= min(m.opts.MaxSize, maxPending) {
			m.answer(w, joinError("", kerr.GroupMaxSizeReached))
			return
		}
		c.pending[id] = struct{}{}
		m.timers.set(m.now.mono+int64(j.SessionTimeoutMillis), timerKey{timerSession, c.g.id, id})
		m.answer(w, joinError(id, kerr.MemberIDRequired))
	case pending && j.InstanceID != nil:
		m.answer(w, joinError(j.MemberID, kerr.UnknownServerError))
	case pending:
		c.addMember(m, j, j.MemberID, w)
	default:
		c.rejoin(m, j, w)
	}
}

func (c *classic) addMember(m *Machine, j *joinRequest, id string, w *waiter) {
	if len(c.members) == 0 {
		c.protocolType = j.ProtocolType
	}
	if c.state == StatePreparing && c.initial {
		c.added = true
	}
	c.add(&classicMember{
		id: id, instance: j.InstanceID, clientID: j.client.ID, host: j.client.Host, rebalance: j.rebalance,
		session: j.SessionTimeoutMillis, protocols: j.protocols, isNew: true, join: w,
	})
	m.timers.set(m.now.mono+newMemberTimeout, timerKey{timerSession, c.g.id, id})
	c.prepareOrComplete(m)
}

// rejoin is the join of a member that is known.
func (c *classic) rejoin(m *Machine, j *joinRequest, w *waiter) {
	if e := c.check(j.MemberID, j.InstanceID); e != nil {
		m.answer(w, joinError(j.MemberID, e))
		return
	}
	mem := c.members[j.MemberID]
	same := mem.matches(j.protocols)
	switch {
	case c.state == StateEmpty:
		m.answer(w, joinError(j.MemberID, kerr.UnknownMemberID))
	case c.state == StateCompleting && same, c.state == StateStable && same && c.leader != mem.id:
		// It didn't get the answer of its last join, or there is nothing new: it is told the present generation.
		m.answer(w, c.joined(mem, c.leader == mem.id))
	default:
		c.update(m, mem, j, w)
		c.prepareOrComplete(m)
	}
}

// update takes what a join of a known member says. A join of the same member that still waits is answered: its client
// gave it up.
func (c *classic) update(m *Machine, mem *classicMember, j *joinRequest, w *waiter) {
	c.count(mem, -1)
	mem.protocols, mem.rebalance, mem.session = j.protocols, j.rebalance, j.SessionTimeoutMillis
	c.count(mem, 1)
	c.failJoin(m, mem, mem.id, kerr.RebalanceInProgress)
	mem.join = w
	c.joining++
}

// joined is the answer to a member's join in the present generation.
func (c *classic) joined(mem *classicMember, members bool) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupResponse()
	protocolType, protocol := c.protocolType, c.protocol
	r.Generation, r.ProtocolType, r.Protocol = c.generation, &protocolType, &protocol
	r.LeaderID, r.MemberID = c.leader, mem.id
	if members {
		for _, o := range c.list() {
			r.Members = append(r.Members, kmsg.JoinGroupResponseMember{
				MemberID: o.id, InstanceID: o.instance, ProtocolMetadata: o.metadata(c.protocol),
			})
		}
	}
	return r
}

// joinStatic is the first join of a static member's new life: it takes the place of the one before.
func (c *classic) joinStatic(m *Machine, j *joinRequest, w *waiter) {
	id := *j.InstanceID + "-" + m.opts.NewID()
	old := c.members[c.static[*j.InstanceID]]
	if old == nil {
		c.addMember(m, j, id, w)
		return
	}
	leader := c.leader
	mem := c.replace(m, old, id)
	c.update(m, mem, j, w)
	c.touch(m, mem)
	switch {
	case c.state == StateStable && c.choose() == c.protocol:
		// Nothing changes for the others. The old member is fenced as soon as this is durable.
		c.save(m)
		c.answerStatic(m, mem, j, leader)
	case c.state == StateStable:
		c.prepareOrComplete(m)
	case c.state == StateCompleting:
		// The leader may have the old id already: what it assigns would be lost.
		c.prepare(m)
	default:
		c.maybeComplete(m)
	}
}

// answerStatic answers a static member that came back into a stable group. The leader gets the members only if its version
// can be told to leave the assignment alone; older ones are told the former leader's id, so that they don't assign.
func (c *classic) answerStatic(m *Machine, mem *classicMember, j *joinRequest, formerLeader string) {
	leads := c.leader == mem.id
	r := c.joined(mem, leads && j.Version >= 9)
	r.SkipAssignment = leads && j.Version >= 9
	if j.Version < 9 {
		r.LeaderID = formerLeader
	}
	m.answer(mem.join, r)
	mem.join = nil
	c.joining--
}

// replace gives a static member a new id. Whoever still waits under the old one is fenced.
func (c *classic) replace(m *Machine, old *classicMember, id string) *classicMember {
	c.failJoin(m, old, old.id, kerr.FencedInstanceID)
	m.answer(old.sync, &kmsg.SyncGroupResponse{ErrorCode: kerr.FencedInstanceID.Code})
	mem := *old
	mem.id, mem.join, mem.sync = id, nil, nil
	delete(c.members, old.id)
	c.members[id] = &mem
	c.order = nil
	c.static[*mem.instance] = id
	if c.leader == old.id {
		c.leader = id
	}
	delete(c.unsynced, old.id)
	m.timers.cancel(timerKey{timerSession, c.g.id, old.id})
	return &mem
}
