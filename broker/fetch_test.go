package broker

import (
	"context"
	"fmt"
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

type at struct {
	part   int32
	offset int64
}

func fetchReq(t *cluster.Topic, ats ...at) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 0, 1, 1<<20, -1
	top := kmsg.NewFetchRequestTopic()
	top.Topic, top.TopicID = t.Name, t.ID
	for _, a := range ats {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LastFetchedEpoch = a.part, a.offset, 1<<20, -1, -1
		top.Partitions = append(top.Partitions, p)
	}
	if len(ats) > 0 {
		req.Topics = append(req.Topics, top)
	}
	return req
}

// fetched flattens a response.
func fetched(r *kmsg.FetchResponse) map[int32]*kmsg.FetchResponseTopicPartition {
	m := map[int32]*kmsg.FetchResponseTopicPartition{}
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			p := &r.Topics[i].Partitions[j]
			m[p.Partition] = p
		}
	}
	return m
}

// values lists the values of all records in a fetched partition.
func values(t testing.TB, p *kmsg.FetchResponseTopicPartition) []string {
	var out []string
	for b := p.RecordBatches; len(b) > 0; {
		_, one, rest, err := batch.Next(b)
		require.NoError(t, err)
		require.NoError(t, batch.Iterate(one, func(r *batch.Record) bool { out = append(out, string(r.Value)); return true }))
		b = rest
	}
	return out
}

func (w *world) noLeaks() {
	w.t.Helper()
	require.Zero(w.t, w.parts.leaks(), "batches that were not released")
}

func TestFetchVersions(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 2)
	w.part(topic, 0).write(records(1, "a", "b"))
	w.part(topic, 0).write(records(2, "c"))
	for v := int16(4); v <= 18; v++ {
		for _, iso := range []int8{0, 1} {
			req := fetchReq(topic, at{0, 1}, at{1, 0})
			req.IsolationLevel = iso
			resp := ask[*kmsg.FetchResponse](w, req, v)
			require.Zero(t, resp.ErrorCode)
			require.Zero(t, resp.SessionID)
			got := fetched(resp)
			require.Len(t, got, 2)
			require.Equal(t, []string{"a", "b", "c"}, values(t, got[0]), "the whole batch, version %d", v)
			require.EqualValues(t, 3, got[0].HighWatermark)
			require.EqualValues(t, 3, got[0].LastStableOffset)
			require.Equal(t, iso == 1, got[0].AbortedTransactions != nil)
			require.Empty(t, got[1].RecordBatches)
			require.Zero(t, got[1].HighWatermark)
			if v >= 13 {
				require.EqualValues(t, topic.ID, resp.Topics[0].TopicID)
			} else {
				require.Equal(t, "t", resp.Topics[0].Topic)
			}
		}
	}
	w.noLeaks()
}

func TestFetchErrors(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 1)
	p := w.part(topic, 0)
	p.write(records(1, "a", "b"))
	p.set(func() { p.start, p.epochs = 1, []epochEnd{{3, 1}} })
	for _, c := range []struct {
		name    string
		edit    func(*kmsg.FetchRequest)
		version int16
		want    *kerr.Error
	}{
		{"too old", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 0 }, 12, kerr.OffsetOutOfRange},
		{"too new", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 9 }, 12, kerr.OffsetOutOfRange},
		{"negative", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = -4 }, 12, kerr.OffsetOutOfRange},
		{"fenced", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 4 }, 12, kerr.FencedLeaderEpoch},
		{"unknown epoch", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 6 }, 12, kerr.UnknownLeaderEpoch},
		{"unknown last epoch", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].LastFetchedEpoch = 1 }, 12, kerr.OffsetOutOfRange},
		{"partition", func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 1 }, 12, kerr.UnknownTopicOrPartition},
		{"topic", func(r *kmsg.FetchRequest) { r.Topics[0].Topic = "x" }, 12, kerr.UnknownTopicOrPartition},
		{"topic id", func(r *kmsg.FetchRequest) { r.Topics[0].TopicID[3] ^= 1 }, 13, kerr.UnknownTopicID},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := fetchReq(topic, at{0, 1})
			req.MaxWaitMillis = 60000 // errors don't wait
			c.edit(req)
			r := ask[*kmsg.FetchResponse](w, req, c.version)
			got := &r.Topics[0].Partitions[0]
			require.Equal(t, c.want.Code, got.ErrorCode, "%v", kerr.ErrorForCode(got.ErrorCode))
			require.EqualValues(t, -1, got.HighWatermark)
			require.Empty(t, got.RecordBatches)
		})
	}
	for err, want := range map[error]*kerr.Error{
		partition.ErrNotOwner:         kerr.NotLeaderForPartition,
		partition.ErrUnavailable:      kerr.KafkaStorageError,
		partition.ErrCorrupt:          kerr.KafkaStorageError,
		partition.ErrStorage:          kerr.KafkaStorageError,
		context.DeadlineExceeded:      kerr.KafkaStorageError,
		partition.ErrOffsetOutOfRange: kerr.OffsetOutOfRange,
		fmt.Errorf("surprise"):        kerr.UnknownServerError,
	} {
		p.set(func() { p.readErr = err })
		require.Equal(t, want.Code, fetched(ask[*kmsg.FetchResponse](w, fetchReq(topic, at{0, 1}), 12))[0].ErrorCode, "%v", err)
	}
	w.noLeaks()
}

