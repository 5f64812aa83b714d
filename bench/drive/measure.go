package drive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/bench/process"
)

// counts is what the clients have done so far.
type counts struct{ records, bytes atomic.Int64 }

// worker drives the broker until its context ends, which is no error.
type worker func(ctx context.Context, n *counts) error

// Result is one phase: rates as the clients saw them, and what the broker used, of which most is for each GB of record batches.
type Result struct {
	Phase      string             `json:"phase"`
	Client     string             `json:"client"`
	Partitions int                `json:"partitions"`
	Seconds    float64            `json:"seconds"`
	MB         float64            `json:"mb_per_s"`
	Records    float64            `json:"records_per_s"`
	CPUPerGB   float64            `json:"broker_cpu_s_per_gb"`
	SysPerGB   float64            `json:"broker_kernel_cpu_s_per_gb"`
	Cores      float64            `json:"broker_cores"`
	WritePerGB float64            `json:"disk_gb_per_gb"`
	Anonymous  float64            `json:"anonymous_mib"`
	File       float64            `json:"file_mib"`
	StartUp    float64            `json:"start_up_s,omitempty"`
	PerGB      map[string]float64 `json:"bucket_requests_per_gb"`
}

func (r Result) String() string {
	var calls []string
	for verb, n := range r.PerGB {
		calls = append(calls, fmt.Sprintf("%s %.1f", verb, n))
	}
	slices.Sort(calls)
	return fmt.Sprintf("%s %s, %d partitions: %.0f MB/s, %.0f records/s; broker: %.2f CPU s/GB (%.2f in the kernel), %.2f cores, "+
		"%.2f GB to disk per GB, anonymous %.0f MiB, mapped files %.0f MiB; bucket requests per GB: %s",
		r.Phase, r.Client, r.Partitions, r.MB, r.Records, r.CPUPerGB, r.SysPerGB, r.Cores, r.WritePerGB, r.Anonymous, r.File, strings.Join(calls, ", "))
}

// EnsureTopic creates the topic and waits until every partition has a leader.
func EnsureTopic(ctx context.Context, addr string, o *Options) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	admin := kadm.NewClient(client)
	defer admin.Close()
	configs := map[string]*string{"tierbroker.durability": &o.Durability}
	if o.SegmentBytes > 0 {
		configs["segment.bytes"] = kadm.StringPtr(fmt.Sprint(o.SegmentBytes))
	}
	if _, err := admin.CreateTopic(ctx, int32(o.Partitions), 1, configs, o.Topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	for {
		topics, err := admin.ListTopics(ctx, o.Topic)
		if err != nil {
			return err
		}
		t := topics[o.Topic]
		led := 0
		for _, p := range t.Partitions {
			if p.Leader >= 0 && p.Err == nil {
				led++
			}
		}
		if led > 0 && led == len(t.Partitions) {
			o.Partitions = led
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d partitions of %s have a leader: %w", led, len(t.Partitions), o.Topic, ctx.Err())
		}
	}
}

// snapshot is the broker's account at one moment.
type snapshot struct {
	usage process.Usage
	calls process.BucketCalls
	bytes int64
	recs  int64
}

func look(ctx context.Context, b *process.Broker, n *counts) (s snapshot, err error) {
	if s.calls, err = b.BucketCalls(ctx); err != nil {
		return s, err
	}
	s.bytes, s.recs = n.bytes.Load(), n.records.Load()
	s.usage, err = b.Usage()
	return s, err
}

// Measure runs the clients of a phase and compares the broker's account at its begin and end.
func Measure(ctx context.Context, b *process.Broker, o *Options, phase string) (Result, error) {
	workers, err := o.workers(phase, b.Kafka)
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var n counts
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			if err := w(ctx, &n); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	from, to, err := o.window(ctx, b, &n, phase)
	cancel(errDone)
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, errDone) {
		return Result{}, cause
	}
	if err != nil {
		return Result{}, err
	}
	return summary(o, phase, from, to, b.StartUp), nil
}

var errDone = errors.New("the measurement is over")

// window waits for the warm-up and looks at the broker at both ends of the time that counts.
func (o *Options) window(ctx context.Context, b *process.Broker, n *counts, phase string) (from, to snapshot, err error) {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	wait(o.Warm)
	if from, err = look(ctx, b, n); err != nil {
		return from, to, err
	}
	profiled := make(chan error, 1)
	if o.Profile != "" {
		go func() { profiled <- b.Profile(ctx, o.Run, o.Profile+"."+phase) }()
	}
	wait(o.Run)
	to, err = look(ctx, b, n)
	if o.Profile != "" {
		err = errors.Join(err, <-profiled)
	}
	return from, to, err
}

func summary(o *Options, phase string, from, to snapshot, startUp time.Duration) Result {
	gb, secs := float64(to.bytes-from.bytes)/1e9, to.usage.At.Sub(from.usage.At).Seconds()
	cpu := (to.usage.CPU() - from.usage.CPU()).Seconds()
	r := Result{
		Phase: phase, Client: o.Client, Partitions: o.Partitions, Seconds: secs, MB: gb * 1000 / secs,
		Records: float64(to.recs-from.recs) / secs, CPUPerGB: cpu / gb, SysPerGB: (to.usage.Sys - from.usage.Sys).Seconds() / gb,
		Cores: cpu / secs, WritePerGB: float64(to.usage.WriteBytes-from.usage.WriteBytes) / 1e9 / gb,
		Anonymous: float64(to.usage.Anonymous) / (1 << 20), File: float64(to.usage.File) / (1 << 20),
		StartUp: startUp.Seconds(), PerGB: map[string]float64{},
	}
	for verb, n := range to.calls.Requests {
		if n -= from.calls.Requests[verb]; n > 0 {
			r.PerGB[verb] = n / gb
		}
	}
	return r
}
