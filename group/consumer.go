package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The states of a member, as its record holds them.
const (
	memberStable     int8 = 0
	memberUnrevoked  int8 = 1 // has to give partitions up first
	memberUnreleased int8 = 2 // waits for partitions that others have to give up
)

// The epochs by which a member leaves.
const (
	leaveEpoch       = -1
	leaveStaticEpoch = -2 // a static member that means to come back
)

// consumer is a group of the new protocol (KIP-848). All of it but seen is durable. Each change of the members or of their
// topics raises the group epoch; for each epoch a target assignment is made; each member is then led to its target, step by
// step, by its own heartbeats.
type consumer struct {
	g       *group
	epoch   int32
	hash    int64 // of the topics the members are subscribed to; 0: none of them exists
	target  int32 // epoch of the target assignment
	has     has
	members map[string]*member
	regexes map[string]*regex

	static map[string]string             // instance id -> member id; derived
	owners map[[16]byte]map[int32]string // who has a partition, or has yet to give it up; derived
	seen   uint64                        // Machine.topicsVersion the subscriptions were resolved against
	weight
}

// has says which records there are.
type has struct{ epoch, target bool }

// member is a member of a consumer group, of either protocol.
type member struct {
	id   string
	meta memberMeta
	now  current
	want assignment // its part of the target assignment
	// bytes is what meta counts for in the group's weight.
	bytes int
	// which records there are
	hasMeta, hasNow, hasWant bool
}

// memberMeta is what a member says of itself.
type memberMeta struct {
	instance, rack *string
	clientID, host string
	topics         []string // sorted
	regex          *string
	rebalance      int32 // timeout, ms
	assignor       *string
	classic        *classicMeta // of a member that uses the classic protocol
}

type classicMeta struct {
	session   int32 // timeout, ms
	protocols []protocol
}

// current is where a member stands.
type current struct {
	epoch, previous int32
	state           int8
	assigned        assignment
	revoking        assignment // to be given up
}

// regex is a subscription by pattern and the topics it matched.
type regex struct {
	topics    []string // sorted
	version   int64
	timestamp int64
}

func (c *consumer) vacant() bool {
	return len(c.members) == 0 && len(c.regexes) == 0 && !c.has.epoch && !c.has.target
}

func (c *consumer) state() State {
	switch {
	case len(c.members) == 0:
		return StateEmpty
	case c.epoch > c.target:
		return StateAssigning
	}
	for _, m := range c.members {
		if !m.reconciled(c.target) {
			return StateReconciling
		}
	}
	return StateStable
}

func (m *member) reconciled(target int32) bool {
	return m.now.state == memberStable && m.now.epoch == target
}

// owner returns who has a partition, "" if nobody.
func (c *consumer) owner(topic [16]byte, p int32) string { return c.owners[topic][p] }

func (c *consumer) loaded(m *Machine) {
	for _, id := range sortedKeys(c.members) {
		mem := c.members[id]
		c.touch(m, mem)
		if mem.now.state == memberUnrevoked && mem.meta.classic == nil {
			m.timers.set(m.now.mono+int64(max(mem.meta.rebalance, 0)), timerKey{timerRebalance, c.g.id, id})
		}
	}
}

// touch starts the member's session anew.
func (c *consumer) touch(m *Machine, mem *member) {
	session := m.opts.ConsumerSessionTimeout.Milliseconds()
	if mem.meta.classic != nil {
		session = int64(mem.meta.classic.session)
	}
	m.timers.set(m.now.mono+session, timerKey{timerSession, c.g.id, mem.id})
}

func (c *consumer) cancelTimers(m *Machine, id string) {
	for _, k := range []timerKind{timerSession, timerRebalance, timerMemberJoin, timerMemberSync} {
		m.timers.cancel(timerKey{k, c.g.id, id})
	}
}

func (m *Machine) fireConsumer(g *group, k timerKey) {
	mem := g.consumer.members[k.member]
	if mem == nil || k.kind == timerRebalance && mem.now.state != memberUnrevoked || k.kind == timerJoin || k.kind == timerSync {
		return
	}
	g.consumer.fence(m, mem)
}

// subscribed returns the test whether a topic is one that the members consume.
func (c *consumer) subscribed(*Machine) func(string) bool {
	topics := map[string]bool{}
	for _, mem := range c.members {
		c.eachTopic(mem, func(t string) { topics[t] = true })
	}
	return func(t string) bool { return topics[t] }
}

