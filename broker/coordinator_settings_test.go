package broker

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/group"
)

func TestGroupOptions(t *testing.T) {
	o := groupOptions(nil)
	require.NotNil(t, o.NewID)
	o.NewID = nil
	require.Equal(t, group.Options{
		MinSessionTimeout: 6 * time.Second, MaxSessionTimeout: 30 * time.Minute, InitialRebalanceDelay: 3 * time.Second, MaxSize: math.MaxInt32,
		OffsetsRetention: 7 * 24 * time.Hour, OffsetsRetentionCheck: 10 * time.Minute, MaxOffsetMetadataBytes: 4096,
		ConsumerSessionTimeout: 45 * time.Second, ConsumerHeartbeat: 5 * time.Second, ConsumerMaxSize: math.MaxInt32,
		ConsumerAssignors: []string{"uniform", "range"}, ConsumerMigration: group.MigrationBoth,
	}, o, "Kafka's defaults")
	o = groupOptions(map[string]string{
		cluster.OffsetsRetention: "2147483647", cluster.OffsetsRetentionCheck: "9223372036854775807",
		cluster.GroupConsumerAssignors: " range ", cluster.GroupConsumerMigration: "Downgrade", cluster.GroupMaxSize: "none",
	})
	require.Equal(t, maxTime, o.OffsetsRetention, "no overflow")
	require.Equal(t, maxTime, o.OffsetsRetentionCheck)
	require.Equal(t, []string{"range"}, o.ConsumerAssignors)
	require.Equal(t, group.MigrationDowngrade, o.ConsumerMigration)
	require.Equal(t, math.MaxInt32, o.MaxSize, "what isn't valid counts as not set")
}

// set alters broker settings for the whole cluster; the error is that of the response.
func (w *world) set(kv ...string) int16 {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType = kmsg.ConfigResourceTypeBroker
	for name, value := range pairs(kv) {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, &value
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.IncrementalAlterConfigsResponse](w, req, 1).Resources[0].ErrorCode
}

func beat(g, member string, tune func(*kmsg.ConsumerGroupHeartbeatRequest)) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.RebalanceTimeoutMillis = g, member, 60_000
	req.SubscribedTopicNames, req.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if tune != nil {
		tune(req)
	}
	return req
}

// Every setting of groups holds for requests that come after it was altered, without a restart.
func TestGroupSettingsTakeEffect(t *testing.T) {
	w, _ := grouped(t)
	n := 0
	heartbeat := func(g string, tune func(*kmsg.ConsumerGroupHeartbeatRequest)) *kmsg.ConsumerGroupHeartbeatResponse {
		n++
		return ask[*kmsg.ConsumerGroupHeartbeatResponse](w, beat(g, fmt.Sprintf("member-%d", n), tune), 1)
	}
	becomes := func(want int16, get func() int16) {
		t.Helper()
		got := int16(-2)
		require.Eventually(t, func() bool { got = get(); return got == want }, 20*time.Second, time.Millisecond, "want %d", want)
	}
	commitMeta := func() int16 {
		req, meta := commitReq("g", "t", 0, 5), strings.Repeat("m", 11)
		req.Topics[0].Partitions[0].Metadata = &meta
		return ask[*kmsg.OffsetCommitResponse](w, req, 8).Topics[0].Partitions[0].ErrorCode
	}
	require.Zero(t, commitMeta())
	require.Zero(t, w.set(cluster.OffsetMetadataMaxBytes, "10"))
	becomes(kerr.OffsetMetadataTooLarge.Code, commitMeta)
	require.Zero(t, w.set(cluster.OffsetMetadataMaxBytes, "11"))
	becomes(0, commitMeta)

	join := func() int16 {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = "old", "consumer", 10_000, 60_000
		req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
		return ask[*kmsg.JoinGroupResponse](w, req, 9).ErrorCode
	}
	becomes(kerr.MemberIDRequired.Code, join)
	require.Zero(t, w.set(cluster.GroupMinSession, "10001"))
	becomes(kerr.InvalidSessionTimeout.Code, join)

	require.Zero(t, w.set(cluster.GroupConsumerHeartbeat, "1234"))
	require.Eventually(t, func() bool { return heartbeat("beats", nil).HeartbeatIntervalMillis == 1234 }, 20*time.Second, time.Millisecond)
	require.Zero(t, w.set(cluster.GroupConsumerMaxSize, "1"))
	becomes(kerr.GroupMaxSizeReached.Code, func() int16 { return heartbeat("beats", nil).ErrorCode })

	uniform := func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = ptr("uniform") }
	require.Zero(t, heartbeat("assigned-1", uniform).ErrorCode)
	require.Zero(t, w.set(cluster.GroupConsumerAssignors, "range"))
	becomes(kerr.UnsupportedAssignor.Code, func() int16 { n++; return heartbeat(fmt.Sprintf("assigned-%d", n), uniform).ErrorCode })

	require.Equal(t, kerr.InvalidConfig.Code, w.set(cluster.GroupConsumerAssignors, ""))
	require.Equal(t, kerr.InvalidConfig.Code, w.set(cluster.GroupConsumerMigration, "sideways"))
	require.Equal(t, kerr.InvalidConfig.Code, w.set(cluster.OffsetMetadataMaxBytes, "0"))
	require.Zero(t, w.set("sasl.kerberos.min.time.before.relogin", "58000"), "librdkafka's tests alter it")
}

// The policy of migration is looked at when a heartbeat of the new protocol comes to a group of the old one.
func TestMigrationPolicyTakesEffect(t *testing.T) {
	w, _ := grouped(t)
	require.Zero(t, w.set(cluster.GroupInitialDelay, "0"))
	n := 0
	upgrade := func() int16 {
		n++
		g := fmt.Sprintf("old-%d", n)
		join := kmsg.NewPtrJoinGroupRequest()
		join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = g, "consumer", 10_000, 60_000
		join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 0}}}
		joined := ask[*kmsg.JoinGroupResponse](w, join, 3)
		if joined.ErrorCode != 0 {
			return joined.ErrorCode
		}
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Group, sync.MemberID, sync.Generation = g, joined.MemberID, joined.Generation
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}
		if e := ask[*kmsg.SyncGroupResponse](w, sync, 3).ErrorCode; e != 0 {
			return e
		}
		return ask[*kmsg.ConsumerGroupHeartbeatResponse](w, beat(g, "new", nil), 1).ErrorCode
	}
	require.Eventually(t, func() bool { return upgrade() == 0 }, 20*time.Second, time.Millisecond)
	require.Zero(t, w.set(cluster.GroupConsumerMigration, "DISABLED"))
	require.Eventually(t, func() bool { return upgrade() == kerr.GroupIDNotFound.Code }, 20*time.Second, time.Millisecond)
	require.Zero(t, w.set(cluster.GroupConsumerMigration, "upgrade"))
	require.Eventually(t, func() bool { return upgrade() == 0 }, 20*time.Second, time.Millisecond)
}
