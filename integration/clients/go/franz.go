package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	bootstrap, mode string
	admin           *kadm.Client
	client          *kgo.Client
}

func openFranz(bootstrap, mode string) (client, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return &franz{bootstrap: bootstrap, mode: mode, client: c, admin: kadm.NewClient(c)}, c.Ping(ctx)
}

func (f *franz) close() { f.client.Close() }

func (f *franz) create(topic string, partitions int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := f.admin.CreateTopic(ctx, int32(partitions), 1, nil, topic)
	return err
}

func (f *franz) remove(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := f.admin.DeleteTopic(ctx, topic)
	return err
}

func (f *franz) partitions(topic string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topics, err := f.admin.ListTopics(ctx) // all: asking for one by name may create it
	if err != nil {
		return 0, err
	}
	return len(topics[topic].Partitions), topics[topic].Err
}

func (f *franz) produce(topic, codec string, rs []record) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[codec]), kgo.ProducerBatchMaxBytes(40_000))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const step = 100
	for len(rs) > 0 {
		n := min(step, len(rs))
		var out []*kgo.Record
		for _, r := range rs[:n] {
			kr := &kgo.Record{Topic: topic, Partition: partition, Key: r.key, Value: r.value, Timestamp: time.UnixMilli(r.time)}
			for _, h := range r.headers {
				kr.Headers = append(kr.Headers, kgo.RecordHeader{Key: h.key, Value: h.value})
			}
			out = append(out, kr)
		}
		if err := c.ProduceSync(ctx, out...).FirstErr(); err != nil {
			return err
		}
		for i, kr := range out {
			if kr.Offset != rs[i].offset {
				return fmt.Errorf("offset %d was answered, want %d", kr.Offset, rs[i].offset)
			}
		}
		rs = rs[n:]
	}
	return nil
}

func (f *franz) consume(topic string, from int64, n int) ([]record, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {partition: kgo.NewOffset().At(from)},
	}))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var got []record
	for len(got) < n {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(kr *kgo.Record) {
			r := record{offset: kr.Offset, time: kr.Timestamp.UnixMilli(), key: kr.Key, value: kr.Value}
			for _, h := range kr.Headers {
				r.headers = append(r.headers, header{h.Key, h.Value})
			}
			got = append(got, r)
		})
	}
	return got, nil
}

func (f *franz) lookup(topic string, t int64) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var listed kadm.ListedOffsets
	var err error
	switch t {
	case latest:
		listed, err = f.admin.ListEndOffsets(ctx, topic)
	case earliest:
		listed, err = f.admin.ListStartOffsets(ctx, topic)
	default:
		listed, err = f.admin.ListOffsetsAfterMilli(ctx, t, topic)
	}
	if err != nil {
		return 0, err
	}
	o, ok := listed.Lookup(topic, partition)
	if !ok {
		return 0, errors.New("no answer for the partition")
	}
	// Where there is nothing at or after the time, kadm gives the end offset with timestamp -1.
	if t >= 0 && o.Timestamp == -1 && o.Err == nil {
		return -1, nil
	}
	return o.Offset, o.Err
}
