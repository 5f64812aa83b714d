package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// The codecs are checked against kmsg: what it encodes we decode to the same values, what we
// encode has the same bytes as its encoding of the same values.

func drawTags(t *rapid.T) kmsg.Tags {
	var tags kmsg.Tags
	for range rapid.IntRange(0, 2).Draw(t, "tags") {
		// Far from the tags that the protocol knows.
		tags.Set(rapid.Uint32Range(1000, math.MaxUint32).Draw(t, "tag"), rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "tag value"))
	}
	return tags
}

func drawID(t *rapid.T) (id [16]byte) {
	copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	return id
}

func drawNullable(t *rapid.T) *string {
	return rapid.Ptr(rapid.StringN(0, 40, 200), true).Draw(t, "nullable")
}

func drawName(t *rapid.T) string { return rapid.StringN(0, 30, 300).Draw(t, "name") }

func drawKmsgProduce(t *rapid.T, version int16) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version = version
	r.TransactionID = drawNullable(t)
	r.Acks = rapid.Int16().Draw(t, "acks")
	r.TimeoutMillis = rapid.Int32().Draw(t, "timeout")
	for range rapid.IntRange(0, 4).Draw(t, "topics") {
		rt := kmsg.NewProduceRequestTopic()
		if version >= 13 {
			rt.TopicID = drawID(t)
		} else {
			rt.Topic = drawName(t)
		}
		for range rapid.IntRange(0, 4).Draw(t, "partitions") {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition = rapid.Int32().Draw(t, "partition")
			if rapid.Bool().Draw(t, "has records") {
				p.Records = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "records")
			}
			if version >= 9 {
				p.UnknownTags = drawTags(t)
			}
			rt.Partitions = append(rt.Partitions, p)
		}
		if version >= 9 {
			rt.UnknownTags = drawTags(t)
		}
		r.Topics = append(r.Topics, rt)
	}
	if version >= 9 {
		r.UnknownTags = drawTags(t)
	}
	return r
}

func requireSameProduce(t require.TestingT, want *kmsg.ProduceRequest, got *ProduceRequest) {
	require.Equal(t, want.TransactionID, got.TransactionalID)
	require.Equal(t, want.Acks, got.Acks)
	require.Equal(t, want.TimeoutMillis, got.TimeoutMs)
	require.Len(t, got.Topics, len(want.Topics))
	for i, wt := range want.Topics {
		gt := got.Topics[i]
		require.Equal(t, wt.Topic, gt.Name)
		require.Equal(t, wt.TopicID, gt.ID)
		require.Len(t, gt.Partitions, len(wt.Partitions))
		for j, wp := range wt.Partitions {
			require.Equal(t, wp.Partition, gt.Partitions[j].Index)
			require.Equal(t, wp.Records == nil, gt.Partitions[j].Records == nil)
			require.True(t, bytes.Equal(wp.Records, gt.Partitions[j].Records))
		}
	}
}

func forVersions(t *testing.T, from, to int16, check func(*rapid.T, int16)) {
	for v := from; v <= to; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { check(t, v) })
		})
	}
}

func TestDecodeProduceEqualsKmsg(t *testing.T) {
	var got ProduceRequest // reused over all: nothing may be left of an earlier one
	forVersions(t, ProduceMinVersion, ProduceMaxVersion, func(t *rapid.T, v int16) {
		want := drawKmsgProduce(t, v)
		body := want.AppendTo(nil)
		require.NoError(t, DecodeProduce(v, body, &got))
		requireSameProduce(t, want, &got)
		for i := range body { // every cut is an error
			require.ErrorIs(t, DecodeProduce(v, body[:i:i], &got), ErrMalformed)
		}
		if rapid.Bool().Draw(t, "reset") {
			got.Reset()
		}
	})
}

func drawLeader(t *rapid.T) *Leader {
	if rapid.Bool().Draw(t, "no leader") {
		return nil
	}
	return &Leader{ID: rapid.Int32Range(0, 9).Draw(t, "leader"), Epoch: rapid.Int32Range(0, 9).Draw(t, "epoch")}
}

func drawEndpoints(t *rapid.T) (nodes []NodeEndpoint) {
	for range rapid.IntRange(0, 3).Draw(t, "nodes") {
		nodes = append(nodes, NodeEndpoint{
			ID: rapid.Int32().Draw(t, "node"), Host: drawName(t), Port: rapid.Int32().Draw(t, "port"), Rack: drawNullable(t),
		})
	}
	return nodes
}

