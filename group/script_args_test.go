package group

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// args are the words of a command: key=value, or one word alone, which is the value of "".
type args map[string]string

func readArgs(s string) args {
	a := args{}
	for _, f := range strings.Fields(s) {
		k, v, ok := strings.Cut(f, "=")
		if !ok {
			k, v = "", f
		}
		a[k] = v
	}
	return a
}

func (a args) str(k, def string) string {
	if v, ok := a[k]; ok {
		return v
	}
	return def
}

func (a args) ptr(k string) *string {
	if v, ok := a[k]; ok {
		return &v
	}
	return nil
}

func (a args) int(k string, def int) int {
	if v, ok := a[k]; ok {
		n, err := strconv.Atoi(v)
		if err != nil {
			panic(err)
		}
		return n
	}
	return def
}

// list splits a value at commas; no such key is nil, an empty value an empty list.
func (a args) list(k string) []string {
	v, ok := a[k]
	switch {
	case !ok:
		return nil
	case v == "":
		return []string{}
	}
	return strings.Split(v, ",")
}

// topicList is topics as a value.
type topicList []Topic

func (l topicList) ByName(name string) (Topic, bool) {
	i := slices.IndexFunc(l, func(t Topic) bool { return t.Name == name })
	if i < 0 {
		return Topic{}, false
	}
	return l[i], true
}

func (l topicList) ByID(id [16]byte) (Topic, bool) {
	i := slices.IndexFunc(l, func(t Topic) bool { return t.ID == id })
	if i < 0 {
		return Topic{}, false
	}
	return l[i], true
}

func (l topicList) All() iter.Seq[Topic] { return slices.Values(l) }

// readTopics reads "name:partitions"; a topic's id is its name, or what follows a slash.
func readTopics(s string) topicList {
	l := topicList{}
	for _, f := range strings.Fields(s) {
		name, n, _ := strings.Cut(f, ":")
		name, id, ok := strings.Cut(name, "/")
		if !ok {
			id = name
		}
		parts, err := strconv.Atoi(n)
		if err != nil {
			panic(err)
		}
		l = append(l, Topic{ID: topicID(id), Name: name, Partitions: int32(parts)})
	}
	return l
}

func topicID(s string) (id [16]byte) {
	copy(id[:], s)
	return id
}

func idName(id [16]byte) string { return strings.TrimRight(string(id[:]), "\x00") }

func atoi32(s string) int32 {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return int32(n)
}

// readParts reads "t:0:1,u:3" into topics with partitions.
func readParts(in []string) (names []string, parts map[string][]int32) {
	parts = map[string][]int32{}
	for _, f := range in {
		w := strings.Split(f, ":")
		if _, ok := parts[w[0]]; !ok {
			names = append(names, w[0])
		}
		parts[w[0]] = parts[w[0]][:len(parts[w[0]]):len(parts[w[0]])]
		for _, p := range w[1:] {
			parts[w[0]] = append(parts[w[0]], atoi32(p))
		}
	}
	return names, parts
}

func buildRequest(t *testing.T, name string, a args) kmsg.Request {
	group := a.str("", "g")
	switch name {
	case "join":
		return buildJoin(a, group)
	case "sync":
		r := kmsg.NewPtrSyncGroupRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID = int16(a.int("v", 5)), group, a.str("member", ""), a.ptr("instance")
		r.Generation, r.ProtocolType, r.Protocol = int32(a.int("gen", 0)), a.ptr("type"), a.ptr("protocol")
		for _, s := range a.list("assign") {
			m, v, _ := strings.Cut(s, ":")
			r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m, MemberAssignment: []byte(v)})
		}
		return r
	case "heartbeat":
		r := kmsg.NewPtrHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = int16(a.int("v", 4)), group, a.str("member", ""), a.ptr("instance"), int32(a.int("gen", 0))
		return r
	case "leave":
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Version, r.Group, r.MemberID = int16(a.int("v", 5)), group, a.str("member", "")
		for _, s := range a.list("members") {
			id, inst, ok := strings.Cut(s, "/")
			m := kmsg.LeaveGroupRequestMember{MemberID: id}
			if ok {
				m.InstanceID = &inst
			}
			r.Members = append(r.Members, m)
		}
		return r
	case "commit":
		return buildCommit(a, group)
	case "fetch":
		return buildFetch(a, group)
	case "list":
		r := kmsg.NewPtrListGroupsRequest()
		r.Version, r.StatesFilter, r.TypesFilter = int16(a.int("v", 5)), a.list("states"), a.list("types")
		return r
	case "describe":
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Version, r.Groups = int16(a.int("v", 6)), strings.Split(group, ",")
		return r
	case "delete":
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Version, r.Groups = int16(a.int("v", 2)), strings.Split(group, ",")
		return r
	case "delete-offsets":
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		names, parts := readParts(a.list("topics"))
		for _, n := range names {
			rt := kmsg.OffsetDeleteRequestTopic{Topic: n}
			for _, p := range parts[n] {
				rt.Partitions = append(rt.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: p})
			}
			r.Topics = append(r.Topics, rt)
		}
		return r
	case "beat":
		return buildBeat(a, group)
	case "describe-consumer":
		r := kmsg.NewPtrConsumerGroupDescribeRequest()
		r.Version, r.Groups = int16(a.int("v", 1)), strings.Split(group, ",")
		return r
	}
	require.Fail(t, "no such command", name)
	return nil
}

