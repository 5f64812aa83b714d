package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

func reassign(w *world, topic string, to map[int32][]int32, order ...int32) []kmsg.AlterPartitionAssignmentsResponseTopicPartition {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	in := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	in.Topic = topic
	for _, n := range order {
		in.Partitions = append(in.Partitions, kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: n, Replicas: to[n]})
	}
	req.Topics = append(req.Topics, in)
	return ask[*kmsg.AlterPartitionAssignmentsResponse](w, req, 0).Topics[0].Partitions
}

func TestReassignments(t *testing.T) {
	w := newWorld(t)
	top := w.topic("a", 4)
	w.topic("b", 1)
	w.register(cluster.Broker{ID: 2, Incarnation: "run-2", Identity: "two", Host: "two.example", Port: 1})
	id := func(n int32) frame.PartitionID { return frame.PartitionID{Topic: top.ID, Partition: n} }
	list := func(topics ...kmsg.ListPartitionReassignmentsRequestTopic) []kmsg.ListPartitionReassignmentsResponseTopic {
		req := kmsg.NewPtrListPartitionReassignmentsRequest()
		req.Topics = topics
		return ask[*kmsg.ListPartitionReassignmentsResponse](w, req, 0).Topics
	}
	require.Empty(t, list())

	// Partition 0 moves; 1 stays where it is; 2 goes to a broker that does not exist; 9 does not exist; 3 has nothing to cancel.
	r := reassign(w, "a", map[int32][]int32{0: {2, 1}, 1: {1}, 2: {7}, 9: {2}}, 0, 1, 2, 9, 3)
	codes := []int16{}
	for _, p := range r {
		codes = append(codes, p.ErrorCode)
	}
	require.Equal(t, []int16{0, 0, kerr.InvalidReplicaAssignment.Code, kerr.UnknownTopicOrPartition.Code, kerr.NoReassignmentInProgress.Code}, codes)
	require.Contains(t, *r[2].ErrorMessage, "broker 7")
	m, ok := w.client.Image().Move(id(0))
	require.True(t, ok)
	require.EqualValues(t, 2, m.Target)
	require.False(t, m.Force)
	require.True(t, m.Keep)
	m, ok = w.client.Image().Move(id(1))
	require.True(t, ok, "that it is to stay there is remembered, too")
	require.EqualValues(t, 1, m.Target)
	require.Len(t, w.client.Image().Moves(), 2)

	want := []kmsg.ListPartitionReassignmentsResponseTopicPartition{{Partition: 0, Replicas: []int32{2, 1}, AddingReplicas: []int32{2}, RemovingReplicas: []int32{1}}}
	for _, got := range [][]kmsg.ListPartitionReassignmentsResponseTopic{list(), list(kmsg.ListPartitionReassignmentsRequestTopic{Topic: "a", Partitions: []int32{0, 1, 77}})} {
		require.Len(t, got, 1)
		require.Equal(t, "a", got[0].Topic)
		require.Equal(t, want, got[0].Partitions)
	}
	require.Empty(t, list(kmsg.ListPartitionReassignmentsRequestTopic{Topic: "b", Partitions: []int32{0}}, kmsg.ListPartitionReassignmentsRequestTopic{Topic: "none"}))

	// A move that the controller has begun without a wish is shown too.
	w.assign(id(3), cluster.Assignment{Owner: 1, OwnerIncarnation: "run-1", Epoch: 6, State: cluster.Writing, Target: 2, TargetSince: 1})
	require.Len(t, list()[0].Partitions, 2)

	// One that was handed over is shown until it is served.
	w.assign(id(1), cluster.Assignment{Owner: 1, OwnerIncarnation: "run-1", Epoch: 7, State: cluster.Starting, Target: cluster.NoBroker})
	handed := kmsg.ListPartitionReassignmentsResponseTopicPartition{Partition: 1, Replicas: []int32{1}, AddingReplicas: []int32{1}}
	require.Equal(t, handed, list()[0].Partitions[1])
	w.assign(id(1), cluster.Assignment{Owner: 1, OwnerIncarnation: "run-1", Epoch: 7, State: cluster.Writing, Target: cluster.NoBroker})
	require.Len(t, list()[0].Partitions, 2)
	require.Zero(t, reassign(w, "a", nil, 1)[0].ErrorCode)
	require.Zero(t, reassign(w, "a", nil, 0)[0].ErrorCode, "null replicas cancel")
	require.Empty(t, w.client.Image().Moves())
	require.Zero(t, reassign(w, "a", map[int32][]int32{0: {2}}, 0)[0].ErrorCode)
	require.Zero(t, reassign(w, "a", map[int32][]int32{0: {1}}, 0)[0].ErrorCode, "back to where it still is")
	require.Empty(t, w.client.Image().Moves())

	twice := reassign(w, "a", map[int32][]int32{0: {2}}, 0, 0)
	require.Zero(t, twice[0].ErrorCode)
	require.Equal(t, kerr.InvalidRequest.Code, twice[1].ErrorCode)
	require.Equal(t, kerr.InvalidReplicaAssignment.Code, reassign(w, "a", map[int32][]int32{0: {}}, 0)[0].ErrorCode)
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, reassign(w, "none", nil, 0)[0].ErrorCode)

	require.NoError(t, w.client.SetBrokerWish(w.ctx, 2, cluster.BrokerWish{Draining: true}))
	drained := reassign(w, "a", map[int32][]int32{1: {2}}, 1)[0]
	require.Equal(t, kerr.InvalidReplicaAssignment.Code, drained.ErrorCode)
	require.Contains(t, *drained.ErrorMessage, "drained")
}

