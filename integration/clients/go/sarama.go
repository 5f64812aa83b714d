package main

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

type saramaClient struct {
	bootstrap string
	config    *sarama.Config
	client    sarama.Client
	admin     sarama.ClusterAdmin
}

func openSarama(bootstrap, mode string) (client, error) {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V0_11_0_0 // the first with record batches
	if mode == "new" {
		cfg.Version = sarama.MaxVersion
	}
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.Flush.MaxMessages = 70
	cfg.Consumer.Return.Errors = true
	c, err := sarama.NewClient([]string{bootstrap}, cfg)
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(c)
	return &saramaClient{bootstrap: bootstrap, config: cfg, client: c, admin: admin}, err
}

func (s *saramaClient) close() { s.admin.Close() } //nolint:errcheck // the suite is over

func (s *saramaClient) create(topic string, partitions int) error {
	return s.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}, false)
}

func (s *saramaClient) remove(topic string) error { return s.admin.DeleteTopic(topic) }

func (s *saramaClient) partitions(topic string) (int, error) {
	topics, err := s.admin.ListTopics() // all: asking for one by name may create it
	if err != nil {
		return 0, err
	}
	return int(topics[topic].NumPartitions), nil
}

func (s *saramaClient) produce(topic, codec string, rs []record) error {
	cfg := *s.config
	cfg.Producer.Compression = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[codec]
	p, err := sarama.NewSyncProducer([]string{s.bootstrap}, &cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	var out []*sarama.ProducerMessage
	for _, r := range rs {
		m := &sarama.ProducerMessage{Topic: topic, Partition: partition, Timestamp: time.UnixMilli(r.time)}
		if r.key != nil {
			m.Key = sarama.ByteEncoder(r.key)
		}
		if r.value != nil {
			m.Value = sarama.ByteEncoder(r.value)
		}
		for _, h := range r.headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.key), Value: h.value})
		}
		out = append(out, m)
	}
	if err := p.SendMessages(out); err != nil {
		return err
	}
	for i, m := range out {
		if m.Offset != rs[i].offset {
			return fmt.Errorf("offset %d was answered, want %d", m.Offset, rs[i].offset)
		}
	}
	return nil
}

func (s *saramaClient) consume(topic string, from int64, n int) ([]record, error) {
	c, err := sarama.NewConsumerFromClient(s.client)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	pc, err := c.ConsumePartition(topic, partition, from)
	if err != nil {
		return nil, err
	}
	defer pc.Close()
	var got []record
	for len(got) < n {
		select {
		case m := <-pc.Messages():
			r := record{offset: m.Offset, time: m.Timestamp.UnixMilli(), key: m.Key, value: m.Value}
			for _, h := range m.Headers {
				r.headers = append(r.headers, header{string(h.Key), h.Value})
			}
			got = append(got, r)
		case err := <-pc.Errors():
			return nil, err
		case <-time.After(patience):
			return nil, fmt.Errorf("nothing came after %d records", len(got))
		}
	}
	return got, nil
}

func (s *saramaClient) lookup(topic string, t int64) (int64, error) {
	return s.client.GetOffset(topic, partition, t)
}
