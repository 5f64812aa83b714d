package broker

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/tierbroker/tierbroker/cache"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/controller"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
	"github.com/tierbroker/tierbroker/partition"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// node is a whole broker in this process: cluster state, controller, partitions, archive in memory, Kafka listener.
type node struct {
	t       testing.TB
	ctx     context.Context
	addr    string
	client  *cluster.Client
	set     *partition.Set
	bucket  *bucket.Fault
	b       *Broker
	counted *Counters
}

func startNode(t testing.TB, tune ...func(*Options)) *node {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	n := &node{t: t, ctx: ctx, counted: NewCounters(), bucket: bucket.NewFault(bucket.NewMemory(), nil)}
	var err error
	n.client, err = cluster.Start(ctx, cluster.Options{Etcd: etcdClient(t), Prefix: fmt.Sprintf("/r%d/", etcd.n.Add(1)), BrokerID: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.client.Close()) })

	chunks := cache.New(cache.Options{Bucket: n.bucket, Bytes: 64 << 20, ChunkBytes: 256 << 10, Workers: 4})
	t.Cleanup(func() { require.NoError(t, chunks.Close()) })
	archive := tier.New(tier.Options{Heads: n.bucket, Cache: chunks, ClusterID: n.client.Image().ClusterID(), ClusterIncarnation: n.client.Image().Meta().Incarnation})
	t.Cleanup(func() { require.NoError(t, archive.Close()) })
	n.set, err = partition.OpenSet(partition.SetOptions{Dir: t.TempDir(), Archive: archive, Cluster: n.client, Broker: 1, Incarnation: "run-1", BootID: "boot",
		Log: segment.Options{FileBytes: 8 << 20}})
	require.NoError(t, err)
	t.Cleanup(func() {
		stop, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, n.set.Close(stop))
	})
	o := Options{ID: 1, Partitions: Local(n.set), Cluster: n.client, Admin: n.client, Metrics: n.counted, DataDir: "/data"}
	for _, f := range tune {
		f(&o)
	}
	n.b, err = New(o)
	require.NoError(t, err)
	t.Cleanup(n.b.Close)
	n.listen()
	n.join()
	return n
}

func (n *node) listen() {
	server, err := kafka.NewServer(kafka.Options{Listeners: []kafka.Listener{{Name: "PLAINTEXT", Addr: "127.0.0.1:0"}}, Handler: n.b, OnRequest: n.counted.Request})
	require.NoError(n.t, err)
	n.addr = server.Addrs()[0].String()
	server.Start()
	n.t.Cleanup(func() {
		stop, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(n.t, server.Shutdown(stop))
	})
}

// join registers the broker and runs the controller and the loop that gives the partitions their assignments.
func (n *node) join() {
	host, port, _ := strings.Cut(n.addr, ":")
	var p int32
	_, err := fmt.Sscan(port, &p)
	require.NoError(n.t, err)
	session, err := n.client.Register(n.ctx, cluster.Broker{ID: 1, Incarnation: "run-1", Identity: "one", Host: host, Port: p}, 30*time.Second)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, session.Close()) })
	c, err := controller.New(controller.Options{Client: n.client, Session: session, Broker: 1})
	require.NoError(n.t, err)
	ctx, cancel := context.WithCancel(n.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Run(ctx); err != nil && ctx.Err() == nil {
			n.t.Errorf("controller: %v", err)
		}
	})
	wg.Go(func() {
		for img := n.client.Image(); ; {
			n.set.Apply(img)
			next, err := n.client.Wait(ctx, img.Revision())
			if err != nil {
				return
			}
			img = next
		}
	})
	n.t.Cleanup(func() { cancel(); wg.Wait() })
}

func (n *node) kgo(opts ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.addr), kgo.MetadataMinAge(20 * time.Millisecond)}, opts...)...)
	require.NoError(n.t, err)
	n.t.Cleanup(c.Close)
	return c
}

