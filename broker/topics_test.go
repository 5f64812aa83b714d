package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

func metadataReq(names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = true
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, t)
	}
	return req
}

func TestMetadataVersions(t *testing.T) {
	w := newWorld(t)
	a := w.topic("a", 2)
	w.topic("b", 1)
	for v := int16(0); v <= 13; v++ {
		r := ask[*kmsg.MetadataResponse](w, metadataReq("a", "a", "zz"), v)
		require.Len(t, r.Brokers, 1)
		require.Equal(t, "Broker-One.example", r.Brokers[0].Host)
		require.Nil(t, r.Brokers[0].Rack)
		require.Len(t, r.Topics, 2, "each topic once")
		require.Equal(t, "a", *r.Topics[0].Topic)
		require.Len(t, r.Topics[0].Partitions, 2)
		require.EqualValues(t, 1, r.Topics[0].Partitions[1].Leader)
		require.Equal(t, []int32{1}, r.Topics[0].Partitions[1].Replicas)
		require.Equal(t, []int32{1}, r.Topics[0].Partitions[1].ISR)
		if v >= 7 {
			require.EqualValues(t, 5, r.Topics[0].Partitions[1].LeaderEpoch)
		}
		if v >= 8 {
			require.EqualValues(t, notAsked, r.Topics[0].AuthorizedOperations)
		}
		if v >= 10 {
			require.EqualValues(t, a.ID, r.Topics[0].TopicID)
		}
		if v >= 2 {
			require.Equal(t, "test-cluster", *r.ClusterID)
		}
		if v >= 1 {
			require.EqualValues(t, 1, r.ControllerID)
		}

		// Null means all, an empty list none; in version 0 an empty list means all.
		all := metadataReq()
		if v > 0 {
			require.Empty(t, ask[*kmsg.MetadataResponse](w, all, v).Topics)
			all.Topics = nil
		}
		require.GreaterOrEqual(t, len(ask[*kmsg.MetadataResponse](w, all, v).Topics), 2)
	}
	req := metadataReq("a", "bad name", "none")
	req.AllowAutoTopicCreation = false
	req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
	r := ask[*kmsg.MetadataResponse](w, req, 9)
	require.EqualValues(t, 3576, r.Topics[0].AuthorizedOperations)
	require.EqualValues(t, 8096, r.AuthorizedOperations)
	require.Equal(t, kerr.InvalidTopicException.Code, r.Topics[1].ErrorCode)
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, r.Topics[2].ErrorCode)
}

func TestMetadataByID(t *testing.T) {
	w := newWorld(t)
	a := w.topic("a", 1)
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{TopicID: a.ID}, {TopicID: a.ID}, {TopicID: [16]byte{1}}, {}}
	r := ask[*kmsg.MetadataResponse](w, req, 12)
	require.Len(t, r.Topics, 3)
	require.Equal(t, "a", *r.Topics[0].Topic)
	require.Equal(t, kerr.UnknownTopicID.Code, r.Topics[1].ErrorCode)
	require.Nil(t, r.Topics[1].Topic)
	require.Equal(t, kerr.InvalidRequest.Code, r.Topics[2].ErrorCode)
	for _, topic := range ask[*kmsg.MetadataResponse](w, req, 11).Topics {
		require.Equal(t, kerr.InvalidRequest.Code, topic.ErrorCode)
	}
}

