package admin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
)

// gatherer reads counters and gauges at the moment Prometheus asks.
type gatherer struct{ m *Metrics }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("tierbroker_"+name, help, labels, nil)
}

var (
	descRequests     = desc("kafka_requests_total", "Kafka requests answered, by API.", "api")
	descRequestBytes = desc("kafka_request_bytes_total", "Bytes of Kafka requests, by API.", "api")
	descResponse     = desc("kafka_response_bytes_total", "Bytes of Kafka responses, by API.", "api")
	descErrors       = desc("kafka_errors_total", "Error codes in Kafka responses, by API and code.", "api", "code")
	descSeconds      = desc("kafka_request_seconds", "Time from a Kafka request being read to its response being written, long polls included.", "api")
	descConnections  = desc("kafka_connections", "Open Kafka connections.")

	descTopicIn      = desc("topic_bytes_in_total", "Bytes of batches accepted, by topic.", "topic")
	descTopicRecords = desc("topic_records_in_total", "Records accepted, by topic.", "topic")
	descTopicBatches = desc("topic_batches_in_total", "Batches accepted, by topic.", "topic")
	descTopicOut     = desc("topic_bytes_out_total", "Bytes of batches handed to consumers, by topic.", "topic")
	descTopicCold    = desc("topic_cold_bytes_out_total", "The part of topic_bytes_out_total that was read from the bucket.", "topic")

	descTopicLocal   = desc("topic_local_bytes", "Bytes of a topic in the local commit log.", "topic")
	descTopicArchive = desc("topic_archive_bytes", "Bytes of a topic in the bucket.", "topic")
	descTopicPending = desc("topic_pending_bytes", "Bytes of a topic that are not in the bucket yet.", "topic")
	descTopicLag     = desc("topic_roll_lag_seconds", "Age of a topic's oldest record that is not in the bucket yet.", "topic")
	descPartitions   = desc("partitions", "Partitions on this broker, by state.", "state")

	descBucketRequests = desc("bucket_requests_total", "Bucket requests, by class of work, kind of object and verb.", "class", "kind", "verb")
	descBucketErrors   = desc("bucket_errors_total", "Bucket requests that failed, likewise; lost compare-and-swaps and missing keys are answers and don't count.", "class", "kind", "verb")
	descBucketBytes    = desc("bucket_bytes_total", "Bytes of bucket requests' bodies in either direction, likewise.", "class", "kind", "verb")
	descTopicCalls     = desc("topic_bucket_requests_total", "Bucket requests on behalf of a topic, by kind of object and verb.", "topic", "kind", "verb")
	descTopicCallBytes = desc("topic_bucket_bytes_total", "Bytes of those.", "topic", "kind", "verb")

	descLogBytes  = desc("commitlog_bytes", "Disk space of the commit log.")
	descLogFiles  = desc("commitlog_files", "Files of the commit log.")
	descLogBudget = desc("commitlog_budget_bytes", "Disk space the commit log may use; 0 when there is no budget.")
	descLogFree   = desc("commitlog_disk_free_bytes", "Free space of the commit log's file system.")
	descLogEnd    = desc("commitlog_position", "Position behind the last frame of the commit log.")

	descCacheHits      = desc("cache_hits_total", "Reads of archive chunks that were served from memory.")
	descCacheMisses    = desc("cache_misses_total", "Reads of archive chunks that went to the bucket.")
	descCacheEvictions = desc("cache_evictions_total", "Chunks dropped from memory.")
	descCacheBytes     = desc("cache_bytes", "Memory held by archive chunks.")

	descGroups       = desc("groups", "Consumer groups that this broker coordinates, by state.", "state")
	descGroupMembers = desc("group_members", "Members of those groups.")
	descGroupOffsets = desc("group_offsets", "Offsets those groups have committed.")
	descGroupLoading = desc("group_shards_loading", "Partitions of __consumer_offsets that are being loaded.")
	descRebalances   = desc("group_rebalances_total", "Rebalances that ended.")
	descGroupExpired = desc("group_offsets_expired_total", "Committed offsets that expired.")
	descGroupBad     = desc("group_bad_records_total", "Records of __consumer_offsets that could not be read.")

	descLag         = desc("group_lag_records", "Records of a topic that a group has not consumed yet; of the pairs of group and topic that are shown.", "group", "topic")
	descLagCold     = desc("group_lag_cold_records", "The part of group_lag_records that has no local copy: reading it asks the bucket.", "group", "topic")
	descLagLost     = desc("group_lost_records", "Records of a topic that were removed before a group had consumed them.", "group", "topic")
	descLagUnlisted = desc("group_lag_unlisted", "Pairs of group and topic beyond tierbroker.group.lag.max.series, or with a name that can't be shown.")
	descLagRest     = desc("group_lag_unlisted_records", "Records that those are behind, together.")
	descLagUnknown  = desc("group_lag_unknown_partitions", "Partitions with a committed offset that another broker owns; they are in none of these figures.")
	descLagAge      = desc("group_lag_age_seconds", "Age of these figures; they are made again when somebody asks and they are older than ten seconds.")

	descReady    = desc("ready", "1 when /readyz answers 200.")
	descProblems = desc("problems", "Things that /readyz reports as wrong.")
)

// Describe sends nothing: series come and go with topics, so the registry can't
// check them beforehand.
func (g gatherer) Describe(chan<- *prometheus.Desc) {}