// eachTopic calls fn for the topics a member is subscribed to, by name or by pattern; one may come twice.
func (c *consumer) eachTopic(mem *member, fn func(string)) {
	for _, t := range mem.meta.topics {
		fn(t)
	}
	if mem.meta.regex == nil {
		return
	}
	if r := c.regexes[*mem.meta.regex]; r != nil {
		for _, t := range r.topics {
			fn(t)
		}
	}
}

// assignor is the one that most members prefer, of equals the first by name; without preferences the broker's first.
func (c *consumer) assignor(m *Machine) string {
	votes := map[string]int{}
	for _, mem := range c.members {
		if a := mem.meta.assignor; a != nil && slices.Contains(m.opts.ConsumerAssignors, *a) {
			votes[*a]++
		}
	}
	best := ""
	for _, name := range sortedKeys(votes) {
		if votes[name] > votes[best] {
			best = name
		}
	}
	if best == "" {
		best = m.opts.ConsumerAssignors[0]
	}
	return best
}

func (c *consumer) checkCommit(m *Machine, r *kmsg.OffsetCommitRequest) *kerr.Error {
	epoch := r.Generation
	if r.Version == 0 {
		epoch = -1
	}
	// An administrator may commit for a group without members.
	if epoch < 0 && len(c.members) == 0 {
		return nil
	}
	mem := c.members[r.MemberID]
	switch {
	case mem == nil:
		return kerr.UnknownMemberID
	case mem.meta.classic == nil && r.Version < 9:
		return kerr.UnsupportedVersion
	case mem.now.epoch == epoch:
		if mem.meta.classic != nil {
			c.touch(m, mem)
		}
		return nil
	case mem.meta.classic != nil:
		return kerr.IllegalGeneration
	}
	return kerr.StaleMemberEpoch
}

func (c *consumer) checkFetch(id *string, epoch int32) *kerr.Error {
	if id == nil && epoch < 0 {
		return nil
	}
	if id == nil || c.members[*id] == nil {
		return kerr.UnknownMemberID
	}
	if c.members[*id].now.epoch != epoch {
		return kerr.StaleMemberEpoch
	}
	return nil
}

func (m *Machine) consumerGroupDescribe(r *kmsg.ConsumerGroupDescribeRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, id := range r.Groups {
		out := kmsg.NewConsumerGroupDescribeResponseGroup()
		out.Group = id
		switch g := m.groups[id]; {
		case id == "":
			out.ErrorCode = kerr.InvalidGroupID.Code
		case g == nil || g.consumer == nil:
			text := "Group " + id + " not found."
			if g != nil {
				text = "Group " + id + " is not a consumer group."
			}
			out.ErrorCode, out.ErrorMessage = kerr.GroupIDNotFound.Code, &text
		default:
			g.consumer.describe(m, &out)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

func (c *consumer) describe(m *Machine, out *kmsg.ConsumerGroupDescribeResponseGroup) {
	out.State, out.Epoch, out.AssignmentEpoch, out.AssignorName = string(c.state()), c.epoch, c.target, c.assignor(m)
	for _, id := range sortedKeys(c.members) {
		mem := c.members[id]
		d := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		d.MemberID, d.InstanceID, d.RackID, d.MemberEpoch = id, mem.meta.instance, mem.meta.rack, mem.now.epoch
		d.ClientID, d.ClientHost, d.SubscribedTopics = mem.meta.clientID, mem.meta.host, mem.meta.topics
		d.SubscribedTopicRegex = mem.meta.regex
		d.Assignment, d.TargetAssignment = m.named(mem.now.assigned), m.named(mem.want)
		d.MemberType = 1
		if mem.meta.classic != nil {
			d.MemberType = 0
		}
		out.Members = append(out.Members, d)
	}
}

// named gives an assignment with the topics' names; topics that are gone are left out.
func (m *Machine) named(a assignment) kmsg.Assignment {
	var out kmsg.Assignment
	for _, t := range a {
		if topic, ok := m.topics.ByID(t.topic); ok {
			out.TopicPartitions = append(out.TopicPartitions, kmsg.AssignmentTopicPartition{TopicID: t.topic, Topic: topic.Name, Partitions: t.parts})
		}
	}
	return out
}