func buildJoin(a args, group string) kmsg.Request {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID = int16(a.int("v", 9)), group, a.str("member", ""), a.ptr("instance")
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = int32(a.int("session", 10000)), int32(a.int("rebalance", 30000))
	r.ProtocolType = a.str("type", "consumer")
	for _, p := range strings.Split(a.str("protocols", "range:m"), ",") {
		name, meta, _ := strings.Cut(p, ":")
		r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: []byte(meta)})
	}
	if topics := a.list("topics"); topics != nil {
		// A real consumer's subscription.
		s := kmsg.ConsumerMemberMetadata{Version: 1, Topics: topics}
		names, parts := readParts(a.list("owned"))
		for _, n := range names {
			s.OwnedPartitions = append(s.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: n, Partitions: parts[n]})
		}
		for i := range r.Protocols {
			r.Protocols[i].Metadata = s.AppendTo(nil)
		}
	}
	return r
}

func buildCommit(a args, group string) kmsg.Request {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID = int16(a.int("v", 9)), group, a.str("member", ""), a.ptr("instance")
	r.Generation, r.RetentionTimeMillis = int32(a.int("gen", -1)), int64(a.int("retention", -1))
	for _, s := range a.list("offsets") {
		w := strings.Split(s, ":")
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = atoi32(w[1]), int64(atoi32(w[2])), a.ptr("meta")
		rt := kmsg.OffsetCommitRequestTopic{Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}
		if r.Version >= 10 {
			rt.TopicID = topicID(w[0])
		} else {
			rt.Topic = w[0]
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func buildFetch(a args, group string) kmsg.Request {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version = int16(a.int("v", 9))
	list := a.list("topics")
	names, parts := readParts(list)
	if r.Version < 8 {
		r.Group = group
		if list != nil {
			r.Topics = []kmsg.OffsetFetchRequestTopic{}
		}
		for _, n := range names {
			r.Topics = append(r.Topics, kmsg.OffsetFetchRequestTopic{Topic: n, Partitions: parts[n]})
		}
		return r
	}
	for _, id := range strings.Split(group, ",") {
		g := kmsg.OffsetFetchRequestGroup{Group: id, MemberID: a.ptr("member"), MemberEpoch: int32(a.int("epoch", -1))}
		if list != nil {
			g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
		}
		for _, n := range names {
			t := kmsg.OffsetFetchRequestGroupTopic{Topic: n, Partitions: parts[n]}
			if r.Version >= 10 {
				t.Topic, t.TopicID = "", topicID(n)
			}
			g.Topics = append(g.Topics, t)
		}
		r.Groups = append(r.Groups, g)
	}
	return r
}

func buildBeat(a args, group string) kmsg.Request {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch = int16(a.int("v", 1)), group, a.str("member", ""), int32(a.int("epoch", 0))
	r.InstanceID, r.RackID, r.ServerAssignor = a.ptr("instance"), a.ptr("rack"), a.ptr("assignor")
	r.RebalanceTimeoutMillis = int32(a.int("rebalance", -1))
	r.SubscribedTopicNames, r.SubscribedTopicRegex = a.list("topics"), a.ptr("regex")
	if owned := a.list("owned"); owned != nil {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		names, parts := readParts(owned)
		for _, n := range names {
			r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: topicID(n), Partitions: parts[n]})
		}
	}
	return r
}