// part returns a partition once it serves.
func (n *node) part(topic string, i int32) *partition.Partition {
	var p *partition.Partition
	require.Eventually(n.t, func() bool {
		t := n.client.Image().TopicByName(topic)
		if t == nil {
			return false
		}
		p = n.set.Get(frame.PartitionID{Topic: t.ID, Partition: i})
		return p != nil && p.State() == partition.Writing
	}, 20*time.Second, time.Millisecond)
	return p
}

// consume reads until it has n records.
func (n *node) consume(want int, opts ...kgo.Opt) []*kgo.Record {
	c := n.kgo(opts...)
	defer c.Close()
	var out []*kgo.Record
	for len(out) < want {
		fs := c.PollFetches(n.ctx)
		require.NoError(n.t, fs.Err())
		out = append(out, fs.Records()...)
	}
	return out
}

func TestRealProduceConsume(t *testing.T) {
	n := startNode(t)
	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		topic := fmt.Sprint("codec-", i) // auto-created
		p := n.kgo(kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(time.Millisecond))
		var sent []*kgo.Record
		for k := range 300 {
			sent = append(sent, &kgo.Record{Key: fmt.Append(nil, k), Value: bytes.Repeat([]byte{byte('a' + k%20)}, k)})
		}
		require.NoError(t, p.ProduceSync(n.ctx, sent...).FirstErr())
		got := n.consume(len(sent), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for k := range sent {
			require.EqualValues(t, k, got[k].Offset)
			require.Equal(t, sent[k].Key, got[k].Key)
			require.Equal(t, string(sent[k].Value), string(got[k].Value))
		}
		adm := kadm.NewClient(p)
		ends, err := adm.ListEndOffsets(n.ctx, topic)
		require.NoError(t, err)
		end, _ := ends.Lookup(topic, 0)
		require.EqualValues(t, 300, end.Offset)
	}
}

