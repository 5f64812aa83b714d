package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

func init() {
	register(Scenario{Name: report.ScenarioRecovery, About: "from exec after kill -9 until every partition serves its last record and takes a new one", Short: true, Order: 70, Run: recovery})
}

// recoveryTurns is the most that are made: each writes the whole log.
const recoveryTurns = 3

// recovery has the log on the broker's disk, all of it. One GB rolls into the bucket as it is written, as usual, and stays local. Ten GB
// would be there twice, so they don't roll: what the broker has to find again is the same, or more.
func recovery(ctx context.Context, b *Bench) error {
	few := *b
	few.Turns = min(b.Turns, recoveryTurns)
	kafkas := func(s system.System) bool {
		return s.Protocol == load.Kafka && s.Durability == system.PageCache && s.Name != "kafka-tiered" && s.Name != "kfake"
	}
	run := func(bytes int64, configs map[string]string, name string) error {
		return few.Compare(ctx, Case{Scenario: report.ScenarioRecovery, Name: name, With: kafkas, Limit: heldLimit, Run: func(ctx context.Context, p *Piece) error {
			return p.recover(ctx, bytes, configs)
		}})
	}
	if err := run(1e9, nil, "1 GB of log, 16 partitions"); err != nil || b.Short {
		return err
	}
	whole := map[string]string{"segment.bytes": "1073741824"} // Kafka's default
	return run(10e9, whole, "10 GB of log, 16 partitions")
}

func (p *Piece) recover(ctx context.Context, bytes int64, configs map[string]string) error {
	const partitions = 16
	t := load.Topic{Name: "recovery", Partitions: partitions, Configs: configs}
	_, err := p.Load(ctx, load.Job{
		Topic: t, Create: true, Limit: loadLimit,
		Produce: &load.Produce{Producers: 2, Record: heldRecord, Run: stay / heldRecord, Bytes: bytes,
			Options: load.ProducerOptions{Acks: -1, Linger: 5 * time.Millisecond, BatchBytes: 1_000_000, Buffered: 16 << 10}},
	})
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	ends, err := lastOffsets(ctx, p.Running.Address, t)
	if err != nil {
		return err
	}
	if err := p.Kill(); err != nil {
		return err
	}
	began := time.Now()
	if err := p.Start(ctx); err != nil {
		return err
	}
	started := time.Since(began)
	if err := serves(ctx, p.Running.Address, t, ends); err != nil {
		return err
	}
	p.Report(Figures{Values: map[string]float64{report.Recovered: time.Since(began).Seconds(), "listens s": started.Seconds()}})
	return nil
}

// lastOffsets are those of the next record of each partition.
func lastOffsets(ctx context.Context, address string, t load.Topic) ([]int64, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	listed, err := kadm.NewClient(c).ListEndOffsets(ctx, t.Name)
	if err != nil {
		return nil, err
	}
	ends := make([]int64, t.Partitions)
	for i := range ends {
		o, ok := listed.Lookup(t.Name, int32(i))
		if !ok || o.Err != nil || o.Offset == 0 {
			return nil, fmt.Errorf("end of partition %d: %w", i, errors.Join(errors.New("no records are known"), o.Err))
		}
		ends[i] = o.Offset
	}
	return ends, nil
}

// serves returns when every partition has acknowledged a new record behind all earlier ones, and has given its last one from before.
func serves(ctx context.Context, address string, t load.Topic, ends []int64) error {
	from := map[int32]kgo.Offset{}
	for i, end := range ends {
		from[int32(i)] = kgo.NewOffset().At(end - 1)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.Name: from}))
	if err != nil {
		return err
	}
	defer c.Close()
	var mu sync.Mutex
	var errs error
	for i, end := range ends {
		c.Produce(ctx, &kgo.Record{Topic: t.Name, Partition: int32(i), Value: make([]byte, heldRecord)}, func(r *kgo.Record, err error) {
			if err == nil && r.Offset < end {
				err = fmt.Errorf("partition %d: the new record got offset %d, and %d had been acknowledged", i, r.Offset, end)
			}
			mu.Lock()
			defer mu.Unlock()
			errs = errors.Join(errs, err)
		})
	}
	seen := map[int32]bool{}
	for len(seen) < len(ends) {
		fs := c.PollFetches(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := fs.Err(); err != nil {
			return err
		}
		fs.EachRecord(func(r *kgo.Record) { seen[r.Partition] = true })
	}
	if err := c.Flush(ctx); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	return errs
}
