package broker

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/kafka"
)

// request has the broker answer a request as a connection of its own would.
func (n *node) request(req kmsg.Request, version int16) kmsg.Response {
	req.SetVersion(version)
	r := n.b.Handle(n.ctx, &kafka.Request{Key: req.Key(), Version: version, ClientID: "test", Body: req.AppendTo(nil), Received: time.Now()}).Wait(n.ctx)
	if r.Close != nil {
		n.t.Error(r.Close)
	}
	var body []byte
	for _, b := range r.Bufs {
		body = append(body, b...)
	}
	if r.Release != nil {
		r.Release()
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		n.t.Error(err)
	}
	return resp
}

// groupNode is a whole broker with a topic, quick groups, and all shards of groups loaded.
func groupNode(t testing.TB, partitions int32, delay time.Duration) *node {
	n := startNode(t)
	_, err := n.client.CreateTopic(n.ctx, cluster.TopicSpec{Name: "t", Partitions: partitions})
	require.NoError(t, err)
	set := []cluster.ConfigOp{{Name: cluster.GroupInitialDelay, Value: fmt.Sprint(delay.Milliseconds())}, {Name: cluster.GroupMinSession, Value: "100"}}
	require.NoError(t, n.client.AlterBrokerConfig(n.ctx, cluster.DefaultConfig, set, false))
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKeys = []string{"g"}
	require.Zero(t, n.request(find, 4).(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode)
	n.part("t", partitions-1)
	require.Eventually(t, func() bool {
		j := n.b.groups.current()
		for s := range j.Shards() {
			if j.Status(s) != nil {
				return false
			}
		}
		return n.b.groups.options.Load().InitialRebalanceDelay == delay
	}, 60*time.Second, 10*time.Millisecond)
	return n
}

// each runs fn for all numbers below n, at most 64 at one time.
func each(n int, fn func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() { fn(i); <-slots })
	}
	wg.Wait()
}

func heapNow() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func classicJoin(g, protocol string, meta []byte) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.ProtocolType, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = g, "consumer", 60_000, 60_000
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: protocol, Metadata: meta}}
	return r
}

func subscription(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics = 1, topics
	return m.AppendTo(nil)
}

// TestTenThousandGroups makes half of them by commits and half by joins, and bounds what they cost.
func TestTenThousandGroups(t *testing.T) {
	n := groupNode(t, 3, 0)
	before, began := heapNow(), time.Now()
	each(5000, func(i int) {
		r := n.request(commitReq(fmt.Sprint("commits-", i), "t", int32(i%3), int64(i)), 8).(*kmsg.OffsetCommitResponse)
		if e := r.Topics[0].Partitions[0].ErrorCode; e != 0 {
			t.Errorf("commit %d: %v", i, kerr.ErrorForCode(e))
		}
	})
	commits := time.Since(began)
	each(5000, func(i int) {
		g := fmt.Sprint("joins-", i)
		j := n.request(classicJoin(g, "range", subscription("t")), 3).(*kmsg.JoinGroupResponse)
		if j.ErrorCode != 0 {
			t.Errorf("join %d: %v", i, kerr.ErrorForCode(j.ErrorCode))
			return
		}
		s := kmsg.NewPtrSyncGroupRequest()
		s.Group, s.MemberID, s.Generation = g, j.MemberID, j.Generation
		if e := n.request(s, 3).(*kmsg.SyncGroupResponse).ErrorCode; e != 0 {
			t.Errorf("sync %d: %v", i, kerr.ErrorForCode(e))
		}
	})
	took, perGroup := time.Since(began), (heapNow()-before)/10_000
	t.Logf("commits %v, with joins %v, %d bytes of heap a group", commits, took, perGroup)
	stats := n.b.GroupStats()
	require.Equal(t, map[string]int{"Empty": 5000, "Stable": 5000}, stats.Groups)
	require.Equal(t, 5000, stats.Offsets)
	require.Less(t, perGroup, int64(8<<10))
	list := n.request(kmsg.NewPtrListGroupsRequest(), 5).(*kmsg.ListGroupsResponse)
	require.Len(t, list.Groups, 10_000)
	n.b.groups.lag.every = 0
	require.Eventually(t, func() bool { l := n.b.GroupLag(); return len(l.Pairs) == 1000 && l.Unlisted == 4000 }, 20*time.Second, time.Millisecond)
}

