package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func init() { Drivers[Kafka] = openKafka }

// kafka drives any broker that speaks the Kafka protocol, through franz-go.
type kafka struct {
	address string
	admin   *kadm.Client
}

func openKafka(_ context.Context, address string) (Driver, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		return nil, err
	}
	return &kafka{address: address, admin: kadm.NewClient(c)}, nil
}

func (k *kafka) Close() error {
	k.admin.Close()
	return nil
}

// mostCreated is what one request may create: Kafka's controller takes no more than 10,000 records for one, the topic's own among them.
const mostCreated = 5_000

func (k *kafka) CreateTopic(ctx context.Context, t Topic) error {
	configs := map[string]*string{}
	for name, val := range t.Configs {
		configs[name] = &val
	}
	k.admin.SetTimeoutMillis(60_000)
	if r, err := k.admin.CreateTopic(ctx, int32(min(t.Partitions, mostCreated)), 1, configs, t.Name); err != nil {
		return fmt.Errorf("create topic %s: %w (%s)", t.Name, err, r.ErrMessage)
	}
	for n := mostCreated; n < t.Partitions; {
		n = min(n+mostCreated, t.Partitions)
		r, err := k.admin.UpdatePartitions(ctx, n, t.Name)
		if err = errors.Join(err, r.Error()); err != nil {
			return fmt.Errorf("create %d partitions of %s: %w", n, t.Name, err)
		}
	}
	return k.awaitLeaders(ctx, t)
}

func (k *kafka) awaitLeaders(ctx context.Context, t Topic) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		topics, err := k.admin.ListTopics(ctx, t.Name)
		if err != nil {
			return err
		}
		led := 0
		for _, p := range topics[t.Name].Partitions {
			if p.Leader >= 0 && p.Err == nil {
				led++
			}
		}
		if led == t.Partitions {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d partitions of %s have a leader: %w", led, t.Partitions, t.Name, context.Cause(ctx))
		}
	}
}

// Defaults where options say nothing.
const (
	kafkaBatchBytes = 1_000_012 // Kafka's max.message.bytes less a little, as franz-go has it
	kafkaBuffered   = 10_000
	kafkaFetchBytes = 50 << 20
)

// kafkaRecord is a record that is used again and again: one allocation for each that is under way, none for each that is sent.
type kafkaRecord struct {
	record  kgo.Record
	done    func(error)
	promise func(*kgo.Record, error)
}

type kafkaProducer struct {
	client *kgo.Client
	topic  string
	spare  sync.Pool
}

func (k *kafka) Producer(t Topic, o ProducerOptions) (Producer, error) {
	buffered, batch := kafkaBuffered, kafkaBatchBytes
	if o.Buffered > 0 {
		buffered = o.Buffered
	}
	if o.BatchBytes > 0 {
		batch = o.BatchBytes
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(k.address), kgo.DefaultProduceTopic(t.Name), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(o.Linger), kgo.ProducerBatchMaxBytes(int32(batch)),
		kgo.MaxBufferedRecords(buffered),
	}
	if o.Acks == 1 {
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	p := &kafkaProducer{client: c, topic: t.Name}
	p.spare.New = func() any {
		r := &kafkaRecord{}
		r.promise = func(_ *kgo.Record, err error) {
			done := r.done
			r.done = nil
			p.spare.Put(r)
			done(err)
		}
		return r
	}
	return p, nil
}

func (p *kafkaProducer) Send(ctx context.Context, partition int32, value []byte, done func(error)) {
	r := p.spare.Get().(*kafkaRecord)
	r.record, r.done = kgo.Record{Topic: p.topic, Partition: partition, Value: value}, done
	p.client.Produce(ctx, &r.record, r.promise)
}

func (p *kafkaProducer) Flush(ctx context.Context) error { return p.client.Flush(ctx) }

func (p *kafkaProducer) Close() error {
	p.client.Close()
	return nil
}

type kafkaConsumer struct{ client *kgo.Client }

func (k *kafka) Consumer(t Topic, o ConsumerOptions) (Consumer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	from := map[int32]kgo.Offset{}
	var ends kadm.ListedOffsets
	if !o.FromStart {
		var err error
		if ends, err = k.admin.ListEndOffsets(ctx, t.Name); err != nil {
			return nil, err
		}
	}
	for _, p := range o.Partitions {
		from[p] = kgo.NewOffset().AtStart()
		if o.FromStart {
			continue
		}
		end, ok := ends.Lookup(t.Name, p)
		if !ok || end.Err != nil {
			return nil, fmt.Errorf("end of partition %d: %w", p, errors.Join(errors.New("not known"), end.Err))
		}
		from[p] = kgo.NewOffset().At(end.Offset)
	}
	fetch := kafkaFetchBytes
	if o.FetchBytes > 0 {
		fetch = o.FetchBytes
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(k.address), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.Name: from}),
		kgo.FetchMaxBytes(int32(fetch)), kgo.FetchMaxPartitionBytes(int32(fetch)), kgo.BrokerMaxReadBytes(int32(fetch)+64<<20))
	if err != nil {
		return nil, err
	}
	return &kafkaConsumer{c}, nil
}

func (c *kafkaConsumer) Poll(ctx context.Context, each func(partition int32, offset int64, value []byte)) (n int, err error) {
	fs := c.client.PollFetches(ctx)
	if err := fs.Err(); err != nil {
		return 0, err
	}
	for it := fs.RecordIter(); !it.Done(); n++ {
		r := it.Next()
		each(r.Partition, r.Offset, r.Value)
	}
	return n, nil
}

func (c *kafkaConsumer) Close() error {
	c.client.Close()
	return nil
}