// Collect is called for each scrape.
func (g gatherer) Collect(out chan<- prometheus.Metric) {
	e := emitter(out)
	if t := g.m.traffic.Load(); t != nil {
		g.traffic(e, *t)
	}
	a := g.m.api.Load()
	if a == nil {
		g.bucket(e, nil)
		return
	}
	g.cluster(e, a)
	topics := a.sumTopics()
	g.bucket(e, topics)
	if a.Partitions == nil {
		return
	}
	states := map[string]int{}
	for _, t := range topics {
		if t.Known == 0 {
			continue
		}
		e.gauge(descTopicLocal, float64(t.LocalBytes), t.Name)
		e.gauge(descTopicArchive, float64(t.ArchiveBytes), t.Name)
		e.gauge(descTopicPending, float64(t.PendingBytes), t.Name)
		e.gauge(descTopicLag, float64(t.RollLagMs)/1000, t.Name)
		for state, n := range t.States {
			states[state] += n
		}
	}
	for state, n := range states {
		e.gauge(descPartitions, float64(n), state)
	}
	g.local(e, a.Local)
	g.lag(e, a)
}

func (g gatherer) traffic(e emitter, t Traffic) {
	bounds := t.Bounds()
	t.APIs(func(s APIStats) {
		e.counter(descRequests, s.Requests, s.Name)
		e.counter(descRequestBytes, s.BytesIn, s.Name)
		e.counter(descResponse, s.BytesOut, s.Name)
		for code, n := range s.Errors {
			e.counter(descErrors, n, s.Name, codeName(code))
		}
		e.histogram(descSeconds, bounds, s)
	})
	t.Topics(func(s TopicStats) {
		e.counter(descTopicIn, s.BytesIn, s.Topic)
		e.counter(descTopicRecords, s.Records, s.Topic)
		e.counter(descTopicBatches, s.Batches, s.Topic)
		e.counter(descTopicOut, s.BytesOut, s.Topic)
		e.counter(descTopicCold, s.BytesCold, s.Topic)
	})
}

func (g gatherer) bucket(e emitter, topics []*Topic) {
	for _, c := range g.m.bucketCalls() {
		e.counter(descBucketRequests, c.Requests, c.Class, c.Kind, c.Verb)
		e.counter(descBucketErrors, c.Errors, c.Class, c.Kind, c.Verb)
		e.counter(descBucketBytes, c.Bytes, c.Class, c.Kind, c.Verb)
	}
	exists := make(map[string]bool, len(topics))
	for _, t := range topics {
		exists[t.Name] = true
	}
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	for k, c := range g.m.topics {
		if !exists[k.topic] {
			delete(g.m.topics, k) // deleted, or swept after its deletion
			continue
		}
		e.counter(descTopicCalls, c.requests.Load(), k.topic, k.kind, k.verb)
		e.counter(descTopicCallBytes, c.bytes.Load(), k.topic, k.kind, k.verb)
	}
}

func (g gatherer) local(e emitter, l Local) {
	files, disk, cached := l.Files(), l.Disk(), l.Cache()
	e.gauge(descLogFiles, float64(len(files)))
	e.gauge(descLogBytes, float64(disk.Used))
	e.gauge(descLogBudget, float64(disk.Budget))
	e.gauge(descLogFree, float64(disk.Free))
	if len(files) > 0 {
		e.gauge(descLogEnd, float64(files[len(files)-1].End))
	}
	e.counter(descCacheHits, cached.Hits)
	e.counter(descCacheMisses, cached.Misses)
	e.counter(descCacheEvictions, cached.Evictions)
	e.gauge(descCacheBytes, float64(cached.Bytes))
	e.gauge(descConnections, float64(l.Connections()))
	groups := l.Groups()
	for state, n := range groups.Groups {
		e.gauge(descGroups, float64(n), state)
	}
	e.gauge(descGroupMembers, float64(groups.Members))
	e.gauge(descGroupOffsets, float64(groups.Offsets))
	e.gauge(descGroupLoading, float64(groups.Loading))
	e.counter(descRebalances, int64(groups.Rebalances))
	e.counter(descGroupExpired, int64(groups.Expired))
	e.counter(descGroupBad, int64(groups.BadRecords))
}

func (g gatherer) lag(e emitter, a *api) {
	lag := a.Local.GroupLag()
	if lag.At == 0 {
		return
	}
	for i := range lag.Pairs {
		p := &lag.Pairs[i]
		e.gauge(descLag, float64(p.Records), p.Group, p.Topic)
		e.gauge(descLagCold, float64(p.Cold), p.Group, p.Topic)
		e.gauge(descLagLost, float64(p.Lost), p.Group, p.Topic)
	}
	e.gauge(descLagUnlisted, float64(lag.Unlisted))
	e.gauge(descLagRest, float64(lag.UnlistedRecords))
	e.gauge(descLagUnknown, float64(lag.Unknown))
	e.gauge(descLagAge, float64(max(a.Now()-lag.At, 0))/1000)
}

// codeName is Kafka's name of an error code.
func codeName(code int16) string {
	if e := kerr.TypedErrorForCode(code); e != nil {
		return e.Message
	}
	return "NONE"
}

type emitter chan<- prometheus.Metric

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) counter(d *prometheus.Desc, v int64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (e emitter) seconds(d *prometheus.Desc, v time.Duration, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v.Seconds(), labels...)
}

// histogram turns counts per bucket into the cumulative ones of Prometheus.
func (e emitter) histogram(d *prometheus.Desc, bounds []time.Duration, s APIStats) {
	if len(s.Latency) != len(bounds)+1 {
		return
	}
	buckets := make(map[float64]uint64, len(bounds))
	var sum uint64
	for i, bound := range bounds {
		sum += uint64(s.Latency[i])
		buckets[bound.Seconds()] = sum
	}
	sum += uint64(s.Latency[len(bounds)])
	e <- prometheus.MustNewConstHistogram(d, sum, s.Total.Seconds(), buckets, s.Name)
}
