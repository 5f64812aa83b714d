package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// weigh counts again what the machine should have counted.
func weigh(m *Machine) int {
	n := 0
	for _, g := range m.groups {
		if c := g.classic; c != nil {
			for _, mem := range c.members {
				n += mem.bytes() + len(mem.assignment)
			}
		}
		if c := g.consumer; c != nil {
			for _, mem := range c.members {
				if mem.hasMeta {
					n += len(mem.meta.append()) + memberOverhead
				}
			}
		}
	}
	return n
}

func heavyJoin(g string, size int) *kmsg.JoinGroupRequest {
	r := buildJoin(args{"v": "3"}, g).(*kmsg.JoinGroupRequest)
	r.Protocols[0].Metadata = make([]byte, size)
	return r
}

// TestHeavyMembers: members with megabytes of metadata fill a group and a shard up to their limits, no further.
func TestHeavyMembers(t *testing.T) {
	const mib = 1 << 20
	w := newWorld(Options{InitialRebalanceDelay: time.Second})
	code := func(s Step) int16 {
		if len(s.Replies) == 0 {
			return 0 // it waits for the others
		}
		return s.Replies[0].Response.(*kmsg.JoinGroupResponse).ErrorCode
	}
	for i := range 7 {
		require.Zero(t, code(w.do(heavyJoin("g", mib))), "member %d", i)
	}
	require.Equal(t, kerr.GroupMaxSizeReached.Code, code(w.do(heavyJoin("g", mib))))
	require.Zero(t, code(w.do(heavyJoin("g", 1000))), "a usual member still fits")
	require.Less(t, w.m.Stats().Bytes, 8*mib)
	require.Equal(t, weigh(w.m), w.m.Stats().Bytes)
	groups := 1
	for code(w.do(heavyJoin(fmt.Sprintf("g-%d", groups), 4*mib))) == 0 {
		groups++
	}
	require.Less(t, w.m.Stats().Bytes, 64*mib)
	require.Greater(t, w.m.Stats().Bytes, 58*mib)
	beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis = 1, "modern", "m", 1000
	beat.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for range 200 {
		beat.SubscribedTopicNames = append(beat.SubscribedTopicNames, string(make([]byte, 32_000)))
	}
	refused := w.do(beat).Replies[0].Response.(*kmsg.ConsumerGroupHeartbeatResponse)
	require.Equal(t, kerr.GroupMaxSizeReached.Code, refused.ErrorCode)
	require.Nil(t, w.m.groups["modern"])

	// All of them go, and with them what they took.
	for range 20 {
		w.now = w.now.Add(10 * time.Minute)
		w.m.Tick(w.now)
	}
	require.Zero(t, w.m.Stats().Members)
	require.Zero(t, w.m.Stats().Bytes)
}

// TestHeavyAssignment: an assignment that makes the group too large is answered as Kafka answers what it can't write.
func TestHeavyAssignment(t *testing.T) {
	w := newWorld(Options{})
	joined := w.do(heavyJoin("g", 5<<20)).Replies[0].Response.(*kmsg.JoinGroupResponse)
	require.Zero(t, joined.ErrorCode)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, "g", joined.MemberID, joined.Generation
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: make([]byte, 4<<20)}}
	s := w.do(sync)
	require.Empty(t, s.Records)
	require.Equal(t, kerr.UnknownServerError.Code, s.Replies[0].Response.(*kmsg.SyncGroupResponse).ErrorCode)
	require.Equal(t, StatePreparing, w.m.groups["g"].state())
	// It joins again and is assigned less.
	again := heavyJoin("g", 1<<20)
	again.MemberID = joined.MemberID
	joined = w.do(again).Replies[0].Response.(*kmsg.JoinGroupResponse)
	require.Zero(t, joined.ErrorCode)
	sync.Generation = joined.Generation
	sync.GroupAssignment[0].MemberAssignment = make([]byte, 2<<20)
	s = w.do(sync)
	require.Len(t, s.Records, 1)
	require.Zero(t, s.Replies[0].Response.(*kmsg.SyncGroupResponse).ErrorCode)
	require.Equal(t, weigh(w.m), w.m.Stats().Bytes)
	require.Greater(t, w.m.Stats().Bytes, 3<<20)

	// Somebody else counts the same.
	w.log = s.Records
	w.boot()
	require.InDelta(t, weigh(w.m), w.m.Stats().Bytes, 0)
	require.Greater(t, w.m.Stats().Bytes, 3<<20)
}
