package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/partition"
)

func listReq(topic string, q ...kmsg.ListOffsetsRequestTopicPartition) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: q}}
	return req
}

func query(part int32, ts int64) kmsg.ListOffsetsRequestTopicPartition {
	q := kmsg.NewListOffsetsRequestTopicPartition()
	q.Partition, q.Timestamp, q.CurrentLeaderEpoch = part, ts, -1
	return q
}

func TestListOffsets(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 2)
	p := w.part(topic, 0)
	for i := range 10 {
		p.write(records(int64(100+i%7), "v"))
	}
	p.set(func() { p.start, p.local, p.tiered = 2, 4, 6 })
	for v := int16(1); v <= 11; v++ {
		for _, c := range []struct {
			ts     int64
			since  int16
			offset int64
			found  int64
		}{
			{latest, 1, 10, -1}, {earliest, 1, 2, -1}, {maxTimestamp, 7, 6, 106}, {earliestLocal, 8, 4, -1}, {latestTiered, 9, 5, -1}, {earliestToTier, 11, 6, -1},
			{104, 1, 4, 104}, {0, 1, 2, 102}, {106, 1, 6, 106}, {107, 1, -1, -1},
		} {
			a := ask[*kmsg.ListOffsetsResponse](w, listReq("t", query(0, c.ts)), v).Topics[0].Partitions[0]
			if v < c.since {
				require.Equal(t, kerr.UnsupportedVersion.Code, a.ErrorCode)
				continue
			}
			require.Zero(t, a.ErrorCode, "version %d, %d", v, c.ts)
			require.Equal(t, c.offset, a.Offset, "version %d, %d", v, c.ts)
			require.Equal(t, c.found, a.Timestamp)
			if v >= 4 && c.offset >= 0 {
				require.EqualValues(t, 5, a.LeaderEpoch)
			}
		}
	}
	empty := func(ts int64) kmsg.ListOffsetsResponseTopicPartition {
		return ask[*kmsg.ListOffsetsResponse](w, listReq("t", query(1, ts)), 11).Topics[0].Partitions[0]
	}
	require.Zero(t, empty(latest).Offset)
	require.Zero(t, empty(earliest).Offset)
	require.EqualValues(t, -1, empty(maxTimestamp).Offset)
	require.EqualValues(t, -1, empty(latestTiered).Offset)
	require.EqualValues(t, -1, empty(5).Offset)
	require.Equal(t, kerr.UnsupportedVersion.Code, empty(-99).ErrorCode)
}

func TestListOffsetsErrors(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 2)
	old, young := query(0, latest), query(1, latest)
	old.CurrentLeaderEpoch, young.CurrentLeaderEpoch = 4, 6
	r := ask[*kmsg.ListOffsetsResponse](w, listReq("t", old, young, query(5, 1)), 5).Topics[0].Partitions
	require.Equal(t, kerr.FencedLeaderEpoch.Code, r[0].ErrorCode)
	require.Equal(t, kerr.UnknownLeaderEpoch.Code, r[1].ErrorCode)
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, r[2].ErrorCode)
	r = ask[*kmsg.ListOffsetsResponse](w, listReq("t", query(0, latest), query(0, latest), query(1, latest)), 5).Topics[0].Partitions
	require.Equal(t, kerr.InvalidRequest.Code, r[0].ErrorCode)
	require.Equal(t, kerr.InvalidRequest.Code, r[1].ErrorCode)
	require.Zero(t, r[2].ErrorCode)
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, ask[*kmsg.ListOffsetsResponse](w, listReq("x", query(0, 1)), 5).Topics[0].Partitions[0].ErrorCode)
	p := w.part(topic, 0)
	p.set(func() { p.findErr = partition.ErrUnavailable })
	for _, ts := range []int64{5, maxTimestamp} {
		require.Equal(t, kerr.KafkaStorageError.Code, ask[*kmsg.ListOffsetsResponse](w, listReq("t", query(0, ts)), 7).Topics[0].Partitions[0].ErrorCode)
	}
	p.close()
	require.Equal(t, kerr.NotLeaderForPartition.Code, ask[*kmsg.ListOffsetsResponse](w, listReq("t", query(0, latest)), 7).Topics[0].Partitions[0].ErrorCode)
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 1)
	p := w.part(topic, 0)
	p.write(records(1, "a", "b", "c"))
	p.set(func() { p.epochs = []epochEnd{{2, 1}, {4, 2}} })
	for v := int16(2); v <= 4; v++ {
		for _, c := range []struct {
			asked, epoch int32
			end          int64
		}{{5, 5, 3}, {4, 4, 2}, {3, 2, 1}, {1, -1, -1}} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.ReplicaID = -1
			q := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			q.LeaderEpoch = c.asked
			req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{q}}}
			a := ask[*kmsg.OffsetForLeaderEpochResponse](w, req, v).Topics[0].Partitions[0]
			require.Zero(t, a.ErrorCode)
			require.Equal(t, c.epoch, a.LeaderEpoch)
			require.Equal(t, c.end, a.EndOffset)
			req.Topics[0].Partitions[0].CurrentLeaderEpoch = 9
			require.Equal(t, kerr.UnknownLeaderEpoch.Code, ask[*kmsg.OffsetForLeaderEpochResponse](w, req, v).Topics[0].Partitions[0].ErrorCode)
			req.Topics[0].Partitions[0].Partition = 9
			require.Equal(t, kerr.UnknownTopicOrPartition.Code, ask[*kmsg.OffsetForLeaderEpochResponse](w, req, v).Topics[0].Partitions[0].ErrorCode)
			req.Topics[0].Topic = "x"
			require.Equal(t, kerr.UnknownTopicOrPartition.Code, ask[*kmsg.OffsetForLeaderEpochResponse](w, req, v).Topics[0].Partitions[0].ErrorCode)
		}
	}
}

func TestDeleteRecords(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 2)
	w.topic("c", 1, "cleanup.policy", "compact")
	p := w.part(topic, 0)
	p.write(records(1, "a", "b", "c", "d"))
	del := func(v int16, name string, part int32, offset int64) kmsg.DeleteRecordsResponseTopicPartition {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 5000
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: name, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: part, Offset: offset}}}}
		return ask[*kmsg.DeleteRecordsResponse](w, req, v).Topics[0].Partitions[0]
	}
	for v := int16(0); v <= 2; v++ {
		a := del(v, "t", 0, int64(v)+1)
		require.Zero(t, a.ErrorCode)
		require.Equal(t, int64(v)+1, a.LowWatermark)
	}
	require.EqualValues(t, 3, del(2, "t", 0, 1).LowWatermark, "never back")
	require.EqualValues(t, 4, del(2, "t", 0, -1).LowWatermark)
	require.Equal(t, kerr.OffsetOutOfRange.Code, del(2, "t", 0, 5).ErrorCode)
	require.Equal(t, kerr.OffsetOutOfRange.Code, del(2, "t", 0, -2).ErrorCode)
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, del(2, "t", 2, 0).ErrorCode)
	require.Equal(t, kerr.UnknownTopicOrPartition.Code, del(2, "x", 0, 0).ErrorCode)
	require.Equal(t, kerr.PolicyViolation.Code, del(2, "c", 0, 0).ErrorCode)
	p.write(records(1, "e"))
	p.set(func() { p.findErr = partition.ErrUnavailable })
	a := del(2, "t", 0, -1)
	require.Equal(t, kerr.KafkaStorageError.Code, a.ErrorCode)
	require.EqualValues(t, -1, a.LowWatermark)
}
