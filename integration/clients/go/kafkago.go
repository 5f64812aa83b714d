package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
)

// kafkaGo uses the library's older interface (Conn, its fixed versions) in mode old, and its
// newer one (Writer, Client) in mode new.
type kafkaGo struct {
	bootstrap, mode string
	client          *kafka.Client
}

func openKafkaGo(bootstrap, mode string) (client, error) {
	k := &kafkaGo{bootstrap: bootstrap, mode: mode, client: &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: patience}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := k.client.Metadata(ctx, &kafka.MetadataRequest{})
	return k, err
}

func (k *kafkaGo) close() {}

// conn calls f with a connection to the partition's leader.
func (k *kafkaGo) conn(topic string, f func(*kafka.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := kafka.DialLeader(ctx, "tcp", k.bootstrap, topic, partition)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return f(c)
}

// controller calls f with a connection to the controller.
func (k *kafkaGo) controller(f func(*kafka.Conn) error) error {
	c, err := kafka.Dial("tcp", k.bootstrap)
	if err != nil {
		return err
	}
	b, err := c.Controller()
	c.Close() //nolint:errcheck // only its answer mattered
	if err != nil {
		return err
	}
	c, err = kafka.Dial("tcp", net.JoinHostPort(b.Host, fmt.Sprint(b.Port)))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return f(c)
}

func (k *kafkaGo) create(topic string, partitions int) error {
	cfg := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	if k.mode == "old" {
		// Conn.CreateTopics takes an existing topic for success: ask first.
		if n, err := k.partitions(topic); err != nil || n > 0 {
			return fmt.Errorf("%d partitions are there already (%v)", n, err)
		}
		return k.controller(func(c *kafka.Conn) error { return c.CreateTopics(cfg) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := k.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{cfg}})
	if err != nil {
		return err
	}
	return resp.Errors[topic]
}

func (k *kafkaGo) remove(topic string) error {
	if k.mode == "old" {
		return k.controller(func(c *kafka.Conn) error { return c.DeleteTopics(topic) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := k.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return resp.Errors[topic]
}

func (k *kafkaGo) partitions(topic string) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := k.client.Metadata(ctx, &kafka.MetadataRequest{}) // all: asking for one by name may create it
	if err != nil {
		return 0, err
	}
	for _, t := range resp.Topics {
		if t.Name == topic {
			return len(t.Partitions), t.Error
		}
	}
	return 0, nil
}

var kafkaGoCodecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func (k *kafkaGo) produce(topic, codec string, rs []record) error {
	var out []kafka.Message
	for _, r := range rs {
		m := kafka.Message{Key: r.key, Value: r.value, Time: time.UnixMilli(r.time)}
		for _, h := range r.headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.key, Value: h.value})
		}
		out = append(out, m)
	}
	const step = 100
	if k.mode == "old" {
		return k.conn(topic, func(c *kafka.Conn) error {
			for ; len(out) > 0; out = out[min(step, len(out)):] {
				compression := kafkaGoCodecs[codec].Codec()
				if _, err := c.WriteCompressedMessages(compression, out[:min(step, len(out))]...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	w := &kafka.Writer{
		Addr: kafka.TCP(k.bootstrap), Topic: topic, BatchSize: step, BatchTimeout: 10 * time.Millisecond,
		RequiredAcks: kafka.RequireAll, Compression: kafkaGoCodecs[codec],
		Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return partition }),
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return w.WriteMessages(ctx, out...)
}

func (k *kafkaGo) consume(topic string, from int64, n int) ([]record, error) {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{k.bootstrap}, Topic: topic, Partition: partition, MaxWait: time.Second, MaxBytes: 10 << 20,
	})
	defer r.Close()
	if err := r.SetOffset(from); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var got []record
	for len(got) < n {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return nil, err
		}
		rec := record{offset: m.Offset, time: m.Time.UnixMilli(), key: m.Key, value: m.Value}
		for _, h := range m.Headers {
			rec.headers = append(rec.headers, header{h.Key, h.Value})
		}
		got = append(got, rec)
	}
	return got, nil
}

func (k *kafkaGo) lookup(topic string, t int64) (offset int64, err error) {
	if k.mode == "old" {
		err = k.conn(topic, func(c *kafka.Conn) error {
			switch t {
			case earliest:
				offset, err = c.ReadFirstOffset()
			case latest:
				offset, err = c.ReadLastOffset()
			default:
				offset, err = c.ReadOffset(time.UnixMilli(t))
			}
			return err
		})
		return offset, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := k.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {{Partition: partition, Timestamp: t}}},
	})
	if err != nil {
		return 0, err
	}
	p := resp.Topics[topic][0]
	switch t {
	case earliest:
		return p.FirstOffset, p.Error
	case latest:
		return p.LastOffset, p.Error
	}
	for o := range p.Offsets {
		return o, p.Error
	}
	return -1, p.Error
}
