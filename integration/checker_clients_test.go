package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// crowd are the clients of a checker: they go on until each kind of them is told to stop, and tell the history.
type crowd struct {
	m     *mesh
	h     *history
	slots []slot
	pace  time.Duration // between two records of one producer

	writing, reading     context.Context
	stopWriting, stopAll context.CancelFunc
	writers, readers     sync.WaitGroup
	unacked              atomic.Int64
	grouped              string     // topic of the group
	onAck                func(slot) // told of each acknowledgement; may be nil
}

func newCrowd(m *mesh, h *history, slots []slot, pace time.Duration) *crowd {
	c := &crowd{m: m, h: h, slots: slots, pace: pace}
	c.reading, c.stopAll = context.WithCancel(m.t.Context())
	c.writing, c.stopWriting = context.WithCancel(c.reading)
	return c
}

// patient are a client's settings that notice soon when a broker says nothing any more.
func patient() []kgo.Opt {
	return []kgo.Opt{kgo.RequestTimeoutOverhead(3 * time.Second), kgo.ProduceRequestTimeout(5 * time.Second), kgo.RetryTimeout(10 * time.Second),
		kgo.ConnIdleTimeout(30 * time.Second), kgo.RequestRetries(1 << 20), kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.AlwaysRetryEOF()} // a broker that is killed before its first answer looks to franz-go like one that wants SASL
}

// produce writes to all partitions by turns until writing ends. The client has five requests in flight per broker, as idempotent ones have.
func (c *crowd) produce(name string, seed uint64) {
	lost := kgo.ProducerOnDataLossDetected(func(topic string, p int32) { c.h.fault("producer says loss", "%s of %s-%d", name, topic, p) })
	cl := c.m.client(append(patient(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(2*time.Millisecond), kgo.ClientID(name),
		kgo.MaxBufferedRecords(20_000), kgo.StopProducerOnDataLossDetected(), kgo.RecordRetries(1<<30), lost)...)
	rnd := rand.New(rand.NewPCG(seed, 7))
	c.writers.Go(func() {
		seqs := make([]int, len(c.slots))
		tick := time.NewTicker(c.pace)
		defer tick.Stop()
		for i := 0; c.writing.Err() == nil; i++ {
			k := i % len(c.slots)
			s := c.slots[k]
			size := 60 + rnd.IntN(200)
			if rnd.IntN(50) == 0 {
				size = 20_000
			}
			value := string(randomText(rnd, fmt.Sprintf("%s/%s %d ", name, s, seqs[k]), size))
			seqs[k]++
			c.unacked.Add(1)
			cl.Produce(c.reading, &kgo.Record{Topic: s.topic, Partition: s.partition, Value: []byte(value)}, func(r *kgo.Record, err error) {
				c.unacked.Add(-1)
				if err != nil {
					if c.reading.Err() == nil {
						c.h.fault("produce failed", "%s to %s: %v", name, s, err)
					}
					return
				}
				c.h.acknowledged(name, s, r.Offset, value)
				if c.onAck != nil {
					c.onAck(s)
				}
			})
			<-tick.C
		}
	})
}

// follow reads all partitions until reading ends: forever on, or again and again from the start.
func (c *crowd) follow(name string, again time.Duration) {
	c.readers.Go(func() {
		for c.reading.Err() == nil {
			ctx, cancel := c.reading, context.CancelFunc(func() {})
			if again > 0 {
				ctx, cancel = context.WithTimeout(c.reading, again)
			}
			c.readOn(ctx, name)
			cancel()
		}
	})
}

// readOn reads all partitions from their start until ctx ends.
func (c *crowd) readOn(ctx context.Context, name string) {
	from := map[string]map[int32]kgo.Offset{}
	for _, s := range c.slots {
		if from[s.topic] == nil {
			from[s.topic] = map[int32]kgo.Offset{}
		}
		from[s.topic][s.partition] = kgo.NewOffset().AtStart()
	}
	cl, err := kgo.NewClient(append(patient(), kgo.SeedBrokers(c.m.seeds()...), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(2*time.Second),
		kgo.ConsumePartitions(from), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ClientID(name),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }))...)
	if err != nil {
		c.h.fault("client", "%v", err)
		return
	}
	defer cl.Close()
	v := &view{c: c, name: name, next: map[slot]int64{}, high: map[slot]int64{}, start: map[slot]int64{}}
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetches.EachError(func(topic string, p int32, err error) { v.failed(slot{topic, p}, err) })
		fetches.EachPartition(func(p kgo.FetchTopicPartition) { v.take(slot{p.Topic, p.Partition}, &p.FetchPartition) })
	}
}

