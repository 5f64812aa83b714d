package broker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
)

func TestShardOf(t *testing.T) {
	// Java's "".hashCode() is 0, "a" 97, "polygenelubricants" -2147483648, "my-group" computed by hand: all as Kafka places them.
	require.EqualValues(t, 0, shardOf("", 50))
	require.EqualValues(t, 47, shardOf("a", 50))
	require.EqualValues(t, 0, shardOf("polygenelubricants", 50))
	require.EqualValues(t, (0xd83d*31+0xde00)%50, shardOf("\U0001F600", 50), "two UTF-16 letters")
}

// grouped is a world with a topic and the offsets topic, its shards loaded.
func grouped(t *testing.T, tune ...func(*Options)) (*world, *cluster.Topic) {
	w := newWorld(t, tune...)
	topic := w.topic("t", 3)
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{"g"}
	resp := ask[*kmsg.FindCoordinatorResponse](w, req, 4)
	require.Zero(t, resp.Coordinators[0].ErrorCode)
	require.EqualValues(t, 1, resp.Coordinators[0].NodeID)
	require.Equal(t, "Broker-One.example", resp.Coordinators[0].Host)
	require.Eventually(t, func() bool { return commit(w, "g", "t", 0, 1) == 0 }, 10*time.Second, time.Millisecond)
	return w, topic
}

func commitReq(group, topic string, p int32, at int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset = p, at
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{rp}}}
	return req
}

func commit(w *world, group, topic string, p int32, at int64) int16 {
	return ask[*kmsg.OffsetCommitResponse](w, commitReq(group, topic, p, at), 8).Topics[0].Partitions[0].ErrorCode
}

func committed(w *world, version int16, group, topic string, p int32) (int64, int16) {
	req := kmsg.NewPtrOffsetFetchRequest()
	if version >= 8 {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = group, []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{p}}}
		req.Groups = []kmsg.OffsetFetchRequestGroup{g}
		resp := ask[*kmsg.OffsetFetchResponse](w, req, version).Groups[0]
		if resp.ErrorCode != 0 {
			return -2, resp.ErrorCode
		}
		return resp.Topics[0].Partitions[0].Offset, 0
	}
	req.Group, req.Topics = group, []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{p}}}
	resp := ask[*kmsg.OffsetFetchResponse](w, req, version)
	if resp.ErrorCode != 0 {
		return -2, resp.ErrorCode
	}
	return resp.Topics[0].Partitions[0].Offset, resp.Topics[0].Partitions[0].ErrorCode
}

func TestCommitAndFetch(t *testing.T) {
	w, _ := grouped(t)
	require.Zero(t, commit(w, "g", "t", 2, 77))
	for v := int16(1); v <= 9; v++ {
		at, e := committed(w, v, "g", "t", 2)
		require.Zero(t, e)
		require.EqualValues(t, 77, at)
		at, e = committed(w, v, "nobody", "t", 2)
		require.Zero(t, e)
		require.EqualValues(t, -1, at)
	}
	var list *kmsg.ListGroupsResponse
	require.Eventually(t, func() bool { // some shards may still be loading, which makes the answer an error
		list = ask[*kmsg.ListGroupsResponse](w, kmsg.NewPtrListGroupsRequest(), 5)
		return list.ErrorCode == 0
	}, 10*time.Second, time.Millisecond)
	require.Len(t, list.Groups, 1)
	require.Equal(t, "g", list.Groups[0].Group)
	d := kmsg.NewPtrDescribeGroupsRequest()
	d.Groups, d.IncludeAuthorizedOperations = []string{"g", "x", "g"}, true
	desc := ask[*kmsg.DescribeGroupsResponse](w, d, 5)
	require.Len(t, desc.Groups, 2)
	require.Equal(t, "Empty", desc.Groups[0].State)
	require.EqualValues(t, groupOperations, desc.Groups[0].AuthorizedOperations)
	require.Equal(t, "Dead", desc.Groups[1].State)
	s := w.b.GroupStats()
	require.Equal(t, 1, s.Groups["Empty"])
	require.Equal(t, 2, s.Offsets)
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Groups = []string{"g", "x"}
	gone := ask[*kmsg.DeleteGroupsResponse](w, del, 2)
	require.Zero(t, gone.Groups[0].ErrorCode)
	require.Equal(t, kerr.GroupIDNotFound.Code, gone.Groups[1].ErrorCode)
	at, _ := committed(w, 5, "g", "t", 2)
	require.EqualValues(t, -1, at)
}