func drawProduceResponse(t *rapid.T) *ProduceResponse {
	r := &ProduceResponse{ThrottleMs: rapid.Int32().Draw(t, "throttle"), NodeEndpoints: drawEndpoints(t)}
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		rt := ProduceTopicResult{Name: drawName(t), ID: drawID(t)}
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			p := ProducePartitionResult{
				Index: rapid.Int32().Draw(t, "index"), Error: rapid.Int16().Draw(t, "error"),
				BaseOffset: rapid.Int64().Draw(t, "base"), LogAppendTime: rapid.Int64().Draw(t, "time"),
				LogStart: rapid.Int64().Draw(t, "start"), ErrorMessage: drawNullable(t), CurrentLeader: drawLeader(t),
			}
			for range rapid.IntRange(0, 2).Draw(t, "record errors") {
				p.RecordErrors = append(p.RecordErrors, RecordError{Index: rapid.Int32().Draw(t, "record"), Message: drawNullable(t)})
			}
			rt.Partitions = append(rt.Partitions, p)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

// kmsgProduce converts to kmsg, leaving out what the version does not have by Kafka's schema
// (kmsg would write these tagged fields in every flexible version).
func kmsgProduce(v int16, r *ProduceResponse) *kmsg.ProduceResponse {
	k := kmsg.NewPtrProduceResponse()
	k.Version, k.ThrottleMillis = v, r.ThrottleMs
	if v >= 10 {
		for _, n := range r.NodeEndpoints {
			k.Brokers = append(k.Brokers, kmsg.ProduceResponseBroker{NodeID: n.ID, Host: n.Host, Port: n.Port, Rack: n.Rack})
		}
	}
	for _, rt := range r.Topics {
		kt := kmsg.ProduceResponseTopic{Topic: rt.Name, TopicID: rt.ID}
		for _, p := range rt.Partitions {
			kp := kmsg.NewProduceResponseTopicPartition()
			kp.Partition, kp.ErrorCode, kp.BaseOffset = p.Index, p.Error, p.BaseOffset
			kp.LogAppendTime, kp.LogStartOffset, kp.ErrorMessage = p.LogAppendTime, p.LogStart, p.ErrorMessage
			for _, e := range p.RecordErrors {
				kp.ErrorRecords = append(kp.ErrorRecords, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: e.Index, ErrorMessage: e.Message})
			}
			if v >= 10 && p.CurrentLeader != nil {
				kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = p.CurrentLeader.ID, p.CurrentLeader.Epoch
			}
			kt.Partitions = append(kt.Partitions, kp)
		}
		k.Topics = append(k.Topics, kt)
	}
	return k
}

func TestAppendProduceResponseEqualsKmsg(t *testing.T) {
	forVersions(t, ProduceMinVersion, ProduceMaxVersion, func(t *rapid.T, v int16) {
		r := drawProduceResponse(t)
		want := kmsgProduce(v, r)
		got := AppendProduceResponse([]byte("before"), v, r)
		require.Equal(t, want.AppendTo([]byte("before")), got)
		back := kmsg.NewPtrProduceResponse()
		back.Version = v
		require.NoError(t, back.ReadFrom(got[len("before"):]))
		require.Equal(t, want.AppendTo(nil), back.AppendTo(nil))
	})
}

