package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/tierbroker/tierbroker/admin"
	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/tier/bucket/faultproxy"
	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

// rig is a broker whose bucket lies behind a proxy that can spoil what passes.
type rig struct {
	t      *testing.T
	server *s3test.Server
	proxy  *faultproxy.Proxy
	n      *node
	direct string // the bucket's URL past the proxy
}

func newRig(t *testing.T, env ...string) *rig {
	t.Helper()
	r := &rig{t: t, server: s3test.Start(t)}
	var err error
	r.proxy, err = faultproxy.Start(r.server.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.proxy.Close()) })
	r.direct = r.server.URL("p").String()
	r.n = newNode(t, "--bucket", r.server.URLAt(r.proxy.Addr(), "p").String())
	r.n.env = append(r.server.Environ(), env...)
	return r
}

// partitions asks the broker how its partitions of a topic stand.
func (n *node) partitions(topic string) []admin.Partition {
	n.t.Helper()
	status, body := n.get("/api/v1/topics/" + topic)
	require.Equal(n.t, http.StatusOK, status, body)
	var d admin.TopicDetail
	require.NoError(n.t, json.Unmarshal([]byte(body), &d))
	return d.PartitionList
}

// eventually waits for a condition that the broker must reach by itself.
func (n *node) eventually(limit time.Duration, what string, ok func() bool) {
	n.t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-n.exited:
			n.t.Fatalf("the broker ended: %s", n.cmd.ProcessState)
		case <-deadline:
			n.t.Fatalf("not within %v: %s", limit, what)
		case <-tick.C:
		}
	}
}

// wire sends single requests without any retry, so that a test sees the broker's own answers.
type wire struct {
	t  *testing.T
	cl *kgo.Client
}

// newWire makes a client that speaks the versions in which topics are named.
func newWire(t *testing.T, n *node) *wire {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.MaxVersions(kversion.V2_8_0()), kgo.DisableFetchSessions())
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return &wire{t: t, cl: cl}
}

func (w *wire) request(req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 40*time.Second)
	defer cancel()
	return w.cl.SeedBrokers()[0].Request(ctx, req) // whatever the cluster says of that broker
}

// produced is a broker's answer to one batch.
type produced struct {
	offset   int64
	err      error
	throttle time.Duration
}

// produce sends one batch that holds one record.
func (w *wire) produce(topic string, partition int32, value []byte) produced {
	w.t.Helper()
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1})
	b.Add(time.Now().UnixMilli(), nil, value, nil)
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, b.Bytes()
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.ProduceRequestTopicPartition{p}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, 30_000, []kmsg.ProduceRequestTopic{t}
	resp, err := w.request(req)
	require.NoError(w.t, err, "produce")
	r := resp.(*kmsg.ProduceResponse)
	a := r.Topics[0].Partitions[0]
	return produced{offset: a.BaseOffset, err: kerr.ErrorForCode(a.ErrorCode), throttle: time.Duration(r.ThrottleMillis) * time.Millisecond}
}

// record is what a consumer sees of a record.
type record struct {
	offset int64
	value  string
}

// fetch reads once from offset. It fails the test when a batch doesn't carry its own checksum.
func (w *wire) fetch(topic string, partition int32, offset int64) ([]record, error) {
	w.t.Helper()
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 500, 1, 1<<20, -1
	req.Topics = []kmsg.FetchRequestTopic{t}
	resp, err := w.request(req)
	require.NoError(w.t, err, "fetch")
	f := resp.(*kmsg.FetchResponse)
	require.NoError(w.t, kerr.ErrorForCode(f.ErrorCode))
	a := f.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
		require.Empty(w.t, a.RecordBatches, "records beside error %v", err)
		return nil, err
	}
	var out []record
	for b := a.RecordBatches; len(b) > 0; {
		_, one, rest, err := batch.Next(b)
		require.NoError(w.t, err, "fetch of %s-%d from %d", topic, partition, offset)
		require.NoError(w.t, batch.CheckCRC(one), "fetch of %s-%d from %d", topic, partition, offset)
		require.NoError(w.t, batch.Iterate(one, func(r *batch.Record) bool {
			if r.Offset >= offset {
				out = append(out, record{r.Offset, string(r.Value)})
			}
			return true
		}))
		b = rest
	}
	return out, nil
}