func TestMetadataLeaders(t *testing.T) {
	w := newWorld(t)
	a := w.topic("a", 5)
	w.register(cluster.Broker{ID: 2, Incarnation: "run-2", Identity: "two", Host: "two.example", Port: 1, Rack: "r"})
	for i, as := range []cluster.Assignment{
		{Owner: 1, OwnerIncarnation: "run-1", Epoch: 6, State: cluster.Starting},
		{Owner: 1, OwnerIncarnation: "run-1", Epoch: 6, State: cluster.Failed},
		{Owner: 2, OwnerIncarnation: "run-0", Epoch: 6, State: cluster.Writing},
		{Owner: 2, OwnerIncarnation: "run-2", Epoch: 6, State: cluster.Draining},
		{Owner: 9, OwnerIncarnation: "x", Epoch: 6, State: cluster.Writing},
	} {
		w.assign(frame.PartitionID{Topic: a.ID, Partition: int32(i)}, as)
	}
	r := ask[*kmsg.MetadataResponse](w, metadataReq("a"), 12)
	require.Equal(t, "r", *r.Brokers[1].Rack)
	p := r.Topics[0].Partitions
	for i, leader := range []int32{-1, -1, -1, 2, -1} {
		require.Equal(t, leader, p[i].Leader, "partition %d", i)
		require.EqualValues(t, 6, p[i].LeaderEpoch)
		require.Equal(t, leader == -1, p[i].ErrorCode == kerr.LeaderNotAvailable.Code)
	}
	require.Equal(t, []int32{1}, p[1].OfflineReplicas)
	require.Equal(t, []int32{9}, p[4].OfflineReplicas)
	require.Empty(t, p[4].ISR)
}

// A broker that is taking its partitions after a restart answers when it has them, not that they have no leader.
func TestMetadataAwaitsOwnPartitions(t *testing.T) {
	w := newWorld(t)
	a := w.topic("a", 2)
	id := frame.PartitionID{Topic: a.ID, Partition: 1}
	w.assign(id, cluster.Assignment{Owner: 1, OwnerIncarnation: "run-0", Epoch: 6, State: cluster.Writing})
	w.await(func(img *cluster.Image) bool { at, _ := leader(img, id); return at == cluster.NoBroker })
	req := metadataReq("a")
	pending, answer := w.start(req, 12), make(chan *kmsg.MetadataResponse, 1)
	go func() { answer <- w.finish(req, pending).(*kmsg.MetadataResponse) }()
	select {
	case <-answer:
		t.Fatal("answered without a leader")
	case <-time.After(30 * time.Millisecond):
	}
	w.assign(id, cluster.Assignment{Owner: 1, OwnerIncarnation: "run-1", Epoch: 7, State: cluster.Writing})
	p := (<-answer).Topics[0].Partitions[1]
	require.Zero(t, p.ErrorCode)
	require.Equal(t, []int32{1, 7}, []int32{p.Leader, p.LeaderEpoch})

	starting := cluster.Assignment{Owner: 1, OwnerIncarnation: "run-1", Epoch: 8, State: cluster.Starting}
	w.assign(id, starting)
	w.await(func(img *cluster.Image) bool { at, _ := leader(img, id); return at == cluster.NoBroker })
	began := time.Now()
	r := ask[*kmsg.MetadataResponse](w, req, 12)
	require.Equal(t, kerr.LeaderNotAvailable.Code, r.Topics[0].Partitions[1].ErrorCode)
	require.Less(t, time.Since(began), ownerWait, "what comes by a failover holds up nobody who asks for the others")

	c := w.topic("c", 1)
	w.assign(frame.PartitionID{Topic: c.ID}, starting)
	w.await(func(img *cluster.Image) bool { _, ok := img.Assignment(frame.PartitionID{Topic: c.ID}); return ok })
	began = time.Now()
	r = ask[*kmsg.MetadataResponse](w, metadataReq("c"), 12)
	require.Equal(t, kerr.LeaderNotAvailable.Code, r.Topics[0].Partitions[0].ErrorCode, "not for ever")
	require.GreaterOrEqual(t, time.Since(began), ownerWait)
}