func TestFetchDiverging(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 1)
	p := w.part(topic, 0)
	p.write(records(1, "a", "b", "c"))
	p.set(func() { p.epochs = []epochEnd{{3, 1}} })
	req := fetchReq(topic, at{0, 2})
	req.MaxWaitMillis = 60000
	req.Topics[0].Partitions[0].LastFetchedEpoch = 3
	got := fetched(ask[*kmsg.FetchResponse](w, req, 12))[0]
	require.Zero(t, got.ErrorCode)
	require.Empty(t, got.RecordBatches)
	require.EqualValues(t, 3, got.DivergingEpoch.Epoch)
	require.EqualValues(t, 1, got.DivergingEpoch.EndOffset)
	req.Topics[0].Partitions[0].LastFetchedEpoch = 5
	require.NotEmpty(t, fetched(ask[*kmsg.FetchResponse](w, req, 12))[0].RecordBatches)
}

func TestFetchLimits(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 3)
	one := len(records(1, "aaaa"))
	for i := range int32(3) {
		for range 4 {
			w.part(topic, i).write(records(1, "aaaa"))
		}
	}
	sizes := func(maxBytes, partMax int) (out [3]int) {
		req := fetchReq(topic, at{0, 0}, at{1, 0}, at{2, 0})
		req.MaxBytes = int32(maxBytes)
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = int32(partMax)
		}
		for i, p := range fetched(ask[*kmsg.FetchResponse](w, req, 11)) {
			out[i] = len(p.RecordBatches) / one
		}
		return out
	}
	require.Equal(t, [3]int{4, 4, 4}, sizes(1<<20, 1<<20))
	require.Equal(t, [3]int{2, 2, 2}, sizes(1<<20, 2*one))
	require.Equal(t, [3]int{3, 2, 0}, sizes(5*one, 3*one))
	require.Equal(t, [3]int{1, 0, 0}, sizes(one-1, 1<<20), "the very first batch may pass max_bytes")
	require.Equal(t, [3]int{1, 0, 0}, sizes(0, 0))
	require.Equal(t, [3]int{1, 0, 0}, sizes(-5, -5))
	require.Equal(t, [3]int{1, 0, 0}, sizes(1<<20, one-1), "and only the first partition's limit")
	w.noLeaks()
}

// TestFetchColdTrim: a cold read's first batch passes its grant, and what no longer fits is left for the next fetch.
func TestFetchColdTrim(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 2)
	cold, hot := w.part(topic, 0), w.part(topic, 1)
	cold.write(records(1, string(make([]byte, 900))))
	cold.set(func() { cold.local = 1 })
	hot.write(records(1, string(make([]byte, 300))))
	req := fetchReq(topic, at{0, 0}, at{1, 0})
	req.MaxBytes = 1100
	req.Topics[0].Partitions[0].PartitionMaxBytes = 100
	got := fetched(ask[*kmsg.FetchResponse](w, req, 11))
	require.Greater(t, len(got[0].RecordBatches), 900)
	require.Empty(t, got[1].RecordBatches)
	w.noLeaks()
}

// TestFetchColdPiece: a client that wants more of a cold partition than one read takes gets that much at once, whatever it would wait for.
func TestFetchColdPiece(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 1)
	p := w.part(topic, 0)
	mib := string(make([]byte, 1<<20))
	for range 6 {
		p.write(records(1, mib))
	}
	p.set(func() { p.local = 6 })
	req := fetchReq(topic, at{0, 0})
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 50<<20, 5<<20, 60_000
	req.Topics[0].Partitions[0].PartitionMaxBytes = 50 << 20
	got := fetched(ask[*kmsg.FetchResponse](w, req, 11))
	require.Len(t, values(t, got[0]), 3, "with their headers, four pass the limit")
	w.noLeaks()
}