// reader reads one partition through and holds every record against what was written; it counts how it was put off.
type reader struct {
	w         *wire
	topic     string
	partition int32
	want      []string // by offset
	next      int64
	late      int // answers without records
	refused   int // retriable errors
	slowest   time.Duration
}

func (r *reader) done() bool { return r.next >= int64(len(r.want)) }

// step makes one fetch. Records must be right; an error must be one that clients try again on.
func (r *reader) step() {
	t := r.w.t
	t.Helper()
	began := time.Now()
	got, err := r.w.fetch(r.topic, r.partition, r.next)
	r.slowest = max(r.slowest, time.Since(began))
	switch {
	case err != nil:
		require.True(t, kerr.IsRetriable(err), "fetch of %s-%d at %d: %v", r.topic, r.partition, r.next, err)
		r.refused++
	case len(got) == 0:
		r.late++
	}
	for _, g := range got {
		require.Equal(t, r.next, g.offset, "next offset of %s-%d", r.topic, r.partition)
		require.Less(t, g.offset, int64(len(r.want)), "%s-%d is longer than what was written", r.topic, r.partition)
		require.Equal(t, r.want[g.offset], g.value, "%s-%d at %d", r.topic, r.partition, g.offset)
		r.next++
	}
}

// finish reads the rest, now that nothing is in the way.
func (r *reader) finish(n *node, limit time.Duration) {
	n.t.Helper()
	n.eventually(limit, fmt.Sprintf("%s-%d is read to its end", r.topic, r.partition), func() bool {
		r.step()
		return r.done()
	})
}

// randomText is a value that doesn't compress.
func randomText(rnd *rand.Rand, prefix string, n int) []byte {
	b := append(make([]byte, 0, n), prefix...)
	for len(b) < n {
		b = strconv.AppendUint(b, rnd.Uint64(), 36)
	}
	return b[:n]
}

// fill writes count records of size bytes to one partition, in small batches, and returns them.
func (r *rig) fill(topic string, partition int32, count, size int) []string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.n.kafka), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(16<<10))
	require.NoError(r.t, err)
	defer cl.Close()
	rnd := rand.New(rand.NewPCG(uint64(partition), uint64(size)))
	rs := make([]*kgo.Record, count)
	values := make([]string, count)
	for i := range rs {
		v := randomText(rnd, fmt.Sprintf("%s-%d/%d ", topic, partition, i), size)
		rs[i], values[i] = &kgo.Record{Topic: topic, Partition: partition, Value: v}, string(v)
	}
	require.NoError(r.t, cl.ProduceSync(ctx, rs...).FirstErr())
	return values
}

// steady writes small records at an even pace until ctx ends; every one of them must be acknowledged.
func (l *ledger) steady(ctx context.Context, t *testing.T, addr, topic string, wg *sync.WaitGroup) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(0))
	require.NoError(t, err)
	wg.Go(func() {
		defer cl.Close()
		tick := time.NewTicker(4 * time.Millisecond)
		defer tick.Stop()
		rnd := rand.New(rand.NewPCG(9, 9))
		for ctx.Err() == nil {
			v := randomText(rnd, strconv.FormatInt(l.seq.Add(1), 10)+" ", 1000)
			cl.Produce(context.Background(), &kgo.Record{Value: v}, func(r *kgo.Record, err error) {
				if err != nil {
					l.fails.Add(1)
					t.Errorf("produce: %v", err)
					return
				}
				l.note(r)
			})
			<-tick.C
		}
		flush, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := cl.Flush(flush); err != nil {
			t.Errorf("flush: %v", err)
		}
	})
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}