func TestAutoCreate(t *testing.T) {
	w := newWorld(t)
	w.topic("have.it", 1)
	for i, v := range []int16{0, 3, 4, 12} {
		name := fmt.Sprint("new", i)
		r := ask[*kmsg.MetadataResponse](w, metadataReq(name, "have_it", "__consumer_offsets"), v)
		require.Equal(t, kerr.LeaderNotAvailable.Code, r.Topics[0].ErrorCode, "the first answer isn't the topic")
		require.Equal(t, kerr.InvalidTopicException.Code, r.Topics[1].ErrorCode, "collides")
		require.Equal(t, kerr.UnknownTopicOrPartition.Code, r.Topics[2].ErrorCode)
		w.await(func(img *cluster.Image) bool {
			top := img.TopicByName(name)
			if top == nil {
				return false
			}
			owner, _ := leader(img, frame.PartitionID{Topic: top.ID})
			return owner == 1
		})
		r = ask[*kmsg.MetadataResponse](w, metadataReq(name), v)
		require.Zero(t, r.Topics[0].ErrorCode)
		require.Len(t, r.Topics[0].Partitions, 1)
	}
	req := metadataReq("unwanted")
	req.AllowAutoTopicCreation = false
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, ask[*kmsg.MetadataResponse](w, req, 9).Topics[0].ErrorCode)
	many := metadataReq()
	for i := range 3 * maxCreations {
		many.Topics = append(many.Topics, metadataReq(fmt.Sprint("many", i)).Topics[0])
	}
	require.Len(t, ask[*kmsg.MetadataResponse](w, many, 9).Topics, 3*maxCreations)
	w.b.Close()
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, ask[*kmsg.MetadataResponse](w, metadataReq("late"), 9).Topics[0].ErrorCode)
}

func createReq(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.Topics = 10000, topics
	return req
}

func newTopic(name string, partitions int32, replicas int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for k, v := range pairs(configs) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, kmsg.StringPtr(v)
		t.Configs = append(t.Configs, c)
	}
	return t
}

