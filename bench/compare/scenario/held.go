package scenario

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

// held is a broker whose data is kept over all turns of a scenario: filling an archive takes longer than reading it. Between
// its turns the broker is stopped, so that it neither works nor remembers.
type held struct {
	*Piece
	s3     *system.S3 // nil for who has no bucket
	topics []*filled
}

// filled is a topic in the archive.
type filled struct {
	load.Topic
	load.Total
	id string // as in keys of the bucket; "" where there is none
}

// Record and batch sizes of archives.
const (
	heldRecord = 1 << 10
	heldLimit  = 30 * time.Minute
	loadLimit  = 10 * time.Minute
)

// hold starts a broker over a new directory, with an S3 server of its own if it is ours; args are further flags of ours.
func (b *Bench) hold(ctx context.Context, scenario, suffix string, s system.System, args ...string) (h *held, err error) {
	p := &Piece{Bench: b, System: s, Case: Case{Scenario: scenario}}
	p.Place = system.Place{Dir: filepath.Join(b.Dir, scenario+"-"+s.Name+suffix), CPUs: b.BrokerCPUs}
	h = &held{Piece: p}
	if err := b.fresh(p.Place.Dir); err != nil {
		return nil, err
	}
	if isOurs(s) {
		// The server is nobody's part: it may run wherever there is time.
		if h.s3, err = system.StartS3(ctx, p.Place.Dir+".s3", nil); err != nil {
			return nil, err
		}
		p.done = h.s3.Close
		p.Place.Bucket, p.Place.Args = &h.s3.Bucket, args
	}
	if err := p.Start(ctx); err != nil {
		return nil, errors.Join(err, p.end())
	}
	return h, nil
}

func isOurs(s system.System) bool { return strings.HasPrefix(s.Name, "tierbroker") }

// fill writes bytes to a new topic and moves all of it to the archive.
func (h *held) fill(ctx context.Context, t load.Topic, bytes int64) error {
	if _, err := h.Load(ctx, load.Job{Topic: t, Create: true}); err != nil {
		return fmt.Errorf("create %s: %w", t.Name, err)
	}
	if err := h.append(ctx, t, bytes); err != nil {
		return err
	}
	f := h.topics[len(h.topics)-1]
	if !isOurs(h.System) {
		n, err := closeSegments(ctx, h.Running.Address, t)
		if err != nil {
			return fmt.Errorf("close segments of %s: %w", t.Name, err)
		}
		f.Records += n
	}
	if err := h.Running.Tier(ctx, t.Name); err != nil {
		return err
	}
	return h.identify(ctx, f)
}

// append writes bytes to a topic, as fast as it goes.
func (h *held) append(ctx context.Context, t load.Topic, bytes int64) error {
	m, err := h.Load(ctx, load.Job{
		Topic: t, Limit: loadLimit,
		Produce: &load.Produce{Producers: 1, Record: heldRecord, Run: stay / heldRecord, Bytes: bytes,
			Options: load.ProducerOptions{Acks: -1, Linger: 5 * time.Millisecond, BatchBytes: 1_000_000, Buffered: 16 << 10}},
	})
	if err != nil {
		return fmt.Errorf("fill %s: %w", t.Name, err)
	}
	h.topics = append(h.topics, &filled{Topic: t, Total: m.Produced})
	return nil
}

// identify finds a topic's id: the one in the bucket that no earlier topic has.
func (h *held) identify(ctx context.Context, f *filled) error {
	if h.s3 == nil {
		return nil
	}
	objects, err := h.objects(ctx)
	if err != nil {
		return err
	}
	for _, known := range h.topics {
		delete(objects, known.id)
	}
	for id, partitions := range objects {
		if len(partitions) == f.Partitions && f.id == "" {
			f.id = id
		}
	}
	if f.id == "" {
		return fmt.Errorf("the bucket has no objects of %d partitions of %s", f.Partitions, f.Name)
	}
	return nil
}

func (h *held) objects(ctx context.Context) (map[string]map[int32][]load.S3Object, error) {
	c, err := h.s3.Client()
	if err != nil {
		return nil, err
	}
	return load.S3Objects(ctx, c, h.s3.Name, h.s3.Log.Root)
}

// closeSegments makes Kafka close the segment that it writes, which never moves: with one more record for each partition, later than
// segment.ms. It returns how many records were written.
func closeSegments(ctx context.Context, address string, t load.Topic) (n int64, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	const age = "1"
	val := age
	answers, err := kadm.NewClient(client).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.ms", Value: &val}}, t.Name)
	for _, a := range answers {
		err = errors.Join(err, a.Err)
	}
	if err != nil {
		return 0, err
	}
	for p := range t.Partitions {
		// All segments are closed at the first append that comes late enough.
		r := &kgo.Record{Topic: t.Name, Partition: int32(p), Value: make([]byte, heldRecord), Timestamp: time.Now().Add(time.Second)}
		if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// replay reads a topic whole: each of readings takes all of it, with consumers that share the partitions.
func (h *held) replay(ctx context.Context, f *filled, readings, consumers int) (Measured, error) {
	return h.Load(ctx, load.Job{
		Topic: load.Topic{Name: f.Name, Partitions: f.Partitions}, Limit: loadLimit,
		Consume: &load.Consume{FanOut: readings, Consumers: consumers, Options: load.ConsumerOptions{FromStart: true}, Records: f.Records},
	})
}

// bare reads the objects of a topic from the bucket in ranges, as many at a time as the replay has consumers. The reader has the
// broker's processors: it does the part of the broker that can't be left out.
func (h *held) bare(ctx context.Context, f *filled, readings, consumers int) (load.Outcome, error) {
	objects, err := h.objects(ctx)
	if err != nil {
		return load.Outcome{}, err
	}
	ranges := int64(0)
	for _, list := range objects[f.id] {
		for _, o := range list {
			ranges += o.Ranges()
		}
	}
	s := h.s3
	w := load.Worker{CPUs: h.Bench.BrokerCPUs, Log: h.Place.Dir + ".bare.log"}
	return w.Do(ctx, load.Job{
		Protocol: load.S3, Address: load.S3Address(s.Endpoint, s.AccessKey, s.SecretKey, s.Region, s.Name, s.Log.Root),
		Topic: load.Topic{Name: f.id, Partitions: f.Partitions}, Limit: loadLimit,
		Consume: &load.Consume{FanOut: readings, Consumers: consumers, Options: load.ConsumerOptions{FromStart: true}, Records: ranges},
	}, func(load.Mark) {})
}

// failed reports an error of a system in a case.
func (b *Bench) failed(scenario, name, who string, turn int, err error) {
	b.Report(report.Result{Scenario: scenario, Case: name, System: who, Turn: turn, Error: err.Error()})
}