// TestRealOldVersions: a client of every Kafka release since 0.11 produces, consumes and looks up offsets.
func TestRealOldVersions(t *testing.T) {
	n := startNode(t)
	for i, v := range []*kversion.Versions{kversion.V0_11_0(), kversion.V1_0_0(), kversion.V1_1_0(), kversion.V2_0_0(), kversion.V2_1_0(), kversion.V2_2_0(), kversion.V2_3_0(),
		kversion.V2_4_0(), kversion.V2_5_0(), kversion.V2_6_0(), kversion.V2_7_0(), kversion.V2_8_0(), kversion.V3_0_0(), kversion.V3_1_0(), kversion.V3_3_0(), kversion.V3_5_0(),
		kversion.V3_7_0(), kversion.V3_9_0(), kversion.V4_0_0(), kversion.Stable()} {
		topic := fmt.Sprint("old-", i)
		c := n.kgo(kgo.MaxVersions(v), kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation(), kgo.ProducerLinger(0))
		require.NoError(t, c.ProduceSync(n.ctx, kgo.StringRecord("a"), kgo.StringRecord("b")).FirstErr(), v.VersionGuess())
		got := n.consume(2, kgo.MaxVersions(v), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		require.Equal(t, "b", string(got[1].Value), v.VersionGuess())
		ends, err := kadm.NewClient(c).ListEndOffsets(n.ctx, topic)
		require.NoError(t, err)
		end, _ := ends.Lookup(topic, 0)
		require.NoError(t, end.Err)
		require.EqualValues(t, 2, end.Offset)
		c.Close()
	}
}

// TestRealColdAndHot reads records that are in the bucket only, in both places, and local only, by offset and by time.
func TestRealColdAndHot(t *testing.T) {
	n := startNode(t)
	c := n.kgo(kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	adm := kadm.NewClient(c)
	_, err := adm.CreateTopic(n.ctx, 2, 1, nil, "t")
	require.NoError(t, err)
	base := time.UnixMilli(1_700_000_000_000)
	next := 0
	write := func(count int) {
		for range count {
			var recs []*kgo.Record
			for range 5 {
				recs = append(recs, &kgo.Record{Partition: int32(next % 2), Value: fmt.Append(nil, next), Timestamp: base.Add(time.Duration(next) * time.Second)})
				next++
			}
			require.NoError(t, c.ProduceSync(n.ctx, recs...).FirstErr())
		}
	}
	write(20)
	for i := range int32(2) {
		require.NoError(t, n.part("t", i).Roll(n.ctx))
		require.NoError(t, n.part("t", i).Evict(n.ctx))
	}
	write(20)
	require.NoError(t, n.part("t", 0).Roll(n.ctx))
	write(20)

	got := n.consume(next, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxBytes(2048), kgo.FetchMaxPartitionBytes(512))
	offset := [2]int64{}
	for _, r := range got {
		require.Equal(t, offset[r.Partition], r.Offset)
		require.Equal(t, fmt.Sprint(r.Offset*2+int64(r.Partition)), string(r.Value))
		offset[r.Partition]++
	}
	for ms := int64(-1); ms < 300_000; ms += 9_700 {
		offs, err := adm.ListOffsetsAfterMilli(n.ctx, base.UnixMilli()+ms, "t")
		require.NoError(t, err)
		for part := range int64(2) {
			o, ok := offs.Lookup("t", int32(part))
			require.True(t, ok)
			require.NoError(t, o.Err)
			want := (ms + 999) / 1000 // first value at or after
			for want%2 != part || want < 0 {
				want++
			}
			if want >= int64(next) {
				continue // kadm asks for the end offset then
			}
			require.Equal(t, want/2, o.Offset, "%d ms, partition %d", ms, part)
		}
	}
	low, err := adm.DeleteRecords(n.ctx, kadm.Offsets{"t": {0: {Topic: "t", Partition: 0, At: 33}, 1: {Topic: "t", Partition: 1, At: -1}}})
	require.NoError(t, err)
	l, _ := low.Lookup("t", 0)
	require.NoError(t, l.Err)
	require.EqualValues(t, 33, l.LowWatermark)
	l, _ = low.Lookup("t", 1)
	require.EqualValues(t, offset[1], l.LowWatermark)
	after := n.consume(int(offset[0])-33, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.EqualValues(t, 33, after[0].Offset)
}

// TestRealBucketDown: hot data is read and written while the bucket doesn't answer, cold data comes when it is back.
func TestRealBucketDown(t *testing.T) {
	n := startNode(t, func(o *Options) { o.ColdTimeout = time.Second })
	c := n.kgo(kgo.DefaultProduceTopic("t"))
	adm := kadm.NewClient(c)
	_, err := adm.CreateTopic(n.ctx, 1, 1, nil, "t")
	require.NoError(t, err)
	require.NoError(t, c.ProduceSync(n.ctx, kgo.StringRecord("cold")).FirstErr())
	require.NoError(t, n.part("t", 0).Roll(n.ctx))
	require.NoError(t, n.part("t", 0).Evict(n.ctx))
	require.EqualValues(t, 1, n.part("t", 0).Offsets().LocalStart)
	n.bucket.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Before: bucket.ErrUnavailable} })
	require.NoError(t, c.ProduceSync(n.ctx, kgo.StringRecord("hot")).FirstErr())
	hot := n.consume(1, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(1)}}))
	require.Equal(t, "hot", string(hot[0].Value))
	req := fetchReq(n.client.Image().TopicByName("t"), at{0, 0})
	req.SetVersion(12)
	resp, err := req.RequestWith(n.ctx, c)
	require.NoError(t, err)
	p := fetched(resp)[0]
	require.Empty(t, p.RecordBatches)
	require.Contains(t, []int16{0, kerr.KafkaStorageError.Code}, p.ErrorCode)
	n.bucket.SetPlan(nil)
	require.Len(t, n.consume(2, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 2)
}

