package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What members say of themselves stays in memory, in one record for each classic group, and in the answer to its leader.
// So it is bounded, for each group and for all groups of a shard: a record has to fit into a batch of the partition, and
// members come from outside.

// weight counts bytes of members, for a group and for the machine.
type weight struct {
	bytes int
	all   *int // Machine.memberBytes
}

func (w *weight) grow(d int) {
	w.bytes += d
	*w.all += d
}

// fits tells whether something of a group may grow from old to size bytes. What shrinks always may.
func (m *Machine) fits(w *weight, old, size int) bool {
	if size <= old {
		return true
	}
	held := 0
	if w != nil {
		held = w.bytes
	}
	return held-old+size <= m.opts.MaxGroupBytes && m.memberBytes-old+size <= m.opts.MaxMemberBytes
}

// memberOverhead is what a member takes besides its strings.
const memberOverhead = 256

// memberBytes is what a member of the classic protocol takes, but for its assignment.
func memberBytes(clientID, host string, instance *string, protocols []protocol) int {
	n := memberOverhead + 2*len(clientID) + len(host)
	if instance != nil {
		n += 2 * len(*instance)
	}
	for _, p := range protocols {
		n += len(p.name) + len(p.meta)
	}
	return n
}

func (mem *classicMember) bytes() int {
	return memberBytes(mem.clientID, mem.host, mem.instance, mem.protocols)
}

func (j *joinRequest) bytes() int {
	return memberBytes(j.client.ID, j.client.Host, j.InstanceID, j.protocols)
}

// beatBytes is what a heartbeat says of its member.
func beatBytes(client Client, r *kmsg.ConsumerGroupHeartbeatRequest) int {
	n := memberOverhead + len(client.ID) + len(client.Host)
	for _, s := range []*string{r.InstanceID, r.RackID, r.SubscribedTopicRegex, r.ServerAssignor} {
		if s != nil {
			n += len(*s) + 3
		}
	}
	for _, t := range r.SubscribedTopicNames {
		n += len(t) + 3
	}
	return n
}

// assign gives a member its assignment.
func (c *classic) assign(mem *classicMember, b []byte) {
	c.grow(len(b) - len(mem.assignment))
	mem.assignment = b
}

// roomForJoin tells whether the group can take what a join says.
func (c *classic) roomForJoin(m *Machine, j *joinRequest) bool {
	old := 0
	mem := c.members[j.MemberID]
	if mem == nil && j.InstanceID != nil {
		mem = c.members[c.static[*j.InstanceID]]
	}
	if mem != nil {
		old = mem.bytes()
	}
	return m.fits(&c.weight, old, j.bytes())
}

// roomForSync is roomForJoin for the leader's assignment.
func (c *classic) roomForSync(m *Machine, r *kmsg.SyncGroupRequest) bool {
	old, size := 0, 0
	for _, mem := range c.members {
		old += len(mem.assignment)
	}
	for i := range r.GroupAssignment {
		if a := &r.GroupAssignment[i]; c.members[a.MemberID] != nil {
			size += len(a.MemberAssignment)
		}
	}
	return m.fits(&c.weight, old, size)
}

// roomForBeat is roomForJoin for a member of the new protocol; c and mem are nil if there are none yet.
func (m *Machine) roomForBeat(client Client, c *consumer, mem *member, r *kmsg.ConsumerGroupHeartbeatRequest) *fault {
	if r.SubscribedTopicNames == nil && r.SubscribedTopicRegex == nil {
		return nil
	}
	held, w := 0, (*weight)(nil)
	if c != nil {
		w = &c.weight
	}
	if mem != nil {
		held = mem.bytes
	}
	if !m.fits(w, held, beatBytes(client, r)) {
		return &fault{kerr.GroupMaxSizeReached, "The members of the group, or of all groups of the coordinator, have too much metadata."}
	}
	return nil
}