// TestFetchManyColdPieces: one that wants more of all cold partitions together than an answer takes of them doesn't wait for it either.
func TestFetchManyColdPieces(t *testing.T) {
	w := newWorld(t)
	const parts = 6
	topic := w.topic("t", parts)
	most := string(make([]byte, 4<<20-1000))
	ats := make([]at, parts)
	for i := range ats {
		ats[i].part = int32(i)
		p := w.part(topic, int32(i))
		p.write(records(1, most))
		p.set(func() { p.local = 1 })
	}
	req := fetchReq(topic, ats...)
	req.MaxBytes, req.MinBytes, req.MaxWaitMillis = 50<<20, 20<<20, 60_000
	for i := range req.Topics[0].Partitions {
		req.Topics[0].Partitions[i].PartitionMaxBytes = 4 << 20
	}
	began := time.Now()
	got := fetched(ask[*kmsg.FetchResponse](w, req, 11))
	require.Less(t, time.Since(began), 30*time.Second)
	n := 0
	for _, p := range got {
		n += len(values(t, p))
	}
	require.Equal(t, 4, n)
	w.noLeaks()
}

func TestFetchWaits(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 3)
	for _, v := range []int16{6, 12, 18} {
		// Nothing to read: the answer comes when something is written.
		end := w.part(topic, 1).Offsets().End
		req := fetchReq(topic, at{0, 0}, at{1, end})
		req.MaxWaitMillis = 60000
		p := w.start(req, v)
		got := make(chan *kmsg.FetchResponse, 1)
		go func() { got <- w.finish(req, p).(*kmsg.FetchResponse) }()
		w.awaitWatch(1)
		w.part(topic, 1).write(records(1, "x"))
		require.Equal(t, []string{"x"}, values(t, fetched(<-got)[1]))
		require.Zero(t, w.parts.watches())
	}
	// min_bytes: the answer comes when there is enough of it.
	one := len(records(1, "aaaa"))
	req := fetchReq(topic, at{0, 0}, at{2, 0})
	req.MaxWaitMillis, req.MinBytes = 60000, int32(3*one)
	p := w.start(req, 12)
	got := make(chan *kmsg.FetchResponse, 1)
	go func() { got <- w.finish(req, p).(*kmsg.FetchResponse) }()
	w.awaitWatch(2)
	w.part(topic, 0).write(records(1, "aaaa"))
	w.part(topic, 2).write(records(1, "bbbb"))
	select {
	case <-got:
		t.Fatal("answered too early")
	default:
	}
	w.part(topic, 0).write(records(1, "cccc"))
	m := fetched(<-got)
	require.Equal(t, []string{"aaaa", "cccc"}, values(t, m[0]))
	require.Equal(t, []string{"bbbb"}, values(t, m[2]))

	// max_wait ends the wait with what there is.
	req.MinBytes, req.MaxWaitMillis = 1<<20, 20
	req.MaxBytes = 2 << 20
	begin := time.Now()
	m = fetched(ask[*kmsg.FetchResponse](w, req, 12))
	require.Len(t, values(t, m[0]), 2)
	require.GreaterOrEqual(t, time.Since(begin), 20*time.Millisecond)

	// A partition that is lost ends the wait too.
	req = fetchReq(topic, at{1, w.part(topic, 1).Offsets().End})
	req.MaxWaitMillis = 60000
	p = w.start(req, 12)
	go func() { got <- w.finish(req, p).(*kmsg.FetchResponse) }()
	w.awaitWatch(1)
	w.parts.drop(frame.PartitionID{Topic: topic.ID, Partition: 1})
	require.Equal(t, kerr.NotLeaderForPartition.Code, fetched(<-got)[1].ErrorCode)

	// What is written and not yet durable isn't out of range, and is waited for.
	w.part(topic, 0).set(func() { w.parts.m[frame.PartitionID{Topic: topic.ID}].manual = true })
	require.Zero(t, onePart(ask[*kmsg.ProduceResponse](w, produceReq(topic, 0, 1, records(1, "d", "e")), 9)).ErrorCode)
	req = fetchReq(topic, at{0, 3})
	req.MaxWaitMillis = 60000
	p = w.start(req, 12)
	go func() { got <- w.finish(req, p).(*kmsg.FetchResponse) }()
	w.awaitWatch(1)
	w.part(topic, 0).settle()
	require.Equal(t, []string{"d", "e"}, values(t, fetched(<-got)[0]))

	// A server that stops ends every wait.
	req = fetchReq(topic, at{0, 4})
	req.MaxWaitMillis = 60000
	ctx, stop := context.WithCancelCause(w.ctx)
	stop(kafka.ErrShutdown)
	require.Zero(t, fetched(w.decode(req, w.start(req, 12).Wait(ctx)).(*kmsg.FetchResponse))[0].ErrorCode)

	// Nothing asked for, nothing to wait for.
	req = fetchReq(topic)
	req.MaxWaitMillis = 60000
	require.Empty(t, ask[*kmsg.FetchResponse](w, req, 12).Topics)
	w.noLeaks()
}