// TestThousandMembers brings a thousand members of either protocol into one group.
func TestThousandMembers(t *testing.T) {
	n := groupNode(t, 1000, time.Second)
	before, began := heapNow(), time.Now()
	generations := make([]int32, 1000)
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() { generations[i] = n.classicMember("classic", i, 1000) })
	}
	all.Wait()
	for _, g := range generations {
		require.Equal(t, generations[0], g)
	}
	t.Logf("classic: %v, %d KiB of heap", time.Since(began), (heapNow()-before)>>10)
	require.Equal(t, 1000, n.b.GroupStats().Members)
	require.Equal(t, 1, n.b.GroupStats().Groups["Stable"])

	before, began = heapNow(), time.Now()
	each(1000, func(i int) {
		r := n.request(beat("modern", fmt.Sprint("m-", i), nil), 1).(*kmsg.ConsumerGroupHeartbeatResponse)
		if r.ErrorCode != 0 {
			t.Errorf("member %d: %v", i, kerr.ErrorForCode(r.ErrorCode))
		}
	})
	took, used := time.Since(began), heapNow()-before
	t.Logf("consumer: %v, %d KiB of heap", took, used>>10)
	require.Less(t, used, int64(64<<20))
	require.Equal(t, 2000, n.b.GroupStats().Members)
}

// classicMember joins and syncs until it is in a stable generation of all members.
func (n *node) classicMember(g string, i, all int) int32 {
	join := classicJoin(g, "range", subscription("t"))
	for n.ctx.Err() == nil {
		j := n.request(join, 3).(*kmsg.JoinGroupResponse)
		if j.ErrorCode != 0 {
			n.t.Errorf("member %d: join: %v", i, kerr.ErrorForCode(j.ErrorCode))
			return -1
		}
		join.MemberID = j.MemberID
		s := kmsg.NewPtrSyncGroupRequest()
		s.Group, s.MemberID, s.Generation = g, j.MemberID, j.Generation
		for _, m := range j.Members {
			s.GroupAssignment = append(s.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m.MemberID, MemberAssignment: []byte{0, 0}})
		}
		switch e := n.request(s, 3).(*kmsg.SyncGroupResponse).ErrorCode; e {
		case 0:
			hb := kmsg.NewPtrHeartbeatRequest()
			hb.Group, hb.MemberID, hb.Generation = g, j.MemberID, j.Generation
			for n.request(hb, 3).(*kmsg.HeartbeatResponse).ErrorCode == 0 {
				if n.b.GroupStats().Members == all {
					return j.Generation
				}
				<-time.After(200 * time.Millisecond)
			}
		case kerr.RebalanceInProgress.Code, kerr.IllegalGeneration.Code:
		default:
			n.t.Errorf("member %d: sync: %v", i, kerr.ErrorForCode(e))
			return -1
		}
	}
	return -1
}