func TestElectLeaders(t *testing.T) {
	w := newWorld(t)
	top := w.topic("a", 5)
	for n, a := range map[int32]cluster.Assignment{
		1: {Owner: 9, OwnerIncarnation: "x", Epoch: 6, State: cluster.Writing},
		2: {Owner: 9, OwnerIncarnation: "x", Epoch: 6, State: cluster.Writing, Safe: true},
		3: {Owner: 1, OwnerIncarnation: "run-1", Epoch: 6, State: cluster.Starting},
		4: {Owner: 1, OwnerIncarnation: "run-1", Epoch: 6, State: cluster.Failed, Failures: 1, FailedAt: 1, Reason: "disk"},
	} {
		w.assign(frame.PartitionID{Topic: top.ID, Partition: n}, a)
	}
	for v := int16(0); v <= 2; v++ {
		for kind := int8(0); kind < 3; kind++ {
			req := kmsg.NewPtrElectLeadersRequest()
			req.ElectionType = kind
			req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: []int32{0, 1, 2, 3, 4, 5}}, {Topic: "none", Partitions: []int32{0}}}
			r := ask[*kmsg.ElectLeadersResponse](w, req, v)
			if v > 0 && kind > 1 {
				require.Equal(t, kerr.InvalidRequest.Code, r.ErrorCode)
				continue
			}
			dead := kerr.PreferredLeaderNotAvailable.Code
			if v > 0 && kind == 1 {
				dead = kerr.EligibleLeadersNotAvailable.Code
			}
			codes := []int16{}
			for _, p := range r.Topics[0].Partitions {
				codes = append(codes, p.ErrorCode)
			}
			require.Equal(t, []int16{kerr.ElectionNotNeeded.Code, dead, dead, dead, dead, kerr.UnknownTopicOrPartition.Code}, codes)
			for i, text := range []string{"", "force-move", "by itself", "taking the partition over", "disk"} {
				if text != "" {
					require.Contains(t, *r.Topics[0].Partitions[i].ErrorMessage, text)
				}
			}
			require.Equal(t, kerr.UnknownTopicOrPartition.Code, r.Topics[1].Partitions[0].ErrorCode)
			req.Topics = nil
			r = ask[*kmsg.ElectLeadersResponse](w, req, v)
			require.Len(t, r.Topics, 1)
			require.Len(t, r.Topics[0].Partitions, 4, "those with a leader are not listed")
		}
	}
}

func TestManualAssignmentIsWished(t *testing.T) {
	w := newWorld(t)
	w.register(cluster.Broker{ID: 2, Incarnation: "run-2", Identity: "two", Host: "two.example", Port: 1})
	r := ask[*kmsg.CreateTopicsResponse](w, createReq(assignedTopic("m", map[int32][]int32{0: {2, 1}, 1: {1, 2}})), 7)
	require.Zero(t, r.Topics[0].ErrorCode)
	top := w.client.Image().TopicByName("m")
	m, ok := w.client.Image().Move(frame.PartitionID{Topic: top.ID, Partition: 0})
	require.True(t, ok)
	require.EqualValues(t, 2, m.Target)

	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 10000
	req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "m", Count: 3, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{2}}}}}
	require.Zero(t, ask[*kmsg.CreatePartitionsResponse](w, req, 3).Topics[0].ErrorCode)
	m, ok = w.client.Image().Move(frame.PartitionID{Topic: top.ID, Partition: 2})
	require.True(t, ok)
	require.EqualValues(t, 2, m.Target)
}