func drawKmsgFetch(t *rapid.T, v int16) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version = v
	if v <= 14 {
		r.ReplicaID = rapid.Int32().Draw(t, "replica")
	} else if rapid.Bool().Draw(t, "replica state") {
		r.ReplicaState.ID, r.ReplicaState.Epoch = rapid.Int32().Draw(t, "replica"), rapid.Int64().Draw(t, "replica epoch")
	}
	r.MaxWaitMillis, r.MinBytes = rapid.Int32().Draw(t, "wait"), rapid.Int32().Draw(t, "min")
	r.MaxBytes, r.IsolationLevel = rapid.Int32().Draw(t, "max"), rapid.Int8().Draw(t, "isolation")
	if v >= 7 {
		r.SessionID, r.SessionEpoch = rapid.Int32().Draw(t, "session"), rapid.Int32().Draw(t, "session epoch")
		for range rapid.IntRange(0, 3).Draw(t, "forgotten") {
			f := kmsg.FetchRequestForgottenTopic{Partitions: rapid.SliceOfN(rapid.Int32(), 0, 5).Draw(t, "forgotten partitions")}
			f.Topic, f.TopicID = drawTopic(t, v)
			r.ForgottenTopics = append(r.ForgottenTopics, f)
		}
	}
	if v >= 11 {
		r.Rack = drawName(t)
	}
	if v >= 12 {
		r.ClusterID, r.UnknownTags = drawNullable(t), drawTags(t)
	}
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic, rt.TopicID = drawTopic(t, v)
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			rt.Partitions = append(rt.Partitions, drawKmsgFetchPartition(t, v))
		}
		if v >= 12 {
			rt.UnknownTags = drawTags(t)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func drawTopic(t *rapid.T, v int16) (name string, id [16]byte) {
	if v >= 13 {
		return "", drawID(t)
	}
	return drawName(t), id
}

func drawKmsgFetchPartition(t *rapid.T, v int16) kmsg.FetchRequestTopicPartition {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset = rapid.Int32().Draw(t, "partition"), rapid.Int64().Draw(t, "offset")
	p.PartitionMaxBytes = rapid.Int32().Draw(t, "partition max")
	if v >= 5 {
		p.LogStartOffset = rapid.Int64().Draw(t, "log start")
	}
	if v >= 9 {
		p.CurrentLeaderEpoch = rapid.Int32().Draw(t, "leader epoch")
	}
	if v >= 12 {
		p.LastFetchedEpoch, p.UnknownTags = rapid.Int32().Draw(t, "fetched epoch"), drawTags(t)
	}
	if v >= 17 && rapid.Bool().Draw(t, "directory") {
		p.ReplicaDirectoryID = drawID(t)
	}
	if v >= 18 && rapid.Bool().Draw(t, "watermark") {
		p.HighWatermark = rapid.Int64().Draw(t, "high watermark")
	}
	return p
}

func requireSameFetch(t require.TestingT, want *kmsg.FetchRequest, got *FetchRequest) {
	wantReplica, wantEpoch := want.ReplicaID, int64(-1)
	if want.Version >= 15 {
		wantReplica, wantEpoch = want.ReplicaState.ID, want.ReplicaState.Epoch
	}
	require.Equal(t, wantReplica, got.ReplicaID)
	require.Equal(t, wantEpoch, got.ReplicaEpoch)
	require.Equal(t, want.ClusterID, got.ClusterID)
	require.Equal(t, [3]int32{want.MaxWaitMillis, want.MinBytes, want.MaxBytes}, [3]int32{got.MaxWaitMs, got.MinBytes, got.MaxBytes})
	require.Equal(t, want.IsolationLevel, got.IsolationLevel)
	require.Equal(t, [2]int32{want.SessionID, want.SessionEpoch}, [2]int32{got.SessionID, got.SessionEpoch})
	require.Equal(t, want.Rack, got.Rack)
	require.Len(t, got.Forgotten, len(want.ForgottenTopics))
	for i, wt := range want.ForgottenTopics {
		gt := got.Forgotten[i]
		require.Equal(t, wt.Topic, gt.Name)
		require.Equal(t, wt.TopicID, gt.ID)
		require.Equal(t, append([]int32{}, wt.Partitions...), append([]int32{}, gt.Partitions...))
	}
	require.Len(t, got.Topics, len(want.Topics))
	for i, wt := range want.Topics {
		gt := got.Topics[i]
		require.Equal(t, wt.Topic, gt.Name)
		require.Equal(t, wt.TopicID, gt.ID)
		require.Len(t, gt.Partitions, len(wt.Partitions))
		for j, p := range wt.Partitions {
			require.Equal(t, FetchRequestPartition{
				Index: p.Partition, CurrentLeaderEpoch: p.CurrentLeaderEpoch, Offset: p.FetchOffset,
				LastFetchedEpoch: p.LastFetchedEpoch, LogStartOffset: p.LogStartOffset, MaxBytes: p.PartitionMaxBytes,
				ReplicaDirectoryID: p.ReplicaDirectoryID, HighWatermark: p.HighWatermark,
			}, gt.Partitions[j])
		}
	}
}

func TestDecodeFetchEqualsKmsg(t *testing.T) {
	var got FetchRequest
	forVersions(t, FetchMinVersion, FetchMaxVersion, func(t *rapid.T, v int16) {
		want := drawKmsgFetch(t, v)
		body := want.AppendTo(nil)
		require.NoError(t, DecodeFetch(v, body, &got))
		clear(body) // nothing may refer to it
		requireSameFetch(t, want, &got)
		body = want.AppendTo(body[:0])
		for i := range body {
			require.ErrorIs(t, DecodeFetch(v, body[:i:i], &got), ErrMalformed)
		}
		if rapid.Bool().Draw(t, "reset") {
			got.Reset()
		}
	})
}

func drawFetchResponse(t *rapid.T) *FetchResponse {
	r := &FetchResponse{
		ThrottleMs: rapid.Int32().Draw(t, "throttle"), Error: rapid.Int16().Draw(t, "error"),
		SessionID: rapid.Int32().Draw(t, "session"), NodeEndpoints: drawEndpoints(t),
	}
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		rt := FetchTopic{Name: drawName(t), ID: drawID(t)}
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			rt.Partitions = append(rt.Partitions, drawFetchPartition(t))
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func drawFetchPartition(t *rapid.T) FetchPartition {
	p := FetchPartition{
		Index: rapid.Int32().Draw(t, "index"), Error: rapid.Int16().Draw(t, "error"),
		HighWatermark: rapid.Int64().Draw(t, "hw"), LastStableOffset: rapid.Int64().Draw(t, "lso"),
		LogStartOffset: rapid.Int64().Draw(t, "start"), PreferredReadReplica: rapid.Int32().Draw(t, "replica"),
		CurrentLeader: drawLeader(t),
		Records:       rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 100), 0, 4).Draw(t, "records"),
	}
	if rapid.Bool().Draw(t, "aborted") {
		p.AbortedTransactions = []AbortedTransaction{}
		for range rapid.IntRange(0, 3).Draw(t, "aborted transactions") {
			p.AbortedTransactions = append(p.AbortedTransactions, AbortedTransaction{rapid.Int64().Draw(t, "pid"), rapid.Int64().Draw(t, "first")})
		}
	}
	if rapid.Bool().Draw(t, "diverging") {
		p.DivergingEpoch = &EpochEnd{Epoch: rapid.Int32Range(0, 9).Draw(t, "diverging epoch"), EndOffset: rapid.Int64().Draw(t, "diverging end")}
	}
	if rapid.Bool().Draw(t, "snapshot") {
		p.SnapshotID = &SnapshotID{EndOffset: rapid.Int64().Draw(t, "snapshot end"), Epoch: rapid.Int32Range(0, 9).Draw(t, "snapshot epoch")}
	}
	return p
}

