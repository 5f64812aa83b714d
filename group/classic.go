package group

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classic is the live state of a group of the classic protocol:
//
//	Empty -> Preparing -> Completing -> Stable
//	  ^          |  ^---------'-----------'      any join, leave or expiry that changes the group
//	  '----------'                               nobody joined
type classic struct {
	g            *group
	state        State
	initial      bool  // Preparing was entered from Empty: wait for more members
	added        bool  // a member came while initial
	remaining    int64 // ms that the initial delay may still be extended by
	since        int64 // wall clock of the last change of state
	generation   int32
	protocolType string
	protocol     string // chosen for the generation, "" if none
	leader       string // member id, "" if none
	members      map[string]*classicMember
	order        []*classicMember // members in the order they came; nil when it is to be made
	seq          uint64
	static       map[string]string   // instance id -> member id
	pending      map[string]struct{} // member ids that were handed out, not used yet
	unsynced     map[string]struct{} // members that haven't synced in this generation
	supports     map[string]int      // protocol -> members that support it
	joining      int                 // members that wait for the join to end
	weight
}

type classicMember struct {
	id             string
	seq            uint64
	instance       *string
	clientID, host string
	rebalance      int32 // timeout, ms
	session        int32 // timeout, ms
	protocols      []protocol
	assignment     []byte
	isNew          bool // has never got an answer to its join
	join, sync     *waiter
}

type protocol struct {
	name string
	meta []byte
}

func newClassic(m *Machine, g *group) *classic {
	return &classic{
		weight: weight{all: &m.memberBytes},
		g:      g, state: StateEmpty, since: m.now.wall, members: map[string]*classicMember{}, static: map[string]string{},
		pending: map[string]struct{}{}, unsynced: map[string]struct{}{}, supports: map[string]int{},
	}
}

// vacant tells whether the group holds nothing that outlives a restart or that somebody waits for.
func (c *classic) vacant() bool {
	return len(c.members) == 0 && len(c.pending) == 0 && c.state == StateEmpty
}

func (c *classic) to(m *Machine, s State) {
	c.state, c.since = s, m.now.wall
}

// list returns the members in the order they came.
func (c *classic) list() []*classicMember {
	if c.order == nil {
		c.order = slices.SortedFunc(maps.Values(c.members), func(a, b *classicMember) int { return cmp.Compare(a.seq, b.seq) })
	}
	return c.order
}

func (c *classic) add(mem *classicMember) {
	c.seq++
	mem.seq = c.seq
	c.members[mem.id] = mem
	c.order = nil
	if mem.instance != nil {
		c.static[*mem.instance] = mem.id
	}
	if c.leader == "" {
		c.leader = mem.id
	}
	c.count(mem, 1)
	c.grow(len(mem.assignment))
	if mem.join != nil {
		c.joining++
	}
	delete(c.pending, mem.id)
}

func (c *classic) count(mem *classicMember, d int) {
	c.grow(d * mem.bytes())
	for _, p := range mem.protocols {
		if c.supports[p.name] += d; c.supports[p.name] == 0 {
			delete(c.supports, p.name)
		}
	}
}

// remove takes a member out of the group: its waiting calls are answered with the error.
func (c *classic) remove(m *Machine, id string, e *kerr.Error) {
	delete(c.pending, id)
	delete(c.unsynced, id)
	m.timers.cancel(timerKey{timerSession, c.g.id, id})
	mem := c.members[id]
	if mem == nil {
		return
	}
	c.failJoin(m, mem, "", e)
	m.answer(mem.sync, &kmsg.SyncGroupResponse{ErrorCode: e.Code})
	delete(c.members, id)
	c.order = nil
	c.count(mem, -1)
	c.assign(mem, nil)
	if mem.instance != nil && c.static[*mem.instance] == id {
		delete(c.static, *mem.instance)
	}
	if c.leader != id {
		return
	}
	c.leader = ""
	var first *classicMember
	for _, o := range c.members {
		if first == nil || o.seq < first.seq {
			first = o
		}
	}
	if first != nil {
		c.leader = first.id
	}
}

func (c *classic) failJoin(m *Machine, mem *classicMember, id string, e *kerr.Error) {
	if mem.join == nil {
		return
	}
	m.answer(mem.join, joinError(id, e))
	mem.join = nil
	c.joining--
}

