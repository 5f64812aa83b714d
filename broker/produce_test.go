package broker

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
)

func produceReq(t *cluster.Topic, part int32, acks int16, recs []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 5000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = part, recs
	top := kmsg.NewProduceRequestTopic()
	top.Topic, top.TopicID = t.Name, t.ID
	top.Partitions = append(top.Partitions, p)
	req.Topics = append(req.Topics, top)
	return req
}

func onePart(r *kmsg.ProduceResponse) *kmsg.ProduceResponseTopicPartition {
	return &r.Topics[0].Partitions[0]
}

func TestProduceVersions(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 2)
	next := int64(0)
	for v := int16(3); v <= 13; v++ {
		for _, acks := range []int16{-1, 1} {
			resp := ask[*kmsg.ProduceResponse](w, produceReq(topic, 1, acks, records(1, "a", "b")), v)
			p := onePart(resp)
			require.Zero(t, p.ErrorCode, "version %d", v)
			require.Equal(t, next, p.BaseOffset)
			require.EqualValues(t, -1, p.LogAppendTime)
			require.EqualValues(t, 1, p.Partition)
			if v < 13 {
				require.Equal(t, "t", resp.Topics[0].Topic)
			} else {
				require.EqualValues(t, topic.ID, resp.Topics[0].TopicID)
			}
			if v >= 5 {
				require.Zero(t, p.LogStartOffset)
			}
			next += 2
		}
	}
	require.Equal(t, next, w.part(topic, 1).Offsets().End)
	var got []TopicStats
	w.counted.Topics(func(s TopicStats) { got = append(got, s) })
	require.Len(t, got, 1)
	require.EqualValues(t, 22, got[0].Batches)
	require.EqualValues(t, 44, got[0].Records)
}

func TestProduceErrors(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 1)
	inside := w.topicSpec(cluster.TopicSpec{Name: "__inside", Partitions: 1, Internal: true})
	p := w.part(topic, 0)
	p.limits = batch.Limits{MaxBytes: 500, NeedKeys: true, CreateTime: true, Now: 1000, MaxBefore: 100 * time.Millisecond, MaxAfter: 100 * time.Millisecond}
	good := func() []byte { return records(1000, "v") }
	old := good()
	old[16] = 1
	torn := good()
	torn[len(torn)-1] ^= 1
	control := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: 1, Control: true})
	control.Add(1000, []byte{0, 0, 0, 0}, nil, nil)
	txn := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: 1, Transactional: true})
	txn.Add(1000, []byte("k"), nil, nil)
	noKey := batch.NewBuilder(batch.None, batch.BuilderOptions{})
	noKey.Add(1000, []byte("k"), []byte("v"), nil)
	noKey.Add(1000, nil, []byte("v"), nil)
	zst := batch.NewBuilder(batch.Zstd, batch.BuilderOptions{})
	zst.Add(1000, []byte("k"), []byte("v"), nil)
	big := batch.NewBuilder(batch.None, batch.BuilderOptions{})
	big.Add(1000, []byte("k"), make([]byte, 600), nil)

	for _, c := range []struct {
		name    string
		req     *kmsg.ProduceRequest
		version int16
		want    *kerr.Error
		record  int // index in RecordErrors, -1 for none
	}{
		{"unknown topic", produceReq(&cluster.Topic{Name: "nope"}, 0, -1, good()), 9, kerr.UnknownTopicOrPartition, -1},
		{"unknown id", produceReq(&cluster.Topic{ID: [16]byte{9}}, 0, -1, good()), 13, kerr.UnknownTopicID, -1},
		{"unknown partition", produceReq(topic, 7, -1, good()), 9, kerr.UnknownTopicOrPartition, -1},
		{"negative partition", produceReq(topic, -1, -1, good()), 9, kerr.UnknownTopicOrPartition, -1},
		{"internal topic", produceReq(inside, 0, -1, good()), 9, kerr.InvalidTopicException, -1},
		{"acks 2", produceReq(topic, 0, 2, good()), 9, kerr.InvalidRequiredAcks, -1},
		{"null records", produceReq(topic, 0, -1, nil), 9, kerr.InvalidRecord, -1},
		{"empty records", produceReq(topic, 0, -1, []byte{}), 9, kerr.InvalidRecord, -1},
		{"two batches", produceReq(topic, 0, -1, append(good(), good()...)), 9, kerr.InvalidRecord, -1},
		{"old format", produceReq(topic, 0, -1, old), 9, kerr.UnsupportedForMessageFormat, -1},
		{"short", produceReq(topic, 0, -1, good()[:40]), 9, kerr.CorruptMessage, -1},
		{"cut", produceReq(topic, 0, -1, good()[:65]), 9, kerr.CorruptMessage, -1},
		{"bad crc", produceReq(topic, 0, -1, torn), 9, kerr.CorruptMessage, -1},
		{"control", produceReq(topic, 0, -1, control.Bytes()), 9, kerr.InvalidRecord, -1},
		{"transactional batch", produceReq(topic, 0, -1, txn.Bytes()), 9, kerr.InvalidTxnState, -1},
		{"null key", produceReq(topic, 0, -1, noKey.Bytes()), 9, kerr.InvalidRecord, 1},
		{"zstd too early", produceReq(topic, 0, -1, zst.Bytes()), 6, kerr.UnsupportedCompressionType, -1},
		{"too large", produceReq(topic, 0, -1, big.Bytes()), 9, kerr.MessageTooLarge, -1},
		{"too old", produceReq(topic, 0, -1, records(10, "v")), 9, kerr.InvalidTimestamp, 0},
		{"in the future", produceReq(topic, 0, -1, records(5000, "v")), 9, kerr.InvalidTimestamp, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := onePart(ask[*kmsg.ProduceResponse](w, c.req, c.version))
			require.Equal(t, c.want.Code, r.ErrorCode, "%v", kerr.ErrorForCode(r.ErrorCode))
			require.EqualValues(t, -1, r.BaseOffset)
			if c.record >= 0 {
				require.Len(t, r.ErrorRecords, 1)
				require.EqualValues(t, c.record, r.ErrorRecords[0].RelativeOffset)
				require.NotEmpty(t, r.ErrorRecords[0].ErrorMessage)
				require.NotEmpty(t, r.ErrorMessage)
			} else {
				require.Empty(t, r.ErrorRecords)
			}
		})
	}
	require.Zero(t, p.Offsets().End, "nothing was stored")
	txnReq := produceReq(topic, 0, -1, good())
	txnReq.TransactionID = kmsg.StringPtr("tx")
	require.Equal(t, kerr.InvalidTxnState.Code, onePart(ask[*kmsg.ProduceResponse](w, txnReq, 9)).ErrorCode)
}