func kmsgFetch(v int16, r *FetchResponse) *kmsg.FetchResponse {
	k := kmsg.NewPtrFetchResponse()
	k.Version, k.ThrottleMillis, k.ErrorCode, k.SessionID = v, r.ThrottleMs, r.Error, r.SessionID
	if v >= 16 {
		for _, n := range r.NodeEndpoints {
			k.Brokers = append(k.Brokers, kmsg.FetchResponseBroker{NodeID: n.ID, Host: n.Host, Port: n.Port, Rack: n.Rack})
		}
	}
	for _, rt := range r.Topics {
		kt := kmsg.FetchResponseTopic{Topic: rt.Name, TopicID: rt.ID}
		for i := range rt.Partitions {
			kt.Partitions = append(kt.Partitions, kmsgFetchPartition(&rt.Partitions[i]))
		}
		k.Topics = append(k.Topics, kt)
	}
	return k
}

func kmsgFetchPartition(p *FetchPartition) kmsg.FetchResponseTopicPartition {
	k := kmsg.NewFetchResponseTopicPartition()
	k.Partition, k.ErrorCode, k.HighWatermark = p.Index, p.Error, p.HighWatermark
	k.LastStableOffset, k.LogStartOffset, k.PreferredReadReplica = p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica
	k.RecordBatches = append([]byte{}, bytes.Join(p.Records, nil)...)
	if p.AbortedTransactions != nil {
		k.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	}
	for _, a := range p.AbortedTransactions {
		k.AbortedTransactions = append(k.AbortedTransactions, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
	}
	if p.CurrentLeader != nil {
		k.CurrentLeader.LeaderID, k.CurrentLeader.LeaderEpoch = p.CurrentLeader.ID, p.CurrentLeader.Epoch
	}
	if p.DivergingEpoch != nil {
		k.DivergingEpoch.Epoch, k.DivergingEpoch.EndOffset = p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset
	}
	if p.SnapshotID != nil {
		k.SnapshotID.Epoch, k.SnapshotID.EndOffset = p.SnapshotID.Epoch, p.SnapshotID.EndOffset
	}
	return k
}

func TestEncodeFetchResponseEqualsKmsg(t *testing.T) {
	forVersions(t, FetchMinVersion, FetchMaxVersion, func(t *rapid.T, v int16) {
		r := drawFetchResponse(t)
		bufs := EncodeFetchResponse(v, r)
		want := kmsgFetch(v, r).AppendTo(nil)
		require.Equal(t, want, bytes.Join(bufs, nil))
		requireUncopied(t, r, bufs)
	})
}

// requireUncopied checks that every piece of records is in bufs as the very slice that was given.
func requireUncopied(t require.TestingT, r *FetchResponse, bufs net.Buffers) {
	at := make(map[*byte]int)
	for _, b := range bufs {
		at[&b[0]] = len(b)
	}
	for _, rt := range r.Topics {
		for _, p := range rt.Partitions {
			for _, b := range p.Records {
				if len(b) > 0 {
					require.Equal(t, len(b), at[&b[0]])
				}
			}
		}
	}
}

func TestProduceRecordsAreSlicesOfTheBody(t *testing.T) {
	k := kmsg.NewPtrProduceRequest()
	k.Version = 9
	k.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: []byte("records")}}}}
	body := k.AppendTo(nil)
	var r ProduceRequest
	require.NoError(t, DecodeProduce(9, body, &r))
	rec := r.Topics[0].Partitions[0].Records
	i := bytes.Index(body, []byte("records"))
	require.Same(t, &body[i], &rec[0])
	require.Equal(t, len(rec), cap(rec), "an append must not run into what follows")
}

