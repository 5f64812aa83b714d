package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
)

// Metrics takes the counts of the broker. The methods are on hot paths: they must not block nor allocate. Counters
// is the implementation; the interface is here so that a test or another exporter can take its place.
type Metrics interface {
	// Produced counts one batch accepted for a topic.
	Produced(topic string, id frame.TopicID, bytes, records int)
	// Fetched counts bytes of batches handed to consumers of a topic, and how many of them came from the bucket.
	Fetched(topic string, id frame.TopicID, bytes, cold int)
	// Failed counts one answer with an error code, for a partition, topic, resource or a whole request.
	Failed(api int16, code int16)
}

// latencyBounds are the upper bounds of the latency histogram; one more bucket holds the rest. They reach from a hot
// fetch to a long poll.
var latencyBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond,
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// LatencyBounds returns the upper bounds of APIStats.Latency, without the last, unbounded bucket.
func LatencyBounds() []time.Duration { return latencyBounds[:] }

const (
	maxAPIKey  = 128 // Kafka's keys end below 100; anything above shares the last slot
	maxErrCode = 160 // likewise; codes are counted from -1
)

type apiCounters struct {
	requests, in, out, nanos atomic.Int64
	latency                  [len(latencyBounds) + 1]atomic.Int64
	errors                   [maxErrCode]atomic.Int64
}

type topicCounters struct {
	name                           string
	batches, records, in, out, far atomic.Int64
}

// Counters counts with atomics; nothing on its hot path allocates or waits for a lock that is held long.
type Counters struct {
	apis [maxAPIKey]atomic.Pointer[apiCounters]

	mu     sync.RWMutex
	topics map[frame.TopicID]*topicCounters
}

// NewCounters returns counters at zero.
func NewCounters() *Counters { return &Counters{topics: map[frame.TopicID]*topicCounters{}} }

func (c *Counters) api(key int16) *apiCounters {
	if key < 0 || key >= maxAPIKey {
		key = maxAPIKey - 1
	}
	a := c.apis[key].Load()
	if a == nil {
		c.apis[key].CompareAndSwap(nil, new(apiCounters))
		a = c.apis[key].Load()
	}
	return a
}

// Request counts one finished request. It fits kafka.Options.OnRequest.
func (c *Counters) Request(s kafka.RequestStats) {
	a := c.api(s.Key)
	a.requests.Add(1)
	a.in.Add(s.BytesIn)
	a.out.Add(s.BytesOut)
	a.nanos.Add(int64(s.Total))
	i := 0
	for i < len(latencyBounds) && s.Total > latencyBounds[i] {
		i++
	}
	a.latency[i].Add(1)
}

// Failed counts one answer with an error code.
func (c *Counters) Failed(api, code int16) {
	i := int(code) + 1
	if i < 0 || i >= maxErrCode {
		i = maxErrCode - 1
	}
	c.api(api).errors[i].Add(1)
}

func (c *Counters) topic(name string, id frame.TopicID) *topicCounters {
	c.mu.RLock()
	t := c.topics[id]
	c.mu.RUnlock()
	if t != nil {
		return t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t = c.topics[id]; t == nil {
		t = &topicCounters{name: name}
		c.topics[id] = t
	}
	return t
}

// Produced counts one accepted batch.
func (c *Counters) Produced(topic string, id frame.TopicID, bytes, records int) {
	t := c.topic(topic, id)
	t.batches.Add(1)
	t.records.Add(int64(records))
	t.in.Add(int64(bytes))
}

// Fetched counts bytes handed to consumers.
func (c *Counters) Fetched(topic string, id frame.TopicID, bytes, cold int) {
	t := c.topic(topic, id)
	t.out.Add(int64(bytes))
	if cold > 0 {
		t.far.Add(int64(cold))
	}
}

// Forget drops the counters of topics for which keep returns false: a deleted topic leaves no series behind.
func (c *Counters) Forget(keep func(frame.TopicID) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.topics {
		if !keep(id) {
			delete(c.topics, id)
		}
	}
}

// APIStats are the counts of one API since the start.
type APIStats struct {
	Key               int16
	Name              string
	Requests          int64
	BytesIn, BytesOut int64
	Total             time.Duration // sum of all requests' times
	Latency           []int64       // requests per bucket, see LatencyBounds; not cumulative
	Errors            map[int16]int64
}

// APIs calls fn for each API that was used.
func (c *Counters) APIs(fn func(APIStats)) {
	for key := range c.apis {
		a := c.apis[key].Load()
		if a == nil {
			continue
		}
		s := APIStats{
			Key: int16(key), Name: kmsg.NameForKey(int16(key)), Requests: a.requests.Load(), BytesIn: a.in.Load(), BytesOut: a.out.Load(),
			Total: time.Duration(a.nanos.Load()), Latency: make([]int64, len(a.latency)), Errors: map[int16]int64{},
		}
		for i := range a.latency {
			s.Latency[i] = a.latency[i].Load()
		}
		for i := range a.errors {
			if n := a.errors[i].Load(); n > 0 {
				s.Errors[int16(i)-1] = n
			}
		}
		fn(s)
	}
}

// TopicStats are the counts of one topic since the start.
type TopicStats struct {
	Topic             string
	Batches, Records  int64 // accepted
	BytesIn, BytesOut int64 // of batches, without protocol
	BytesCold         int64 // the part of BytesOut that was read from the bucket
}

// Topics calls fn for each topic that was written or read, in no order.
func (c *Counters) Topics(fn func(TopicStats)) {
	c.mu.RLock()
	list := make([]TopicStats, 0, len(c.topics))
	for _, t := range c.topics {
		list = append(list, TopicStats{Topic: t.name, Batches: t.batches.Load(), Records: t.records.Load(),
			BytesIn: t.in.Load(), BytesOut: t.out.Load(), BytesCold: t.far.Load()})
	}
	c.mu.RUnlock()
	for _, t := range list {
		fn(t)
	}
}