func TestRealIdempotence(t *testing.T) {
	n := startNode(t)
	c := n.kgo()
	_, err := kadm.NewClient(c).CreateTopic(n.ctx, 1, 1, nil, "t")
	require.NoError(t, err)
	topic := n.client.Image().TopicByName("t")
	init := kmsg.NewPtrInitProducerIDRequest()
	init.ProducerID, init.ProducerEpoch = -1, -1
	id, err := init.RequestWith(n.ctx, c)
	require.NoError(t, err)
	send := func(seq int32, epoch int16, values ...string) *kmsg.ProduceResponseTopicPartition {
		req := produceReq(topic, 0, -1, idempotent(id.ProducerID, epoch, seq, values...))
		req.SetVersion(11)
		resp, err := req.RequestWith(n.ctx, c)
		require.NoError(t, err)
		return onePart(resp)
	}
	for i := range int32(10) {
		require.EqualValues(t, 2*i, send(2*i, 0, "a", "b").BaseOffset)
	}
	require.EqualValues(t, 12, send(12, 0, "a", "b").BaseOffset, "one of the last five: its first offset")
	require.Equal(t, kerr.DuplicateSequenceNumber.Code, send(2, 0, "a", "b").ErrorCode)
	require.Equal(t, kerr.OutOfOrderSequenceNumber.Code, send(30, 0, "a").ErrorCode)
	require.EqualValues(t, 20, send(0, 1, "a").BaseOffset)
	require.Equal(t, kerr.InvalidProducerEpoch.Code, send(20, 0, "a").ErrorCode)
	require.EqualValues(t, 21, n.part("t", 0).Offsets().Durable)
}

func TestRealTopicLife(t *testing.T) {
	n := startNode(t)
	c := n.kgo()
	adm := kadm.NewClient(c)
	for range 3 {
		_, err := adm.CreateTopic(n.ctx, 3, 1, map[string]*string{"message.timestamp.type": kmsg.StringPtr("LogAppendTime")}, "t")
		require.NoError(t, err)
		r := kgo.StringRecord("x")
		r.Topic, r.Timestamp = "t", time.UnixMilli(5)
		require.NoError(t, c.ProduceSync(n.ctx, r).FirstErr())
		got := n.consume(1, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		require.Zero(t, got[0].Offset)
		require.Greater(t, got[0].Timestamp.UnixMilli(), int64(5))
		require.EqualValues(t, 1, got[0].Attrs.TimestampType())
		up, err := adm.UpdatePartitions(n.ctx, 5, "t")
		require.NoError(t, err)
		require.NoError(t, up.Error())
		dirs, err := adm.DescribeAllLogDirs(n.ctx, nil)
		require.NoError(t, err)
		require.Len(t, dirs, 1)
		del, err := adm.DeleteTopics(n.ctx, "t")
		require.NoError(t, err)
		require.NoError(t, del.Error())
		c.PurgeTopicsFromClient("t")
	}
	var produced int64
	n.counted.APIs(func(s APIStats) {
		if s.Name == "Produce" {
			produced = s.Requests
		}
	})
	require.EqualValues(t, 3, produced)
}

// TestRealMany: many producers and consumers at once, everything arrives once and in order.
func TestRealMany(t *testing.T) {
	n := startNode(t)
	const producers, each, parts = 6, 400, 4
	adm := kadm.NewClient(n.kgo())
	_, err := adm.CreateTopic(n.ctx, parts, 1, map[string]*string{"tierbroker.durability": kmsg.StringPtr("async")}, "t")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			c := n.kgo(kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(64))
			for i := range each {
				c.Produce(n.ctx, &kgo.Record{Partition: int32(p % parts), Key: fmt.Append(nil, p), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("produce: %v", err)
					}
				})
			}
			if err := c.Flush(n.ctx); err != nil {
				t.Errorf("flush: %v", err)
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			next := map[string]int{}
			for _, r := range n.consume(producers*each, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond)) {
				if got := string(r.Value); got != fmt.Sprint(next[string(r.Key)]) {
					t.Errorf("producer %s: %s, want %d", r.Key, got, next[string(r.Key)])
				}
				next[string(r.Key)]++
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool {
		for _, f := range n.set.Log().Files() {
			if f.Refs > 0 {
				return false
			}
		}
		return true
	}, 10*time.Second, 10*time.Millisecond, "every read gave its file back")
}