func TestProducePartitionErrors(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 1)
	p := w.part(topic, 0)
	for err, want := range map[error]*kerr.Error{
		partition.ErrNotOwner:           kerr.NotLeaderForPartition,
		partition.ErrClosing:            kerr.NotLeaderForPartition,
		partition.ErrOutOfOrderSequence: kerr.OutOfOrderSequenceNumber,
		partition.ErrDuplicateSequence:  kerr.DuplicateSequenceNumber,
		partition.ErrProducerFenced:     kerr.InvalidProducerEpoch,
		partition.ErrStorage:            kerr.KafkaStorageError,
		context.Canceled:                kerr.RequestTimedOut,
		bytes.ErrTooLarge:               kerr.UnknownServerError,
	} {
		p.set(func() { p.appendErr = err })
		require.Equal(t, want.Code, onePart(ask[*kmsg.ProduceResponse](w, produceReq(topic, 0, -1, records(1, "v")), 9)).ErrorCode, "%v", err)
	}
	p.set(func() { p.appendErr, p.writtenErr = nil, partition.ErrStorage })
	require.Equal(t, kerr.KafkaStorageError.Code, onePart(ask[*kmsg.ProduceResponse](w, produceReq(topic, 0, 1, records(1, "v")), 9)).ErrorCode)
	p.set(func() { p.writtenErr, p.durableErr, p.manual = nil, partition.ErrStorage, true })
	r := onePart(ask[*kmsg.ProduceResponse](w, produceReq(topic, 0, -1, records(1, "v")), 9))
	require.Equal(t, kerr.KafkaStorageError.Code, r.ErrorCode)
	require.EqualValues(t, -1, r.BaseOffset)
	w.counted.Topics(func(TopicStats) { t.Fatal("nothing was produced") })
}

