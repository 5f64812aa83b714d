package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (m *Machine) syncGroup(token Token, r *kmsg.SyncGroupRequest) {
	w := m.wait(token, r.Version)
	g := m.groups[r.Group]
	switch {
	case !validGroup(r.Group):
		m.answer(w, &kmsg.SyncGroupResponse{ErrorCode: kerr.InvalidGroupID.Code})
	case g != nil && g.consumer != nil:
		m.answer(w, m.syncConsumer(g, r))
	case g == nil || g.classic == nil || g.classic.state == StateEmpty:
		m.answer(w, &kmsg.SyncGroupResponse{ErrorCode: kerr.UnknownMemberID.Code})
	default:
		g.classic.syncRequest(m, r, w)
	}
}

func (c *classic) checkSync(r *kmsg.SyncGroupRequest) *kerr.Error {
	if e := c.check(r.MemberID, r.InstanceID); e != nil {
		return e
	}
	differs := func(got *string, have string) bool { return got != nil && have != "" && *got != have }
	switch {
	case r.Generation != c.generation:
		return kerr.IllegalGeneration
	case differs(r.ProtocolType, c.protocolType) || differs(r.Protocol, c.protocol):
		return kerr.InconsistentGroupProtocol
	case c.state == StatePreparing:
		return kerr.RebalanceInProgress
	}
	return nil
}

func (c *classic) syncRequest(m *Machine, r *kmsg.SyncGroupRequest, w *waiter) {
	if e := c.checkSync(r); e != nil {
		m.answer(w, &kmsg.SyncGroupResponse{ErrorCode: e.Code})
		return
	}
	mem := c.members[r.MemberID]
	delete(c.unsynced, mem.id)
	if len(c.unsynced) == 0 {
		m.timers.cancel(timerKey{timerSync, c.g.id, ""})
	}
	if c.state == StateStable {
		m.answer(w, c.synced(mem))
		return
	}
	m.answer(mem.sync, &kmsg.SyncGroupResponse{ErrorCode: kerr.RebalanceInProgress.Code})
	mem.sync = w
	if c.leader != mem.id {
		return
	}
	if !c.roomForSync(m, r) {
		// Kafka can't write such a group either: nobody gets an assignment, and all begin anew.
		for _, o := range c.list() {
			c.endSync(m, o, &kmsg.SyncGroupResponse{ErrorCode: kerr.UnknownServerError.Code})
		}
		c.prepare(m)
		return
	}
	for _, o := range c.members {
		c.assign(o, nil)
	}
	for _, a := range r.GroupAssignment {
		if o := c.members[a.MemberID]; o != nil {
			c.assign(o, slices.Clone(a.MemberAssignment))
		}
	}
	c.to(m, StateStable)
	m.rebalances++
	c.save(m)
	for _, o := range c.list() {
		c.endSync(m, o, c.synced(o))
	}
}

func (c *classic) synced(mem *classicMember) *kmsg.SyncGroupResponse {
	protocolType, protocol := c.protocolType, c.protocol
	return &kmsg.SyncGroupResponse{ProtocolType: &protocolType, Protocol: &protocol, MemberAssignment: mem.assignment}
}

func (m *Machine) heartbeat(r *kmsg.HeartbeatRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
	g := m.groups[r.Group]
	var e *kerr.Error
	switch {
	case !validGroup(r.Group):
		e = kerr.InvalidGroupID
	case g != nil && g.consumer != nil:
		e = m.heartbeatConsumer(g, r)
	case g == nil || g.classic == nil:
		e = kerr.UnknownMemberID
	default:
		e = g.classic.heartbeat(m, r)
	}
	resp.ErrorCode = code(e)
	return resp
}

func (c *classic) heartbeat(m *Machine, r *kmsg.HeartbeatRequest) *kerr.Error {
	if e := c.check(r.MemberID, r.InstanceID); e != nil {
		return e
	}
	if r.Generation != c.generation {
		return kerr.IllegalGeneration
	}
	mem := c.members[r.MemberID]
	if !mem.isNew {
		c.touch(m, mem)
	}
	if c.state == StatePreparing {
		return kerr.RebalanceInProgress
	}
	return nil
}

func (m *Machine) leaveGroup(r *kmsg.LeaveGroupRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.LeaveGroupResponse)
	members := r.Members
	if r.Version < 3 {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: r.MemberID}}
	}
	g := m.groups[r.Group]
	var e *kerr.Error
	switch {
	case !validGroup(r.Group):
		e = kerr.InvalidGroupID
	case g != nil && g.consumer != nil:
		resp.Members = m.leaveConsumer(g, members)
	case g == nil || g.classic == nil:
		e = kerr.UnknownMemberID
	default:
		resp.Members = g.classic.leave(m, members)
		m.release(g)
	}
	resp.ErrorCode = code(e)
	if r.Version < 3 && e == nil {
		resp.ErrorCode, resp.Members = resp.Members[0].ErrorCode, nil
	}
	return resp
}

func (c *classic) leave(m *Machine, members []kmsg.LeaveGroupRequestMember) []kmsg.LeaveGroupResponseMember {
	out := make([]kmsg.LeaveGroupResponseMember, 0, len(members))
	left := false
	for i := range members {
		who := &members[i]
		e := c.leaveOne(m, who)
		left = left || e == nil
		out = append(out, kmsg.LeaveGroupResponseMember{MemberID: who.MemberID, InstanceID: who.InstanceID, ErrorCode: code(e)})
	}
	if left {
		c.afterRemoval(m)
	}
	return out
}

func (c *classic) leaveOne(m *Machine, who *kmsg.LeaveGroupRequestMember) *kerr.Error {
	id := who.MemberID
	if id == "" {
		// An administrator removes a static member by its instance id alone.
		if who.InstanceID == nil || c.static[*who.InstanceID] == "" {
			return kerr.UnknownMemberID
		}
		id = c.static[*who.InstanceID]
	} else if _, ok := c.pending[id]; !ok {
		if e := c.check(id, who.InstanceID); e != nil {
			return e
		}
	}
	c.remove(m, id, kerr.UnknownMemberID)
	return nil
}
