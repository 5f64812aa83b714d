package kafka

import (
	"bytes"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

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
