package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// prepareOrComplete follows a change of the group: a rebalance begins, or the one under way may be able to end.
func (c *classic) prepareOrComplete(m *Machine) {
	if c.state == StatePreparing {
		c.maybeComplete(m)
		return
	}
	c.prepare(m)
}

// prepare begins a rebalance. Members that wait for their assignment are sent back to join.
func (c *classic) prepare(m *Machine) {
	if c.state == StateCompleting {
		for _, mem := range c.list() {
			c.assign(mem, nil)
			c.endSync(m, mem, &kmsg.SyncGroupResponse{ErrorCode: kerr.RebalanceInProgress.Code})
		}
	}
	clear(c.unsynced)
	m.timers.cancel(timerKey{timerSync, c.g.id, ""})
	c.initial, c.added = c.state == StateEmpty, false
	c.to(m, StatePreparing)
	if !c.initial {
		if !c.complete(m) {
			m.timers.set(m.now.mono+c.rebalanceTimeout(), timerKey{timerJoin, c.g.id, ""})
		}
		return
	}
	delay := m.opts.InitialRebalanceDelay.Milliseconds()
	c.remaining = max(c.rebalanceTimeout()-delay, 0)
	if delay == 0 {
		c.endJoin(m)
		return
	}
	m.timers.set(m.now.mono+delay, timerKey{timerJoin, c.g.id, ""})
}

// maybeComplete ends the join phase if all have joined, the initial one excepted: that one waits for more.
func (c *classic) maybeComplete(m *Machine) {
	if c.state == StatePreparing && !c.initial {
		c.complete(m)
	}
}

// settle follows the removal of a member that needs no rebalance by itself.
func (c *classic) settle(m *Machine) {
	if c.state == StatePreparing && (!c.initial || len(c.members) == 0 && len(c.pending) == 0) {
		c.complete(m)
	}
}

// complete ends the join phase if nobody is missing.
func (c *classic) complete(m *Machine) bool {
	if c.joining != len(c.members) || len(c.pending) > 0 {
		return false
	}
	c.endJoin(m)
	return true
}

// joinTimeout is the end of the time to join, or of one part of the initial delay.
func (c *classic) joinTimeout(m *Machine) {
	if c.state != StatePreparing {
		return
	}
	delay := m.opts.InitialRebalanceDelay.Milliseconds()
	if c.initial && c.added && c.remaining > 0 {
		c.added = false
		next := min(delay, c.remaining)
		c.remaining = max(c.remaining-delay, 0)
		m.timers.set(m.now.mono+next, timerKey{timerJoin, c.g.id, ""})
		return
	}
	c.endJoin(m)
}

// endJoin begins the next generation with those who joined, and with static members that didn't.
func (c *classic) endJoin(m *Machine) {
	m.timers.cancel(timerKey{timerJoin, c.g.id, ""})
	for _, mem := range slices.Clone(c.list()) {
		if mem.join == nil && mem.instance == nil {
			c.remove(m, mem.id, kerr.UnknownMemberID)
		}
	}
	if len(c.members) > 0 && !c.elect() {
		// Only static members are left, and none of them is here: their sessions decide.
		m.timers.set(m.now.mono+max(c.rebalanceTimeout(), 1), timerKey{timerJoin, c.g.id, ""})
		return
	}
	c.generation++
	if c.generation < 0 {
		c.generation = 1
	}
	c.initial = false
	clear(c.unsynced)
	if len(c.members) == 0 {
		c.protocol, c.leader = "", ""
		c.to(m, StateEmpty)
		c.save(m)
		return
	}
	c.protocol = c.choose()
	c.to(m, StateCompleting)
	for _, mem := range c.list() {
		if mem.join != nil {
			m.answer(mem.join, c.joined(mem, c.leader == mem.id))
			mem.join = nil
		}
		mem.isNew = false
		c.unsynced[mem.id] = struct{}{}
		c.touch(m, mem)
	}
	c.joining = 0
	m.timers.set(m.now.mono+c.rebalanceTimeout(), timerKey{timerSync, c.g.id, ""})
}

// elect makes sure that the leader is one who joined.
func (c *classic) elect() bool {
	if l := c.members[c.leader]; l != nil && l.join != nil {
		return true
	}
	for _, mem := range c.list() {
		if mem.join != nil {
			c.leader = mem.id
			return true
		}
	}
	return false
}

func (c *classic) endSync(m *Machine, mem *classicMember, r *kmsg.SyncGroupResponse) {
	if mem.sync == nil {
		return
	}
	m.answer(mem.sync, r)
	mem.sync = nil
	c.touch(m, mem)
}

// syncTimeout ends the membership of those who joined and never synced.
func (c *classic) syncTimeout(m *Machine) {
	if c.state != StateCompleting && c.state != StateStable || len(c.unsynced) == 0 {
		return
	}
	for _, id := range sortedKeys(c.unsynced) {
		c.remove(m, id, kerr.UnknownMemberID)
	}
	c.prepare(m)
}

// sessionTimeout ends the membership of one who was not heard of. Who waits for the others is taken to be alive.
func (c *classic) sessionTimeout(m *Machine, id string) {
	if _, ok := c.pending[id]; ok {
		c.remove(m, id, kerr.UnknownMemberID)
		c.settle(m)
		return
	}
	mem := c.members[id]
	if mem == nil || !mem.isNew && (mem.join != nil || mem.sync != nil) {
		return
	}
	c.remove(m, id, kerr.UnknownMemberID)
	c.afterRemoval(m)
}

// afterRemoval lets the others share what a member had.
func (c *classic) afterRemoval(m *Machine) {
	if c.state == StateStable || c.state == StateCompleting {
		c.prepare(m)
		return
	}
	c.settle(m)
}

func (c *classic) fire(m *Machine, k timerKey) {
	switch k.kind {
	case timerJoin:
		c.joinTimeout(m)
	case timerSync:
		c.syncTimeout(m)
	case timerSession:
		c.sessionTimeout(m, k.member)
	}
	m.release(c.g)
}