func TestDecodeDoesNotAllocateWhenReused(t *testing.T) {
	produce, fetch := sampleProduce(9, 3, 4, 100), sampleFetch(12, 3, 4)
	var p ProduceRequest
	var f FetchRequest
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if DecodeProduce(9, produce, &p) != nil {
			t.Fatal("decode")
		}
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if DecodeFetch(12, fetch, &f) != nil {
			t.Fatal("decode")
		}
	}))
}

func TestDecodeRefusesOtherVersions(t *testing.T) {
	require.ErrorIs(t, DecodeProduce(2, nil, new(ProduceRequest)), ErrMalformed)
	require.ErrorIs(t, DecodeProduce(14, nil, new(ProduceRequest)), ErrMalformed)
	require.ErrorIs(t, DecodeFetch(3, nil, new(FetchRequest)), ErrMalformed)
	require.ErrorIs(t, DecodeFetch(19, nil, new(FetchRequest)), ErrMalformed)
}

// Announced counts must not cost memory, nor must a message of nothing but tiny elements.
func TestDecodeBoundsMemory(t *testing.T) {
	head := []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1} // null transactional id, acks, timeout
	huge := append(append([]byte{}, head...), 0x7f, 0xff, 0xff, 0xff)
	require.Less(t, allocated(func() { require.Error(t, DecodeProduce(3, huge, new(ProduceRequest))) }), uint64(10_000))

	many := append(append([]byte{}, head...), 0, 0x20, 0, 0) // 2M topics, six zero bytes each
	many = append(many, make([]byte, 6<<21)...)
	err := DecodeProduce(3, many, new(ProduceRequest))
	require.ErrorIs(t, err, ErrMalformed)
	require.Contains(t, err.Error(), "too many")

	negative := append(append([]byte{}, head...), 0xff, 0xff, 0xff, 0xfe)
	require.ErrorIs(t, DecodeProduce(3, negative, new(ProduceRequest)), ErrMalformed)
}

func allocated(f func()) uint64 {
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
	})
	return uint64(r.AllocedBytesPerOp())
}

func sampleProduce(v int16, topics, partitions, size int) []byte {
	k := kmsg.NewPtrProduceRequest()
	k.Version, k.Acks = v, -1
	for i := range topics {
		kt := kmsg.ProduceRequestTopic{Topic: fmt.Sprintf("topic-%d", i), TopicID: [16]byte{15: byte(i)}}
		for j := range partitions {
			kt.Partitions = append(kt.Partitions, kmsg.ProduceRequestTopicPartition{Partition: int32(j), Records: make([]byte, size)})
		}
		k.Topics = append(k.Topics, kt)
	}
	return k.AppendTo(nil)
}

func sampleFetch(v int16, topics, partitions int) []byte {
	k := kmsg.NewPtrFetchRequest()
	k.Version, k.Rack = v, "rack-1"
	for i := range topics {
		kt := kmsg.FetchRequestTopic{Topic: fmt.Sprintf("topic-%d", i), TopicID: [16]byte{15: byte(i)}}
		for j := range partitions {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(j), 1000, 1<<20
			kt.Partitions = append(kt.Partitions, p)
		}
		k.Topics = append(k.Topics, kt)
	}
	return k.AppendTo(nil)
}

func TestErrorsWrapMalformed(t *testing.T) {
	err := DecodeFetch(12, []byte{1, 2, 3}, new(FetchRequest))
	require.True(t, errors.Is(err, ErrMalformed))
	require.Contains(t, err.Error(), "byte")
}
