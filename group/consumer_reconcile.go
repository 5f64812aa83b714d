package group

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"slices"
)

// follow leads a member on by one heartbeat: its new subscription raises the group epoch, a new epoch needs a target
// assignment, and the member goes one step towards its own. told says whether owned is what the member has.
func (m *Machine) follow(c *consumer, id string, meta memberMeta, owned assignment, told bool) {
	mem := c.members[id]
	changed := mem == nil || !sameSubscription(&mem.meta, &meta)
	if value := meta.append(); mem == nil || !bytes.Equal(value, mem.meta.append()) {
		m.emitKey(kindMember, value, c.g.id, id)
		mem = c.members[id]
	}
	m.refresh(c, changed)
	if c.epoch > c.target {
		m.assign(c)
	}
	m.reconcile(c, mem, owned, told)
}

func sameSubscription(a, b *memberMeta) bool {
	sameRegex := a.regex == nil && b.regex == nil || a.regex != nil && b.regex != nil && *a.regex == *b.regex
	return sameRegex && slices.Equal(a.topics, b.topics)
}

// refresh looks at the topics anew if they or the subscriptions changed, and raises the epoch if that means anything.
func (m *Machine) refresh(c *consumer, changed bool) {
	if !changed && c.seen == m.topicsVersion {
		return
	}
	c.seen = m.topicsVersion
	m.refreshRegexes(c)
	if hash := m.hashTopics(c); changed || hash != c.hash {
		m.raise(c, hash)
	}
}

// raise begins a new group epoch.
func (m *Machine) raise(c *consumer, hash int64) {
	next := consumer{epoch: c.epoch + 1, hash: hash}
	m.rebalances++
	m.emitKey(kindEpoch, next.appendEpoch(), c.g.id)
}

// hashTopics is a number that changes with the topics the members are subscribed to.
func (m *Machine) hashTopics(c *consumer) int64 {
	topics := map[string]Topic{}
	for _, mem := range c.members {
		c.eachTopic(mem, func(name string) {
			if t, ok := m.topics.ByName(name); ok {
				topics[name] = t
			}
		})
	}
	if len(topics) == 0 {
		return 0
	}
	h := fnv.New64a()
	for _, name := range sortedKeys(topics) {
		t := topics[name]
		_, _ = h.Write(t.ID[:]) // never fails
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(t.Partitions)))
		_, _ = h.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(name))), name...))
	}
	return max(int64(h.Sum64()>>1), 1)
}

// assign makes the target assignment of the present epoch and emits what differs from the last one.
func (m *Machine) assign(c *consumer) {
	targets := m.runAssignor(c)
	for _, id := range sortedKeys(c.members) {
		if mem := c.members[id]; !mem.hasWant || !mem.want.equal(targets[id]) {
			m.emitKey(kindTarget, appendTarget(targets[id]), c.g.id, id)
		}
	}
	m.emitKey(kindTargetEpoch, appendTargetEpoch(c.epoch), c.g.id)
}

// reconcile takes the member one step towards its target:
//
//   - it first gives up what it shall not have any more, and stays in its epoch until it says that it did;
//   - then it enters the target's epoch, with all of its target that nobody else has;
//   - the rest it gets with later heartbeats, as others give it up.
func (m *Machine) reconcile(c *consumer, mem *member, owned assignment, told bool) {
	if mem.hasNow && mem.reconciled(c.target) {
		return
	}
	still := func(a assignment) bool {
		// Who doesn't say what it has is taken to have all.
		any := false
		a.each(func(t [16]byte, p int32) { any = any || !told || owned.has(t, p) })
		return any
	}
	next := mem.now
	epoch := mem.now.epoch
	if mem.now.state == memberUnrevoked {
		if still(mem.now.revoking) {
			return
		}
		epoch++
	}
	keep := mem.now.assigned.filter(mem.want.has)
	revoke := mem.now.assigned.filter(func(t [16]byte, p int32) bool { return !mem.want.has(t, p) })
	if len(revoke) > 0 && still(revoke) {
		next.state, next.assigned, next.revoking = memberUnrevoked, keep, revoke
	} else {
		epoch = c.target
		waits := false
		next.assigned = mem.want.filter(func(t [16]byte, p int32) bool {
			free := keep.has(t, p) || c.owner(t, p) == "" || c.owner(t, p) == mem.id
			waits = waits || !free
			return free
		})
		next.state, next.revoking = memberStable, nil
		if waits {
			next.state = memberUnreleased
		}
	}
	if epoch != mem.now.epoch {
		next.previous, next.epoch = mem.now.epoch, epoch
	}
	if mem.hasNow && next.epoch == mem.now.epoch && next.state == mem.now.state && next.previous == mem.now.previous &&
		next.assigned.equal(mem.now.assigned) && next.revoking.equal(mem.now.revoking) {
		return
	}
	m.emitKey(kindCurrent, next.append(), c.g.id, mem.id)
	if mem.meta.classic != nil {
		return
	}
	k := timerKey{timerRebalance, c.g.id, mem.id}
	if next.state == memberUnrevoked {
		m.timers.set(m.now.mono+int64(max(mem.meta.rebalance, 0)), k)
		return
	}
	m.timers.cancel(k)
}

// fence ends a membership: it left, was silent for too long, or didn't give up what it had to. If all who stay use the
// classic protocol, the group becomes a classic one.
func (c *consumer) fence(m *Machine, mem *member) {
	if m.mayDowngrade(c, mem) && m.downgrade(c, mem.id) {
		return
	}
	m.removeMembers(c, mem.id)
}

// removeMembers takes members out of the group, which is a new epoch for the others.
func (m *Machine) removeMembers(c *consumer, ids ...string) {
	for _, id := range ids {
		c.emitRemoval(m, id)
	}
	c.seen = m.topicsVersion
	m.refreshRegexes(c)
	m.raise(c, m.hashTopics(c))
}
