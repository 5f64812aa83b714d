package group

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (m *Machine) offsetDelete(r *kmsg.OffsetDeleteRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.OffsetDeleteResponse)
	g := m.groups[r.Group]
	subscribed := func(string) bool { return false }
	switch {
	case !validGroup(r.Group):
		resp.ErrorCode = kerr.InvalidGroupID.Code
	case g == nil:
		resp.ErrorCode = kerr.GroupIDNotFound.Code
	case g.consumer != nil:
		subscribed = g.consumer.subscribed(m)
	case g.classic != nil && g.classic.state != StateEmpty:
		if g.classic.protocolType != consumerType {
			resp.ErrorCode = kerr.NonEmptyGroup.Code
		}
		subscribed = g.classic.subscribed()
	}
	if resp.ErrorCode != 0 {
		return resp
	}
	for _, rt := range r.Topics {
		t := kmsg.OffsetDeleteResponseTopic{Topic: rt.Topic}
		for _, rp := range rt.Partitions {
			p := kmsg.OffsetDeleteResponseTopicPartition{Partition: rp.Partition}
			if subscribed(rt.Topic) {
				p.ErrorCode = kerr.GroupSubscribedToTopic.Code
			} else if g.offsets[rt.Topic][rp.Partition] != nil {
				m.emitOffset(g.id, rt.Topic, rp.Partition, nil)
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (m *Machine) deleteGroups(r *kmsg.DeleteGroupsRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, id := range r.Groups {
		var e *kerr.Error
		switch g := m.groups[id]; {
		case g == nil:
			e = kerr.GroupIDNotFound
		case !g.empty():
			e = kerr.NonEmptyGroup
		default:
			m.dropOffsets(g)
			m.dropMembership(g)
			m.release(g)
		}
		resp.Groups = append(resp.Groups, kmsg.DeleteGroupsResponseGroup{Group: id, ErrorCode: code(e), ErrorMessage: errorMessage(e)})
	}
	return resp
}

// dropOffsets emits a tombstone for each committed offset of the group.
func (m *Machine) dropOffsets(g *group) {
	for _, topic := range sortedKeys(g.offsets) {
		for _, p := range sortedKeys(g.offsets[topic]) {
			m.emitOffset(g.id, topic, p, nil)
		}
	}
}

func (m *Machine) dropTopics(names []string) {
	for _, id := range sortedKeys(m.groups) {
		g := m.groups[id]
		for _, topic := range names {
			for _, p := range sortedKeys(g.offsets[topic]) {
				m.emitOffset(id, topic, p, nil)
			}
		}
	}
}

func (m *Machine) listGroups(r *kmsg.ListGroupsRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.ListGroupsResponse)
	allowed := func(filter []string, name string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, name) })
	}
	for _, id := range sortedKeys(m.groups) {
		g := m.groups[id]
		if !allowed(r.StatesFilter, string(g.state())) || !allowed(r.TypesFilter, g.kind()) {
			continue
		}
		kind := "Classic"
		if g.kind() == typeConsumer {
			kind = "Consumer"
		}
		resp.Groups = append(resp.Groups, kmsg.ListGroupsResponseGroup{
			Group: id, ProtocolType: g.protocolType(), GroupState: string(g.state()), GroupType: kind,
		})
	}
	return resp
}

func (m *Machine) describeGroups(r *kmsg.DescribeGroupsRequest) kmsg.Response {
	resp := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range r.Groups {
		out := kmsg.NewDescribeGroupsResponseGroup()
		out.Group = id
		switch g := m.groups[id]; {
		case g == nil || g.consumer != nil:
			out.State = string(StateDead)
			if r.Version >= 6 {
				text := "Group " + id + " not found."
				if g != nil {
					text = "Group " + id + " is not a classic group."
				}
				out.ErrorCode, out.ErrorMessage = kerr.GroupIDNotFound.Code, &text
			}
		case g.classic == nil:
			out.State = string(StateEmpty)
		default:
			g.classic.describe(&out)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

// maxSweep bounds the offsets that one step of expiry looks at.
const maxSweep = 20_000

// expire looks for offsets to expire, and for groups of which nothing is left then. It goes on where the last step of the
// same sweep ended.
func (m *Machine) expire() {
	if m.sweep == nil {
		m.sweep = sortedKeys(m.groups)
	}
	budget := maxSweep
	for len(m.sweep) > 0 && budget > 0 {
		if g := m.groups[m.sweep[0]]; g != nil {
			budget -= m.expireGroup(g)
		}
		budget--
		m.sweep = m.sweep[1:]
	}
	wait := int64(0)
	if len(m.sweep) == 0 {
		m.sweep = nil
		wait = m.opts.OffsetsRetentionCheck.Milliseconds()
	}
	m.timers.set(m.now.mono+wait, timerKey{kind: timerExpiry})
}

// expireGroup expires the offsets of one group and returns how many it looked at.
func (m *Machine) expireGroup(g *group) int {
	if m.opts.OffsetsRetention < 0 {
		return 0
	}
	from, subscribed, may := g.expiry(m)
	if !may {
		return 0
	}
	seen, left := 0, false
	for _, topic := range sortedKeys(g.offsets) {
		keep := subscribed(topic)
		for _, p := range sortedKeys(g.offsets[topic]) {
			seen++
			o := g.offsets[topic][p]
			at := o.expires
			if at < 0 {
				at = max(from, o.committed) + m.opts.OffsetsRetention.Milliseconds()
			}
			if keep || at > m.now.wall {
				left = true
				continue
			}
			m.expired++
			m.emitOffset(g.id, topic, p, nil)
		}
	}
	if !left && g.empty() {
		m.dropMembership(g)
		m.release(g)
	}
	return seen
}

// expiry tells from when on the retention of the group's offsets counts at the earliest (else from their commits), which
// topics are kept, and whether anything may expire at all.
func (g *group) expiry(m *Machine) (from int64, subscribed func(string) bool, may bool) {
	none := func(string) bool { return false }
	switch c := g.classic; {
	case g.consumer != nil:
		return -1, g.consumer.subscribed(m), true
	case c == nil || c.protocolType == "":
		return -1, none, true
	case c.state == StateEmpty:
		return c.since, none, true
	case c.protocolType == consumerType && c.state == StateStable:
		return -1, c.subscribed(), true
	}
	return 0, nil, false
}