// TestGroupErrors: what members and strangers get for what they must not do.
func TestGroupErrors(t *testing.T) {
	n := groupNode(t, 3, 300*time.Millisecond)
	j := n.request(classicJoin("g", "range", subscription("t")), 3).(*kmsg.JoinGroupResponse)
	require.Zero(t, j.ErrorCode)
	first := kmsg.NewPtrSyncGroupRequest()
	first.Group, first.MemberID, first.Generation = "g", j.MemberID, j.Generation
	require.Zero(t, n.request(first, 3).(*kmsg.SyncGroupResponse).ErrorCode)
	commit := func(member string, generation int32, meta string) int16 {
		r := commitReq("g", "t", 0, 5)
		r.MemberID, r.Generation = member, generation
		r.Topics[0].Partitions[0].Metadata = &meta
		return n.request(r, 8).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
	}
	join := func(r *kmsg.JoinGroupRequest) int16 { return n.request(r, 3).(*kmsg.JoinGroupResponse).ErrorCode }
	other := classicJoin("g", "range", nil)
	other.ProtocolType = "connect"
	stranger := classicJoin("g", "range", subscription("t"))
	stranger.MemberID = "nobody"
	heartbeat := func(member string, generation int32) int16 {
		r := kmsg.NewPtrHeartbeatRequest()
		r.Group, r.MemberID, r.Generation = "g", member, generation
		return n.request(r, 4).(*kmsg.HeartbeatResponse).ErrorCode
	}
	modern := n.request(beat("modern", "m", nil), 1).(*kmsg.ConsumerGroupHeartbeatResponse)
	require.Zero(t, modern.ErrorCode)
	modernBeat := func(member string, epoch int32) int16 {
		return n.request(beat("modern", member, func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = epoch }), 1).(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode
	}
	rubbish := make([]byte, 3<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range rubbish {
		rubbish[i] = byte(rnd.Uint32())
	}
	for name, c := range map[string]struct {
		got  int16
		want *kerr.Error
	}{
		"another protocol":                {join(classicJoin("g", "roundrobin", subscription("t"))), kerr.InconsistentGroupProtocol},
		"another type":                    {join(other), kerr.InconsistentGroupProtocol},
		"a member id nobody has":          {join(stranger), kerr.UnknownMemberID},
		"metadata of an offset":           {commit(j.MemberID, j.Generation, string(make([]byte, 4097))), kerr.OffsetMetadataTooLarge},
		"a commit of a stranger":          {commit("nobody", j.Generation, ""), kerr.UnknownMemberID},
		"a commit of no member":           {commit("", -1, ""), kerr.UnknownMemberID},
		"a commit of another generation":  {commit(j.MemberID, j.Generation-1, ""), kerr.IllegalGeneration},
		"a commit of a later generation":  {commit(j.MemberID, j.Generation+1, ""), kerr.IllegalGeneration},
		"a heartbeat of a stranger":       {heartbeat("nobody", j.Generation), kerr.UnknownMemberID},
		"a heartbeat of an old member":    {heartbeat(j.MemberID, j.Generation-1), kerr.IllegalGeneration},
		"an unknown member, new protocol": {modernBeat("nobody", 1), kerr.UnknownMemberID},
		"an old epoch, new protocol":      {modernBeat("m", modern.MemberEpoch+5), kerr.FencedMemberEpoch},
	} {
		require.Equal(t, c.want.Code, c.got, name)
	}
	require.Zero(t, commit(j.MemberID, j.Generation, "fine"))

	// Members of megabytes fill their group, and nothing else suffers.
	before := heapNow()
	var refused atomic.Int32
	var joins sync.WaitGroup
	for i := range 64 {
		joins.Go(func() {
			r := classicJoin(fmt.Sprint("heavy-", i/4), "range", rubbish)
			r.RebalanceTimeoutMillis = 5000
			switch e := join(r); e {
			case 0:
			case kerr.GroupMaxSizeReached.Code:
				refused.Add(1)
			default:
				t.Errorf("heavy join: %v", kerr.ErrorForCode(e))
			}
		})
	}
	joins.Wait()
	held := heapNow() - before
	t.Logf("%d of 64 heavy joins refused, %d MiB held", refused.Load(), held>>20)
	require.Greater(t, refused.Load(), int32(8), "two of four fit into a group")
	require.Less(t, held, int64(2*16*(8<<20)))
	simple := n.request(commitReq("simple", "t", 0, 5), 8).(*kmsg.OffsetCommitResponse)
	require.Zero(t, simple.Topics[0].Partitions[0].ErrorCode)
	require.Zero(t, n.b.GroupStats().BadRecords)
}