func TestProduceAcks(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 1)
	p := w.part(topic, 0)
	p.set(func() { p.manual = true })

	// acks=1 doesn't wait for durability.
	require.Zero(t, onePart(ask[*kmsg.ProduceResponse](w, produceReq(topic, 0, 1, records(1, "a")), 9)).ErrorCode)
	// acks=0 isn't answered, and the append has happened when Handle returns.
	r := w.start(produceReq(topic, 0, 0, records(1, "b")), 9).Wait(w.ctx)
	require.True(t, r.None)
	require.NoError(t, r.Close)
	require.EqualValues(t, 2, p.Offsets().End)
	// acks=0 that fails closes the connection.
	require.ErrorContains(t, w.refused(produceReq(topic, 3, 0, records(1, "b")), 9), "acks=0")

	// acks=-1 waits; requests in flight are appended in order before the first is answered.
	first := produceReq(topic, 0, -1, records(1, "c"))
	second := produceReq(topic, 0, -1, records(1, "d"))
	p1, p2 := w.start(first, 9), w.start(second, 9)
	require.EqualValues(t, 4, p.Offsets().End)
	p.settle()
	require.EqualValues(t, 2, onePart(w.finish(first, p1).(*kmsg.ProduceResponse)).BaseOffset)
	require.EqualValues(t, 3, onePart(w.finish(second, p2).(*kmsg.ProduceResponse)).BaseOffset)

	// A timeout is a timeout.
	late := produceReq(topic, 0, -1, records(1, "e"))
	late.TimeoutMillis = 1
	out := onePart(ask[*kmsg.ProduceResponse](w, late, 9))
	require.Equal(t, kerr.RequestTimedOut.Code, out.ErrorCode)
	require.EqualValues(t, -1, out.BaseOffset)

	// A server that stops still tells the truth; a client that is gone isn't waited for.
	ctx, stop := context.WithCancelCause(w.ctx)
	req := produceReq(topic, 0, -1, records(1, "f"))
	pending := w.start(req, 9)
	stop(kafka.ErrShutdown)
	got := make(chan kafka.Response, 1)
	go func() { got <- pending.Wait(ctx) }()
	p.settle()
	require.Zero(t, onePart(w.decode(req, <-got).(*kmsg.ProduceResponse)).ErrorCode)
	ctx, stop = context.WithCancelCause(w.ctx)
	stop(kafka.ErrClosed)
	req = produceReq(topic, 0, -1, records(1, "g"))
	require.NotZero(t, onePart(w.decode(req, w.start(req, 9).Wait(ctx)).(*kmsg.ProduceResponse)).ErrorCode)
}

func TestProduceHintsAndThrottle(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 2)
	w.register(cluster.Broker{ID: 2, Incarnation: "run-2", Identity: "two", Host: "two.example", Port: 9093, Rack: "r2"})
	id := frame.PartitionID{Topic: topic.ID, Partition: 0}
	w.assign(id, cluster.Assignment{Owner: 2, OwnerIncarnation: "run-2", Epoch: 8, State: cluster.Writing})
	w.parts.drop(id)
	resp := ask[*kmsg.ProduceResponse](w, produceReq(topic, 0, -1, records(1, "v")), 10)
	require.Equal(t, kerr.NotLeaderForPartition.Code, onePart(resp).ErrorCode)
	require.EqualValues(t, 2, onePart(resp).CurrentLeader.LeaderID)
	require.EqualValues(t, 8, onePart(resp).CurrentLeader.LeaderEpoch)
	require.Len(t, resp.Brokers, 1)
	require.Equal(t, "two.example", resp.Brokers[0].Host)
	require.Equal(t, "r2", *resp.Brokers[0].Rack)
	resp = ask[*kmsg.ProduceResponse](w, produceReq(topic, 0, -1, records(1, "v")), 9)
	require.EqualValues(t, -1, onePart(resp).CurrentLeader.LeaderID, "no hint before version 10")

	p := w.part(topic, 1)
	p.set(func() { p.throttle, p.appendTime = 1500*time.Millisecond, true })
	resp = ask[*kmsg.ProduceResponse](w, produceReq(topic, 1, -1, records(1, "v")), 9)
	require.EqualValues(t, 1500, resp.ThrottleMillis)
	require.Greater(t, onePart(resp).LogAppendTime, int64(1_600_000_000_000))
}

func TestProduceManyPartitions(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 4)
	req := produceReq(topic, 0, -1, records(1, "a"))
	for i := int32(1); i < 6; i++ { // 4 and 5 don't exist
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = i, records(1, "a")
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	w.part(topic, 2).set(func() { w.parts.m[frame.PartitionID{Topic: topic.ID, Partition: 2}].appendErr = partition.ErrStorage })
	resp := ask[*kmsg.ProduceResponse](w, req, 9)
	codes := make([]int16, 0, 6)
	for _, p := range resp.Topics[0].Partitions {
		codes = append(codes, p.ErrorCode)
	}
	require.Equal(t, []int16{0, 0, kerr.KafkaStorageError.Code, 0, kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicOrPartition.Code}, codes)
}

// idempotent makes a batch of an idempotent producer.
func idempotent(id int64, epoch int16, seq int32, values ...string) []byte {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: id, ProducerEpoch: epoch, FirstSequence: seq, Idempotent: true})
	for _, v := range values {
		b.Add(time.Now().UnixMilli(), nil, []byte(v), nil)
	}
	return b.Bytes()
}