func assignedTopic(name string, parts map[int32][]int32) kmsg.CreateTopicsRequestTopic {
	t := newTopic(name, -1, -1)
	for p, r := range parts {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = p, r
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	return t
}

func TestCreateTopics(t *testing.T) {
	w := newWorld(t)
	for v := int16(2); v <= 7; v++ {
		name := fmt.Sprint("t", v)
		dry := createReq(newTopic(name, 3, 1))
		dry.ValidateOnly = true
		require.Zero(t, ask[*kmsg.CreateTopicsResponse](w, dry, v).Topics[0].ErrorCode)
		require.Nil(t, w.client.Image().TopicByName(name))
		r := ask[*kmsg.CreateTopicsResponse](w, createReq(newTopic(name, 3, 1, "retention.ms", "1000")), v).Topics[0]
		require.Zero(t, r.ErrorCode)
		have := w.client.Image().TopicByName(name)
		require.NotNil(t, have, "visible when answered")
		owner, _ := leader(w.client.Image(), frame.PartitionID{Topic: have.ID, Partition: 2})
		require.EqualValues(t, 1, owner, "usable when answered")
		if v >= 5 {
			require.EqualValues(t, 3, r.NumPartitions)
			require.EqualValues(t, 1, r.ReplicationFactor)
			found := false
			for _, c := range r.Configs {
				if c.Name == "retention.ms" {
					found = true
					require.Equal(t, "1000", *c.Value)
					require.EqualValues(t, kmsg.ConfigSourceDynamicTopicConfig, c.Source)
				}
			}
			require.True(t, found)
		}
		if v >= 7 {
			require.EqualValues(t, have.ID, r.TopicID)
		}
	}
	bad := newTopic("null", 1, 1, "retention.ms", "1")
	bad.Configs[0].Value = nil
	for _, c := range []struct {
		topic kmsg.CreateTopicsRequestTopic
		want  *kerr.Error
	}{
		{newTopic("t7", 1, 1), kerr.TopicAlreadyExists},
		{newTopic("", 1, 1), kerr.InvalidTopicException},
		{newTopic("a/b", 1, 1), kerr.InvalidTopicException},
		{newTopic("..", 1, 1), kerr.InvalidTopicException},
		{newTopic(strings.Repeat("x", 250), 1, 1), kerr.InvalidTopicException},
		{newTopic("__consumer_offsets", 1, 1), kerr.InvalidTopicException},
		{newTopic("p", 0, 1), kerr.InvalidPartitions},
		{newTopic("p", -2, 1), kerr.InvalidPartitions},
		{newTopic("p", 10_001, 1), kerr.InvalidPartitions},
		{newTopic("p", 1, 0), kerr.InvalidReplicationFactor},
		{newTopic("p", 1, -2), kerr.InvalidReplicationFactor},
		{newTopic("p", 1, 2), kerr.InvalidReplicationFactor},
		{newTopic("p", 1, 1, "no.such.thing", "1"), kerr.InvalidConfig},
		{newTopic("p", 1, 1, "retention.ms", "abc"), kerr.InvalidConfig},
		{newTopic("p", 1, 1, "tierbroker.durability", "replica"), kerr.InvalidConfig},
		{bad, kerr.InvalidConfig},
		{assignedTopic("p", map[int32][]int32{0: {1}, 2: {1}}), kerr.InvalidReplicaAssignment},
		{assignedTopic("p", map[int32][]int32{0: {}}), kerr.InvalidReplicaAssignment},
		{assignedTopic("p", map[int32][]int32{0: {7}}), kerr.InvalidReplicaAssignment},
		{assignedTopic("p", map[int32][]int32{0: {1, 1}}), kerr.InvalidReplicaAssignment},
	} {
		r := ask[*kmsg.CreateTopicsResponse](w, createReq(c.topic), 7).Topics[0]
		require.Equal(t, c.want.Code, r.ErrorCode, "%s: %v", c.topic.Topic, kerr.ErrorForCode(r.ErrorCode))
		require.NotEmpty(t, r.ErrorMessage)
		require.EqualValues(t, -1, r.NumPartitions)
		require.NotNil(t, r.Configs)
	}
	both := assignedTopic("p", map[int32][]int32{0: {1}})
	both.NumPartitions = 1
	require.Equal(t, kerr.InvalidRequest.Code, ask[*kmsg.CreateTopicsResponse](w, createReq(both), 7).Topics[0].ErrorCode)
	r := ask[*kmsg.CreateTopicsResponse](w, createReq(newTopic("d", 1, 1), newTopic("ok", -1, -1), newTopic("d", 1, 1), assignedTopic("m", map[int32][]int32{0: {1}, 1: {1}})), 7)
	require.Len(t, r.Topics, 3)
	require.Equal(t, kerr.InvalidRequest.Code, r.Topics[0].ErrorCode)
	require.Zero(t, r.Topics[1].ErrorCode)
	require.EqualValues(t, 1, r.Topics[1].NumPartitions)
	require.EqualValues(t, 2, r.Topics[2].NumPartitions)
}

func TestDeleteTopics(t *testing.T) {
	w := newWorld(t)
	for v := int16(1); v <= 6; v++ {
		name := fmt.Sprint("t", v)
		top := w.topic(name, 2)
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis = 10000
		if v < 6 {
			req.TopicNames = []string{name, "none", "none"}
		} else {
			req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: top.ID}, {Topic: kmsg.StringPtr("none")}, {TopicID: [16]byte{1}},
				{Topic: kmsg.StringPtr("x"), TopicID: [16]byte{1}}, {}}
		}
		r := ask[*kmsg.DeleteTopicsResponse](w, req, v)
		require.Zero(t, r.Topics[0].ErrorCode)
		require.Equal(t, name, *r.Topics[0].Topic)
		require.Equal(t, kerr.UnknownTopicOrPartition.Code, r.Topics[1].ErrorCode)
		if v == 6 {
			require.EqualValues(t, top.ID, r.Topics[0].TopicID)
			require.Equal(t, kerr.UnknownTopicID.Code, r.Topics[2].ErrorCode)
			require.Equal(t, kerr.InvalidRequest.Code, r.Topics[3].ErrorCode)
			require.Equal(t, kerr.InvalidRequest.Code, r.Topics[4].ErrorCode)
		}
		w.topic(name, 1) // the name is free when the answer comes
	}
	two := w.topic("two", 1)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 10000
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: two.ID}, {Topic: kmsg.StringPtr("two")}}
	r := ask[*kmsg.DeleteTopicsResponse](w, req, 6)
	require.Len(t, r.Topics, 1)
	require.Equal(t, kerr.InvalidRequest.Code, r.Topics[0].ErrorCode)
	w.topicSpec(cluster.TopicSpec{Name: "__in", Partitions: 1, Internal: true})
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: kmsg.StringPtr("__in")}}
	require.Equal(t, kerr.InvalidRequest.Code, ask[*kmsg.DeleteTopicsResponse](w, req, 6).Topics[0].ErrorCode)
}