// stop ends the live group: nobody is left waiting, no timer is left running.
func (c *classic) stop(m *Machine) {
	for _, mem := range slices.Clone(c.list()) {
		c.remove(m, mem.id, kerr.UnknownMemberID)
	}
	for id := range c.pending {
		m.timers.cancel(timerKey{timerSession, c.g.id, id})
	}
	clear(c.pending)
	m.timers.cancel(timerKey{timerJoin, c.g.id, ""})
	m.timers.cancel(timerKey{timerSync, c.g.id, ""})
}

// check tells whether a request comes from a member.
func (c *classic) check(member string, instance *string) *kerr.Error {
	if instance != nil {
		owner, ok := c.static[*instance]
		if !ok {
			return kerr.UnknownMemberID
		}
		if owner != member {
			return kerr.FencedInstanceID
		}
	}
	if c.members[member] == nil {
		return kerr.UnknownMemberID
	}
	return nil
}

func (c *classic) checkCommit(m *Machine, member string, instance *string, generation int32) *kerr.Error {
	if generation < 0 && c.state == StateEmpty {
		return nil
	}
	if generation < 0 && member == "" && instance == nil {
		return kerr.UnknownMemberID
	}
	if e := c.check(member, instance); e != nil {
		return e
	}
	if generation != c.generation {
		return kerr.IllegalGeneration
	}
	if c.state == StateCompleting {
		return kerr.RebalanceInProgress
	}
	c.touch(m, c.members[member])
	return nil
}

// touch starts the member's session anew.
func (c *classic) touch(m *Machine, mem *classicMember) {
	m.timers.set(m.now.mono+int64(mem.session), timerKey{timerSession, c.g.id, mem.id})
}

func (c *classic) rebalanceTimeout() int64 {
	var t int32
	for _, mem := range c.members {
		t = max(t, mem.rebalance)
	}
	return int64(t)
}

func (mem *classicMember) metadata(name string) []byte {
	for _, p := range mem.protocols {
		if p.name == name {
			return p.meta
		}
	}
	return nil
}

// matches tells whether the member's protocols are these, in this order.
func (mem *classicMember) matches(ps []protocol) bool {
	return slices.EqualFunc(mem.protocols, ps, func(a, b protocol) bool { return a.name == b.name && string(a.meta) == string(b.meta) })
}

// supported tells whether a member with these protocols fits into the group.
func (c *classic) supported(protocolType string, ps []protocol) bool {
	if c.state == StateEmpty {
		return protocolType != "" && len(ps) > 0
	}
	if protocolType != c.protocolType {
		return false
	}
	return slices.ContainsFunc(ps, func(p protocol) bool { return c.supports[p.name] == len(c.members) })
}

// choose returns the protocol that most members prefer among those all support; of equals the first of the eldest member.
func (c *classic) choose() string {
	votes := map[string]int{}
	for _, mem := range c.members {
		for _, p := range mem.protocols {
			if c.supports[p.name] == len(c.members) {
				votes[p.name]++
				break
			}
		}
	}
	best := ""
	for _, mem := range c.list() {
		for _, p := range mem.protocols {
			if votes[p.name] > votes[best] {
				best = p.name
			}
		}
	}
	return best
}

// subscribed returns the test whether the members consume a topic; where that can't be known every topic counts.
func (c *classic) subscribed() func(string) bool {
	all := c.protocolType == consumerType
	topics := map[string]bool{}
	for _, mem := range c.members {
		var s kmsg.ConsumerMemberMetadata
		if c.protocolType != consumerType || c.protocol == "" || s.ReadFrom(mem.metadata(c.protocol)) != nil {
			return func(string) bool { return all }
		}
		for _, t := range s.Topics {
			topics[t] = true
		}
	}
	return func(t string) bool { return topics[t] }
}

func (c *classic) describe(out *kmsg.DescribeGroupsResponseGroup) {
	out.State, out.ProtocolType = string(c.state), c.protocolType
	if c.state == StateStable {
		out.Protocol = c.protocol
	}
	for _, mem := range c.list() {
		d := kmsg.DescribeGroupsResponseGroupMember{MemberID: mem.id, InstanceID: mem.instance, ClientID: mem.clientID, ClientHost: mem.host}
		if c.state == StateStable {
			d.ProtocolMetadata, d.MemberAssignment = mem.metadata(c.protocol), mem.assignment
		}
		out.Members = append(out.Members, d)
	}
}
