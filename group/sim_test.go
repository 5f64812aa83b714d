package group

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// simClient is a consumer as real ones are: eager in the classic protocol, or of the new one. It believes what it is told.
type simClient struct {
	name     string
	modern   bool // of the new protocol
	instance *string
	id       string
	gen      int32 // generation or epoch
	owned    []int32
	revoking []int32 // of the new protocol: told to give up, not done yet
	token    Token   // of the call that waits
	phase    string  // join, sync, beat
	leads    []string
	lazy     bool // gives up only when asked twice
	// assignedFor is the number of partitions it knew when it assigned as the leader.
	assignedFor int32
	lost        bool // an answer was lost: the next heartbeat of the new protocol says all
}

func (c *simClient) reset() {
	c.id, c.gen, c.owned, c.revoking, c.phase, c.leads, c.assignedFor = "", 0, nil, nil, "join", nil, 0
}

// simGroup is clients of one group, and the world they live in.
type simGroup struct {
	w          *world
	clients    []*simClient
	partitions int32
	named      int
}

func newSim(o Options, partitions int32) *simGroup {
	s := &simGroup{w: newWorld(o)}
	s.grow(partitions)
	return s
}

func (s *simGroup) grow(partitions int32) {
	s.partitions = partitions
	s.w.topics = topicList{{ID: topicID("t"), Name: "t", Partitions: partitions}}
	s.w.m.SetTopics(s.w.topics)
}

func (s *simGroup) add(modern bool, instance *string) *simClient {
	s.named++
	c := &simClient{name: "c" + strconv.Itoa(s.named), modern: modern, instance: instance, lazy: s.named%2 == 0}
	c.reset()
	s.clients = append(s.clients, c)
	return c
}

func (s *simGroup) drop(c *simClient) {
	s.clients = slices.DeleteFunc(s.clients, func(o *simClient) bool { return o == c })
}

func (s *simGroup) call(c *simClient, r kmsg.Request) kmsg.Response {
	s.w.token++
	tok := s.w.token
	s.w.open[tok] = true
	s.w.keep(s.w.m.Handle(s.w.now, Client{ID: c.name, Host: "/h"}, tok, r))
	if rep, ok := s.w.replies[tok]; ok {
		delete(s.w.replies, tok)
		return rep.Response
	}
	c.token = tok
	return nil
}

// step lets the client do what it would do next.
func (s *simGroup) step(c *simClient) {
	if c.token != 0 {
		rep, ok := s.w.replies[c.token]
		if !ok {
			if s.w.open[c.token] {
				return
			}
			c.token, c.lost = 0, true // the coordinator went away
		} else {
			delete(s.w.replies, c.token)
			c.token = 0
			s.take(c, rep.Response)
			return
		}
	}
	if r := s.call(c, s.next(c)); r != nil {
		s.take(c, r)
	}
}

func (s *simGroup) next(c *simClient) kmsg.Request {
	if c.modern {
		return s.nextModern(c)
	}
	switch c.phase {
	case "join":
		// An eager consumer gives all up before it joins.
		c.owned = nil
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID, r.ProtocolType = 9, "g", c.id, c.instance, "consumer"
		r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 10000, 15000
		sub := kmsg.ConsumerMemberMetadata{Version: 1, Topics: []string{"t"}}
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: sub.AppendTo(nil)}}
		return r
	case "sync":
		r := kmsg.NewPtrSyncGroupRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = 5, "g", c.id, c.instance, c.gen
		if len(c.leads) > 0 {
			c.assignedFor = s.partitions
		}
		for i, m := range c.leads {
			a := kmsg.ConsumerMemberAssignment{}
			t := kmsg.ConsumerMemberAssignmentTopic{Topic: "t"}
			for p := int32(i); p < s.partitions; p += int32(len(c.leads)) {
				t.Partitions = append(t.Partitions, p)
			}
			a.Topics = append(a.Topics, t)
			r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m, MemberAssignment: a.AppendTo(nil)})
		}
		return r
	}
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = 4, "g", c.id, c.instance, c.gen
	return r
}

func (s *simGroup) nextModern(c *simClient) kmsg.Request {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	if c.id == "" {
		s.named++
		c.id = fmt.Sprintf("m-%s-%d", c.name, s.named)
	}
	r.Version, r.Group, r.MemberID, r.MemberEpoch, r.InstanceID = 1, "g", c.id, c.gen, c.instance
	if c.gen == 0 {
		c.owned, c.revoking = nil, nil
	}
	if c.gen == 0 || c.lost {
		c.lost = false
		r.RebalanceTimeoutMillis, r.SubscribedTopicNames = 15000, []string{"t"}
	}
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if len(c.revoking) > 0 && !c.lazy {
		c.owned = slices.DeleteFunc(c.owned, func(p int32) bool { return slices.Contains(c.revoking, p) })
		c.revoking = nil
	}
	c.lazy = !c.lazy
	if len(c.owned) > 0 {
		r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: topicID("t"), Partitions: c.owned})
	}
	return r
}