// A commit is answered when it is durable, and what a fetch sees is durable.
func TestCommitWaitsForTheDisk(t *testing.T) {
	w, _ := grouped(t)
	p := w.shard("g")
	p.set(func() { p.manual = true })
	answered := make(chan struct{}, 2)
	go func() { commit(w, "g", "t", 0, 5); answered <- struct{}{} }()
	require.Eventually(t, func() bool { o := p.Offsets(); return o.End > o.Durable }, 10*time.Second, time.Millisecond)
	go func() {
		at, _ := committed(w, 5, "g", "t", 0)
		require.EqualValues(t, 5, at)
		answered <- struct{}{}
	}()
	select {
	case <-answered:
		t.Fatal("answered before it was durable")
	case <-time.After(30 * time.Millisecond):
	}
	p.settle()
	<-answered
	<-answered
}

// shard returns the partition of a group.
func (w *world) shard(group string) *fakePart {
	t := w.client.Image().TopicByName(offsetsTopic)
	return w.parts.get(frame.PartitionID{Topic: t.ID, Partition: shardOf(group, t.Partitions)})
}

func TestLostCommit(t *testing.T) {
	w, _ := grouped(t)
	p := w.shard("g")
	p.set(func() { p.durableErr = partition.ErrStorage; p.manual = true })
	require.Equal(t, kerr.NotCoordinator.Code, commit(w, "g", "t", 0, 5))
	p.set(func() { p.durableErr = nil; p.manual = false; p.durable = p.next })
	require.Eventually(t, func() bool { _, e := committed(w, 5, "g", "t", 0); return e == 0 }, 10*time.Second, time.Millisecond)
}

func TestGoneCoordinator(t *testing.T) {
	w, _ := grouped(t)
	p := w.shard("g")
	p.close()
	require.Equal(t, kerr.NotCoordinator.Code, commit(w, "g", "t", 0, 5))
	hb := kmsg.NewPtrHeartbeatRequest()
	hb.Group, hb.MemberID = "g", "m"
	require.Equal(t, kerr.NotCoordinator.Code, ask[*kmsg.HeartbeatResponse](w, hb, 4).ErrorCode)
	_, e := committed(w, 1, "g", "t", 0)
	require.Equal(t, kerr.NotCoordinator.Code, e)
	_, e = committed(w, 8, "g", "t", 0)
	require.Equal(t, kerr.NotCoordinator.Code, e)
}

// Offsets of a deleted topic go with it.
func TestDeletedTopicsOffsets(t *testing.T) {
	w, topic := grouped(t)
	require.NoError(t, w.client.DeleteTopic(w.ctx, topic.ID))
	require.Eventually(t, func() bool { at, e := committed(w, 5, "g", "t", 0); return e == 0 && at == -1 }, 10*time.Second, time.Millisecond)
}

// A join that nobody waits for any more leaves nothing behind.
func TestJoinGivenUp(t *testing.T) {
	w, _ := grouped(t)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = "j", "consumer", 10_000, 60_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
	pending := w.start(join, 3) // the first of a group waits for others
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan int16)
	go func() { done <- w.decode(join, pending.Wait(ctx)).(*kmsg.JoinGroupResponse).ErrorCode }()
	require.Eventually(t, func() bool { return w.b.GroupStats().Groups["PreparingRebalance"] == 1 }, 10*time.Second, time.Millisecond)
	cancel()
	require.Equal(t, kerr.RequestTimedOut.Code, <-done)
	join.Group = strings.Repeat("long", 9000)
	require.Equal(t, kerr.InvalidGroupID.Code, ask[*kmsg.JoinGroupResponse](w, join, 9).ErrorCode)
}