func TestCreatePartitions(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 2)
	grow := func(v int16, dry bool, name string, n int32, assign ...[]int32) *kmsg.CreatePartitionsResponseTopic {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.TimeoutMillis, req.ValidateOnly = 10000, dry
		top := kmsg.NewCreatePartitionsRequestTopic()
		top.Topic, top.Count = name, n
		for _, a := range assign {
			top.Assignment = append(top.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: a})
		}
		req.Topics = append(req.Topics, top)
		return &ask[*kmsg.CreatePartitionsResponse](w, req, v).Topics[0]
	}
	for v := int16(0); v <= 3; v++ {
		n := 3 + int32(v)
		require.Zero(t, grow(v, true, "t", n).ErrorCode)
		require.Equal(t, n-1, w.client.Image().TopicByName("t").Partitions)
		require.Zero(t, grow(v, false, "t", n).ErrorCode)
		top := w.client.Image().TopicByName("t")
		require.Equal(t, n, top.Partitions)
		owner, _ := leader(w.client.Image(), frame.PartitionID{Topic: top.ID, Partition: n - 1})
		require.EqualValues(t, 1, owner)
	}
	require.Equal(t, kerr.InvalidPartitions.Code, grow(3, false, "t", 6).ErrorCode)
	require.Equal(t, kerr.InvalidPartitions.Code, grow(3, false, "t", 1).ErrorCode)
	require.Equal(t, kerr.InvalidPartitions.Code, grow(3, false, "t", 1<<30).ErrorCode)
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, grow(3, false, "x", 9).ErrorCode)
	require.Equal(t, kerr.InvalidReplicaAssignment.Code, grow(3, false, "t", 8, []int32{1}).ErrorCode)
	require.Equal(t, kerr.InvalidReplicaAssignment.Code, grow(3, false, "t", 7, []int32{4}).ErrorCode)
	require.Zero(t, grow(3, false, "t", 7, []int32{1}).ErrorCode)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 1000
	req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 9}, {Topic: "t", Count: 10}}
	r := ask[*kmsg.CreatePartitionsResponse](w, req, 3)
	require.Len(t, r.Topics, 1)
	require.Equal(t, kerr.InvalidRequest.Code, r.Topics[0].ErrorCode)
}

func TestDescribeTopicPartitions(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		w.topic(name, 3)
	}
	page := func(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, names ...string) *kmsg.DescribeTopicPartitionsResponse {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit, req.Cursor = limit, cursor
		for _, n := range names {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: n})
		}
		return ask[*kmsg.DescribeTopicPartitionsResponse](w, req, 0)
	}
	r := page(100, nil)
	require.Len(t, r.Topics, 3)
	require.Nil(t, r.NextCursor)
	require.NotNil(t, r.Topics[0].Partitions[0].EligibleLeaderReplicas)
	require.NotNil(t, r.Topics[0].Partitions[0].LastKnownELR)
	// All of it in pages, each partition once.
	var got []string
	var cursor *kmsg.DescribeTopicPartitionsRequestCursor
	for {
		r = page(2, cursor)
		n := 0
		for _, top := range r.Topics {
			for _, p := range top.Partitions {
				got = append(got, fmt.Sprint(*top.Topic, p.Partition))
				n++
			}
		}
		require.LessOrEqual(t, n, 2)
		if r.NextCursor == nil {
			break
		}
		cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: r.NextCursor.Topic, Partition: r.NextCursor.Partition}
	}
	require.Equal(t, []string{"a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"}, got)
	r = page(100, nil, "zz", "b", "b", "x y")
	require.Len(t, r.Topics, 3)
	require.Equal(t, kerr.InvalidTopicException.Code, r.Topics[1].ErrorCode)
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, r.Topics[2].ErrorCode)
	require.Equal(t, "b", *page(100, &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "aa", Partition: 2}, "a", "b").Topics[0].Topic)
}