// view is what one consumer has been shown.
type view struct {
	c                 *crowd
	name              string
	next, high, start map[slot]int64
}

func (v *view) failed(s slot, err error) {
	var loss *kgo.ErrDataLoss
	if errors.As(err, &loss) {
		_, asked := v.c.h.starts(s)
		if loss.ResetTo > loss.ConsumedTo || loss.ConsumedTo > asked {
			v.c.h.fault("consumer says loss", "%s of %s: %v", v.name, s, err)
		}
		return
	}
	var ke *kerr.Error
	if errors.As(err, &ke) && !ke.Retriable && ke != kerr.OffsetOutOfRange {
		v.c.h.fault("fetch failed", "%s of %s: %v", v.name, s, err)
	}
}

func (v *view) take(s slot, p *kgo.FetchPartition) {
	if p.Err != nil {
		return
	}
	if p.HighWatermark < v.high[s] {
		v.c.h.fault("high watermark went back", "%s of %s: %d after %d", v.name, s, p.HighWatermark, v.high[s])
	}
	if p.LogStartOffset >= 0 && p.LogStartOffset < v.start[s] {
		v.c.h.fault("start went back", "%s of %s: %d after %d", v.name, s, p.LogStartOffset, v.start[s])
	}
	v.high[s], v.start[s] = max(v.high[s], p.HighWatermark), max(v.start[s], p.LogStartOffset)
	for _, r := range p.Records {
		next, seen := v.next[s]
		_, asked := v.c.h.starts(s)
		if seen && r.Offset != next && (r.Offset < next || r.Offset > asked) {
			v.c.h.fault("consumer jumped", "%s of %s: %d after %d", v.name, s, r.Offset, next-1)
		}
		if !seen && r.Offset > asked {
			v.c.h.fault("consumer jumped", "%s of %s: begins at %d", v.name, s, r.Offset)
		}
		v.next[s] = r.Offset + 1
		v.c.h.told(v.name, s, r.Offset, string(r.Value))
	}
}

// join reads one topic as a member of the group, and commits what it has read.
func (c *crowd) join(name, topic string) {
	c.grouped = topic
	cl := c.m.client(append(patient(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ClientID(name),
		kgo.DisableAutoCommit(), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond), kgo.BlockRebalanceOnPoll())...)
	c.readers.Go(func() {
		for c.reading.Err() == nil {
			fetches := cl.PollFetches(c.reading)
			ends := map[slot]int64{}
			fetches.EachRecord(func(r *kgo.Record) {
				s := slot{r.Topic, r.Partition}
				c.h.told(name, s, r.Offset, string(r.Value))
				c.h.delivered(s, r.Offset)
				ends[s] = max(ends[s], r.Offset+1)
			})
			ctx, cancel := context.WithTimeout(c.reading, 5*time.Second)
			if err := cl.CommitRecords(ctx, fetches.Records()...); err == nil {
				for s, o := range ends {
					c.h.committed(s, o)
				}
			}
			cancel()
			cl.AllowRebalance()
		}
	})
}

// watch asks for the group's positions until reading ends.
func (c *crowd) watch() {
	adm := kadm.NewClient(c.m.client(patient()...))
	c.readers.Go(func() {
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for c.reading.Err() == nil {
			c.positions(adm)
			<-tick.C
		}
	})
}

// positions asks once; false: there was no answer, or not for every partition.
func (c *crowd) positions(adm *kadm.Client) bool {
	ctx, cancel := context.WithTimeout(c.reading, 10*time.Second)
	defer cancel()
	least := c.h.confirmedCommits()
	got, err := adm.FetchOffsets(ctx, "g")
	if err != nil || got.Error() != nil {
		return false
	}
	for s, o := range least {
		if o == 0 {
			continue // nothing is confirmed yet
		}
		r, ok := got.Lookup(s.topic, s.partition)
		if !ok {
			r.At = -1
		}
		if ok && r.Err != nil {
			return false
		}
		c.h.position(s, r.At, o)
	}
	return true
}
