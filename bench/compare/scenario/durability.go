package scenario

import (
	"context"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

func init() {
	register(Scenario{Name: "durability", About: "what tierbroker's durabilities cost each other: page cache, fsync, bucket", Order: 15, Run: durability})
}

// durabilityRate is what producers send where it is about the time until an acknowledgement, records of 1 KiB a second.
const durabilityRate = 5 << 10

// durability compares what is not equal: what an acknowledgement is worth, against what it costs. All of them roll into an S3 server.
func durability(ctx context.Context, b *Bench) error {
	over := func(name string, rate float64) Case {
		return Case{
			Scenario: "durability", Name: name, With: isOurs, Place: overS3,
			Run: func(ctx context.Context, p *Piece) error { return durable(ctx, p, rate) },
		}
	}
	if err := b.Compare(ctx, over("closed loop, 1 KiB, 16 partitions", 0)); err != nil {
		return err
	}
	return b.Compare(ctx, over("5 MiB/s, 1 KiB, 16 partitions", durabilityRate))
}

func durable(ctx context.Context, p *Piece, rate float64) error {
	m, err := p.Load(ctx, load.Job{
		Topic: load.Topic{Name: "bench", Partitions: 16}, Create: true,
		Produce: &load.Produce{
			Producers: 2, Record: heldRecord, Rate: rate, Run: stay / heldRecord,
			Options: load.ProducerOptions{Acks: -1, Linger: 5 * time.Millisecond, BatchBytes: 1_000_000, Buffered: 16 << 10},
		},
		Warm: p.Bench.Warm, Run: p.Bench.Run,
	})
	if err != nil {
		return err
	}
	f := m.figures(m.Produced)
	err = f.latency(m.Ack)
	if rate == 0 {
		f.Latency = nil // a closed loop's times say how much it buffers
	}
	p.Report(f)
	return err
}

// overS3 gives a broker of ours a bucket on an S3 server of its own, which may run anywhere.
func overS3(ctx context.Context, p *Piece) (done func() error, err error) {
	s3, err := system.StartS3(ctx, p.Place.Dir+".s3", nil)
	if err != nil {
		return nil, err
	}
	p.Place.Bucket = &s3.Bucket
	return s3.Close, nil
}