// awaitWatch waits until n partitions are watched.
func (w *world) awaitWatch(n int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.parts.watches() >= n }, 10*time.Second, time.Millisecond)
}

func TestFetchHotAndCold(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.ColdWait = 30 * time.Millisecond })
	topic := w.topic("t", 4)
	gate := make(chan struct{})
	for i := range int32(4) {
		p := w.part(topic, i)
		p.write(records(1, fmt.Sprint("v", i)))
		if i < 3 {
			p.set(func() { p.local, p.tiered, p.coldGate = 1, 1, gate })
		}
	}
	// Cold reads that hang don't hold up hot data.
	both := fetchReq(topic, at{0, 0}, at{1, 0}, at{2, 0}, at{3, 0})
	both.MaxBytes = 16 << 20
	got := fetched(ask[*kmsg.FetchResponse](w, both, 12))
	require.Equal(t, []string{"v3"}, values(t, got[3]))
	require.Empty(t, got[0].RecordBatches)
	require.Zero(t, got[0].ErrorCode)
	// With nothing else the fetch waits for them, and ends when its time is over.
	got = fetched(ask[*kmsg.FetchResponse](w, fetchReq(topic, at{0, 0}), 12))
	require.Empty(t, got[0].RecordBatches)
	// All cold partitions are read at the same time.
	require.Eventually(t, func() bool {
		return w.part(topic, 0).coldReads.Load() >= 2 && w.part(topic, 1).coldReads.Load() == 1 && w.part(topic, 2).coldReads.Load() == 1
	}, 10*time.Second, time.Millisecond)
	req := fetchReq(topic, at{0, 0}, at{1, 0})
	req.MaxWaitMillis, req.MinBytes = 60000, 1<<20
	req.MinBytes, req.MaxBytes = int32(2*len(records(1, "v0"))), 16<<20
	p := w.start(req, 12)
	out := make(chan *kmsg.FetchResponse, 1)
	go func() { out <- w.finish(req, p).(*kmsg.FetchResponse) }()
	require.Eventually(t, func() bool { return w.part(topic, 1).coldReads.Load() == 2 }, 10*time.Second, time.Millisecond)
	close(gate)
	got = fetched(<-out)
	require.Equal(t, []string{"v0"}, values(t, got[0]))
	require.Equal(t, []string{"v1"}, values(t, got[1]))
	// A failing cold read is told, and a batch larger than the limits comes through beside it.
	w.part(topic, 0).set(func() { w.part(topic, 0).readErr = partition.ErrUnavailable })
	req = fetchReq(topic, at{0, 0}, at{3, 0})
	req.MaxBytes = 10
	got = fetched(ask[*kmsg.FetchResponse](w, req, 12))
	require.Equal(t, kerr.KafkaStorageError.Code, got[0].ErrorCode)
	require.Equal(t, []string{"v3"}, values(t, got[3]))
	require.Eventually(t, func() bool { return w.parts.leaks() == 0 }, 10*time.Second, time.Millisecond)
	cold := int64(0)
	w.counted.Topics(func(s TopicStats) { cold = s.BytesCold })
	require.EqualValues(t, 2*len(records(1, "v0")), cold)
}

func TestFetchLeaderHint(t *testing.T) {
	w := newWorld(t)
	topic := w.topic("t", 1)
	w.register(cluster.Broker{ID: 2, Incarnation: "run-2", Identity: "two", Host: "two.example", Port: 9093})
	id := frame.PartitionID{Topic: topic.ID}
	w.assign(id, cluster.Assignment{Owner: 2, OwnerIncarnation: "run-2", Epoch: 8, State: cluster.Writing})
	w.parts.drop(id)
	resp := ask[*kmsg.FetchResponse](w, fetchReq(topic, at{0, 0}), 16)
	require.Equal(t, kerr.NotLeaderForPartition.Code, fetched(resp)[0].ErrorCode)
	require.EqualValues(t, 2, fetched(resp)[0].CurrentLeader.LeaderID)
	require.EqualValues(t, 8, fetched(resp)[0].CurrentLeader.LeaderEpoch)
	require.Len(t, resp.Brokers, 1)
	require.EqualValues(t, 9093, resp.Brokers[0].Port)
	resp = ask[*kmsg.FetchResponse](w, fetchReq(topic, at{0, 0}), 11)
	require.EqualValues(t, -1, fetched(resp)[0].CurrentLeader.LeaderID)
}
