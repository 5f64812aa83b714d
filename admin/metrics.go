package admin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// APIStats are the counts of one Kafka API since the start.
type APIStats struct {
	Key               int16
	Name              string
	Requests          int64
	BytesIn, BytesOut int64
	Total             time.Duration   // sum of all requests' times
	Latency           []int64         // requests per bucket of Traffic.Bounds, and one more for the rest
	Errors            map[int16]int64 // answers by error code
}

// TopicStats are the counts of one topic since the start.
type TopicStats struct {
	Topic             string
	Batches, Records  int64 // accepted
	BytesIn, BytesOut int64 // of batches, without protocol
	BytesCold         int64 // the part of BytesOut that was read from the bucket
}

// Traffic gives what the Kafka side has counted.
type Traffic interface {
	// Bounds are the upper bounds of APIStats.Latency, rising.
	Bounds() []time.Duration
	APIs(fn func(APIStats))
	Topics(fn func(TopicStats))
}

// Metrics counts what is told to it and gathers the rest when asked.
type Metrics struct {
	registry  *prometheus.Registry
	startedAt int64 // ms since 1970

	api     atomic.Pointer[api]
	traffic atomic.Pointer[Traffic]

	bucketSeconds *prometheus.HistogramVec
	faults        *prometheus.CounterVec

	mu     sync.RWMutex
	calls  map[callKey]*callCount  // by class, kind and verb
	topics map[topicKey]*callCount // by topic, kind and verb
}

type callKey struct{ class, kind, verb string }

type topicKey struct{ topic, kind, verb string }

type callCount struct{ requests, errors, bytes atomic.Int64 }

// NewMetrics returns metrics at zero. now is the start of the process, in
// milliseconds.
func NewMetrics(version string, now int64) *Metrics {
	m := &Metrics{
		registry:  prometheus.NewRegistry(),
		startedAt: now,
		calls:     make(map[callKey]*callCount),
		topics:    make(map[topicKey]*callCount),
		bucketSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tierbroker_bucket_request_seconds", Help: "Time of a bucket request, by class of work and verb.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"class", "verb"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tierbroker_kafka_connection_faults_total", Help: "Kafka connections closed for a fault, by kind of fault.",
		}, []string{"kind"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tierbroker_build_info", Help: "Always 1; the label tells the version.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(build, m.bucketSeconds, m.faults, gatherer{m},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// SetTraffic tells where the Kafka side's counts are.
func (m *Metrics) SetTraffic(t Traffic) { m.traffic.Store(&t) }

// bind lets gauges read what the API reads.
func (m *Metrics) bind(a *api) { m.api.Store(a) }

// ConnectionFault counts a Kafka connection closed for a fault of the given kind.
func (m *Metrics) ConnectionFault(kind string) { m.faults.WithLabelValues(kind).Inc() }

// ObserveBucket counts one bucket request; it fits bucket.NewMeter. bytes are
// those of the body, in either direction.
func (m *Metrics) ObserveBucket(op bucket.Op, verb string, bytes int64, d time.Duration, err error) {
	m.bucketSeconds.WithLabelValues(op.Class, verb).Observe(d.Seconds())
	countCall(&m.mu, m.calls, callKey{op.Class, op.Kind, verb}, bytes, err)
	if op.Topic != "" {
		countCall(&m.mu, m.topics, topicKey{op.Topic, op.Kind, verb}, bytes, err)
	}
}

func countCall[K comparable](mu *sync.RWMutex, m map[K]*callCount, key K, bytes int64, err error) {
	mu.RLock()
	c := m[key]
	mu.RUnlock()
	if c == nil {
		mu.Lock()
		if c = m[key]; c == nil {
			c = new(callCount)
			m[key] = c
		}
		mu.Unlock()
	}
	c.requests.Add(1)
	c.bytes.Add(bytes)
	// A lost compare-and-swap and a missing key are answers.
	if err != nil && !errors.Is(err, bucket.ErrPrecondition) && !errors.Is(err, bucket.ErrNotFound) {
		c.errors.Add(1)
	}
}

// BucketCall sums the bucket requests of one class, kind and verb.
type BucketCall struct {
	Class    string `json:"class"`
	Kind     string `json:"kind"`
	Verb     string `json:"verb"`
	Requests int64  `json:"requests"`
	Errors   int64  `json:"errors"`
	Bytes    int64  `json:"bytes"`
}

func (m *Metrics) bucketCalls() []BucketCall {
	m.mu.RLock()
	list := make([]BucketCall, 0, len(m.calls))
	for k, c := range m.calls {
		list = append(list, BucketCall{k.class, k.kind, k.verb, c.requests.Load(), c.errors.Load(), c.bytes.Load()})
	}
	m.mu.RUnlock()
	slices.SortFunc(list, func(a, b BucketCall) int {
		return cmp.Or(strings.Compare(a.Class, b.Class), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Verb, b.Verb))
	})
	return list
}

// APITraffic sums the requests of one Kafka API.
type APITraffic struct {
	API      string `json:"api"`
	Requests int64  `json:"requests"`
	Errors   int64  `json:"errors"`
	BytesIn  int64  `json:"bytes_in"`
	BytesOut int64  `json:"bytes_out"`
}

func (m *Metrics) apiTraffic() []APITraffic {
	list := []APITraffic{}
	t := m.traffic.Load()
	if t == nil {
		return list
	}
	(*t).APIs(func(s APIStats) {
		row := APITraffic{API: s.Name, Requests: s.Requests, BytesIn: s.BytesIn, BytesOut: s.BytesOut}
		for _, n := range s.Errors {
			row.Errors += n
		}
		list = append(list, row)
	})
	slices.SortFunc(list, func(a, b APITraffic) int { return strings.Compare(a.API, b.API) })
	return list
}

// handler serves the registry.
func (m *Metrics) handler(onFault func(error)) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            promLog(onFault),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		Timeout:             30 * time.Second,
	})
}

type promLog func(error)

// Println is what promhttp asks of a logger.
func (l promLog) Println(v ...any) { l(fmt.Errorf("admin: metrics: %s", fmt.Sprint(v...))) }