// take makes of an answer what a client makes of it.
func (s *simGroup) take(c *simClient, r kmsg.Response) {
	switch r := r.(type) {
	case *kmsg.JoinGroupResponse:
		if r.ErrorCode == kerr.MemberIDRequired.Code {
			c.id = r.MemberID
			return
		}
		if !c.fine(r.ErrorCode) {
			return
		}
		c.id, c.gen, c.phase, c.leads = r.MemberID, r.Generation, "sync", nil
		for _, m := range r.Members {
			if !r.SkipAssignment {
				c.leads = append(c.leads, m.MemberID)
			}
		}
	case *kmsg.SyncGroupResponse:
		if !c.fine(r.ErrorCode) {
			return
		}
		var a kmsg.ConsumerMemberAssignment
		c.owned, c.phase = nil, "beat"
		if len(r.MemberAssignment) > 0 && a.ReadFrom(r.MemberAssignment) == nil {
			for _, t := range a.Topics {
				c.owned = append(c.owned, t.Partitions...)
			}
		}
	case *kmsg.HeartbeatResponse:
		c.fine(r.ErrorCode)
	case *kmsg.ConsumerGroupHeartbeatResponse:
		s.takeBeat(c, r)
	default:
		panic(fmt.Sprintf("%T", r))
	}
}

func (s *simGroup) takeBeat(c *simClient, r *kmsg.ConsumerGroupHeartbeatResponse) {
	switch r.ErrorCode {
	case 0:
	case kerr.UnreleasedInstanceID.Code:
		return
	case kerr.FencedMemberEpoch.Code, kerr.UnknownMemberID.Code, kerr.GroupIDNotFound.Code, kerr.FencedInstanceID.Code:
		c.owned, c.revoking, c.gen = nil, nil, 0
		return
	default:
		panic(kerr.ErrorForCode(r.ErrorCode))
	}
	c.gen = r.MemberEpoch
	if r.Assignment == nil {
		return
	}
	var want []int32
	for _, t := range r.Assignment.Topics {
		want = append(want, t.Partitions...)
	}
	c.revoking = nil
	for _, p := range c.owned {
		if !slices.Contains(want, p) {
			c.revoking = append(c.revoking, p)
			want = append(want, p)
		}
	}
	c.owned = want
}

// fine handles an error of the classic protocol.
func (c *simClient) fine(code int16) bool {
	var e *kerr.Error
	if !errors.As(kerr.ErrorForCode(code), &e) {
		return true
	}
	switch e {
	case kerr.RebalanceInProgress, kerr.IllegalGeneration:
		c.phase = "join"
	case kerr.UnknownMemberID, kerr.FencedInstanceID:
		c.reset()
	default:
		panic(e)
	}
	return false
}

// owners says who believes to own what, among those the coordinator takes for members of the present generation or epoch.
// It fails if two do.
func (s *simGroup) owners() (map[int32]string, error) {
	out := map[int32]string{}
	g := s.w.m.groups["g"]
	for _, c := range s.clients {
		if g == nil || !s.valid(g, c) {
			continue
		}
		for _, p := range c.owned {
			if o := out[p]; o != "" {
				return nil, fmt.Errorf("partition %d is owned by %s and by %s", p, o, c.id)
			}
			out[p] = c.id
		}
	}
	if g != nil && g.consumer != nil {
		seen := map[slotID]string{}
		for id, mem := range g.consumer.members {
			var err error
			check := func(t [16]byte, p int32) {
				if o := seen[slotID{t, p}]; o != "" {
					err = fmt.Errorf("partition %d is given to %s and to %s", p, o, id)
				}
				seen[slotID{t, p}] = id
			}
			mem.now.assigned.each(check)
			mem.now.revoking.each(check)
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// valid tells whether the coordinator would take a commit of the client.
func (s *simGroup) valid(g *group, c *simClient) bool {
	switch {
	case c.id == "":
		return false
	case g.consumer != nil:
		mem := g.consumer.members[c.id]
		return mem != nil && c.gen == mem.now.epoch && c.modern == (mem.meta.classic == nil)
	case g.classic != nil:
		return !c.modern && g.classic.members[c.id] != nil && c.gen == g.classic.generation && g.classic.state != StateCompleting
	}
	return false
}
