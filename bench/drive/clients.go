package drive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/bench/raw"
)

// workers makes the clients of a phase.
func (o *Options) workers(phase, addr string) ([]worker, error) {
	kinds := map[string]func(string, int) worker{
		"produce raw": o.rawProducer, "consume raw": o.rawConsumer, "produce kgo": o.kgoProducer, "consume kgo": o.kgoConsumer,
	}
	kind := kinds[phase+" "+o.Client]
	switch {
	case kind == nil:
		return nil, fmt.Errorf("client %q: raw or kgo", o.Client)
	case o.Clients < 1 || o.Partitions < 1 || o.PerRequest < 1 || o.Inflight < 1 || o.Record < 0:
		return nil, errors.New("a number is too small")
	case o.Acks != -1 && o.Acks != 1:
		return nil, fmt.Errorf("acks %d: -1 or 1", o.Acks)
	}
	var list []worker
	for i := range o.Clients {
		list = append(list, kind(addr, i))
	}
	return list, nil
}

// share lists the partitions of one client: each has its own as far as they reach.
func (o *Options) share(i int) []int32 {
	var list []int32
	for p := i % o.Partitions; p < o.Partitions; p += o.Clients {
		list = append(list, int32(p))
	}
	return list
}

func (o *Options) rawProducer(addr string, i int) worker {
	return func(ctx context.Context, n *counts) error {
		b := raw.Batch(o.Batch, o.Record, time.Now().UnixMilli())
		h, err := batch.ParseHeader(b)
		if err != nil {
			return err
		}
		var reqs []*raw.Produce
		for parts := o.share(i); len(parts) > 0; {
			k := min(o.PerRequest, len(parts))
			reqs = append(reqs, raw.NewProduce(o.Topic, parts[:k], b, int16(o.Acks)))
			parts = parts[k:]
		}
		c, err := raw.Dial(ctx, addr)
		if err != nil {
			return err
		}
		return errors.Join(raw.Pump(ctx, c, reqs, o.Inflight, func(p *raw.Produce) {
			n.bytes.Add(int64(p.Bytes()))
			n.records.Add(int64(p.Bytes() / len(b) * int(h.RecordCount)))
		}), c.Close())
	}
}

func (o *Options) rawConsumer(addr string, i int) worker {
	return func(ctx context.Context, n *counts) error {
		c, err := raw.Dial(ctx, addr)
		if err != nil {
			return err
		}
		parts := o.share(i)
		offsets := make([]int64, len(parts))
		for k := 0; ctx.Err() == nil; k = (k + 1) % len(parts) {
			next, bytes, err := c.Fetch(o.Topic, parts[k], offsets[k], int32(o.FetchBytes), 0, 0)
			if err != nil {
				return errors.Join(err, c.Close())
			}
			n.bytes.Add(int64(bytes))
			n.records.Add(next - offsets[k])
			offsets[k] = next
			if bytes == 0 {
				offsets[k] = 0
			}
		}
		return c.Close()
	}
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (o *Options) kgoProducer(addr string, _ int) worker {
	return func(ctx context.Context, n *counts) error {
		codec, ok := codecs[o.Codec]
		if !ok {
			return fmt.Errorf("codec %q", o.Codec)
		}
		opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(o.Topic), kgo.ProducerLinger(5 * time.Millisecond),
			kgo.ProducerBatchMaxBytes(int32(o.Batch)), kgo.ProducerBatchCompression(codec), kgo.MaxBufferedRecords(20_000)}
		if o.Acks == 1 {
			opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
		}
		c, err := kgo.NewClient(opts...)
		if err != nil {
			return err
		}
		defer c.Close()
		failed := make(chan error, 1)
		value := make([]byte, o.Record)
		for ctx.Err() == nil {
			c.Produce(ctx, &kgo.Record{Value: value}, func(r *kgo.Record, err error) {
				if err == nil {
					n.records.Add(1)
					n.bytes.Add(int64(len(r.Value)))
					return
				}
				select {
				case failed <- err:
				default:
				}
			})
			select {
			case err := <-failed:
				return err
			default:
			}
		}
		return nil
	}
}

func (o *Options) kgoConsumer(addr string, i int) worker {
	return func(ctx context.Context, n *counts) error {
		from := map[string]map[int32]kgo.Offset{o.Topic: {}}
		for _, p := range o.share(i) {
			from[o.Topic][p] = kgo.NewOffset().AtStart()
		}
		for ctx.Err() == nil {
			if err := o.readThrough(ctx, addr, from, n); err != nil {
				return err
			}
		}
		return nil
	}
}

// readThrough consumes until there is nothing more.
func (o *Options) readThrough(ctx context.Context, addr string, from map[string]map[int32]kgo.Offset, n *counts) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(from), kgo.FetchMaxBytes(int32(4*o.FetchBytes)),
		kgo.FetchMaxPartitionBytes(int32(o.FetchBytes)), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		idle, cancel := context.WithTimeout(ctx, time.Second)
		fs := c.PollFetches(idle)
		cancel()
		got := false
		fs.EachRecord(func(r *kgo.Record) {
			got = true
			n.records.Add(1)
			n.bytes.Add(int64(len(r.Value)))
		})
		for _, e := range fs.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) && ctx.Err() == nil {
				return e.Err
			}
		}
		if !got {
			return nil
		}
	}
}
