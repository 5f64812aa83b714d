package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"math"
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
