package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// world is a broker as the admin server sees it.
type world struct {
	mu       sync.Mutex
	stats    map[frame.PartitionID]partition.Stats
	problems []Problem
	rolls    []frame.PartitionID
	fail     map[int32]error
}

func (w *world) Stats(yield func(partition.Stats) bool) {
	w.mu.Lock()
	list := make([]partition.Stats, 0, len(w.stats))
	for _, s := range w.stats {
		list = append(list, s)
	}
	w.mu.Unlock()
	for _, s := range list {
		if !yield(s) {
			return
		}
	}
}

func (w *world) Roll(_ context.Context, id frame.PartitionID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fail[id.Partition]; err != nil {
		return err
	}
	w.rolls = append(w.rolls, id)
	s := w.stats[id]
	s.PendingBytes, s.Offsets.Tiered = 0, s.Offsets.Durable
	w.stats[id] = s
	return nil
}

func (w *world) Evict(ctx context.Context, _ frame.PartitionID) error { return ctx.Err() }

func (w *world) Files() []LogFile {
	return []LogFile{{Base: 0, End: 100, Bytes: 4096}, {Base: 100, End: 150, Bytes: 4096, Active: true}}
}
func (w *world) Disk() DiskUsage   { return DiskUsage{Used: 8192, Free: 1 << 30, Budget: 1 << 20} }
func (w *world) Cache() CacheStats { return CacheStats{Hits: 3, Misses: 1, Bytes: 77} }
func (w *world) Groups() GroupStats {
	return GroupStats{Groups: map[string]int{"Stable": 2}, Members: 7, Offsets: 24, Rebalances: 3}
}
func (w *world) Connections() int { return 5 }
func (w *world) Check() []Problem { return w.problems }

func (w *world) Bounds() []time.Duration { return []time.Duration{time.Millisecond, time.Second} }
func (w *world) APIs(fn func(APIStats)) {
	fn(APIStats{Name: "Produce", Requests: 6, BytesIn: 600, BytesOut: 60, Total: 3 * time.Second, Latency: []int64{1, 2, 3}, Errors: map[int16]int64{3: 2}})
}
func (w *world) Topics(fn func(TopicStats)) {
	fn(TopicStats{Topic: "logs", Batches: 2, Records: 20, BytesIn: 200, BytesOut: 100, BytesCold: 50})
}

const testNow = int64(1_700_000_100_000)

// setup starts a cluster with the topics logs (3 partitions) and other (1).
func setup(t *testing.T, change func(*Options)) (*world, http.Handler, *Metrics) {
	t.Helper()
	client, err := cluster.Start(t.Context(), cluster.Options{Embedded: &cluster.EmbeddedOptions{Dir: t.TempDir()}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	w := &world{stats: map[frame.PartitionID]partition.Stats{}, fail: map[int32]error{}}
	for name, n := range map[string]int32{"logs": 3, "other": 1} {
		topic, err := client.CreateTopic(t.Context(), cluster.TopicSpec{Name: name, Partitions: n, Configs: map[string]string{"retention.ms": "-1"}})
		require.NoError(t, err)
		for p := range n {
			id := frame.PartitionID{Topic: topic.ID, Partition: p}
			w.stats[id] = partition.Stats{ID: id, Topic: name, State: partition.Writing, LocalBytes: 100, ArchiveBytes: 1000, PendingBytes: 10,
				PendingSince: testNow - 5000 - int64(p), Extents: 2,
				Offsets: partition.Offsets{Start: 5, LocalStart: 10, Tiered: 20, Durable: 25, End: 26, Epoch: 3}}
		}
	}
	m := NewMetrics("v1", testNow-1000)
	m.SetTraffic(w)
	o := Options{Cluster: client, Operator: client, Partitions: w, Local: w, Health: w, Metrics: m, Config: map[string]string{"data-dir": "/d"}, Version: "v1", BrokerID: 1,
		Bucket: "s3://b", Now: func() int64 { return testNow }, OnFault: func(err error) { t.Errorf("fault: %v", err) }}
	if change != nil {
		change(&o)
	}
	h, err := New(o)
	require.NoError(t, err)
	return w, h, m
}

func get(t *testing.T, h http.Handler, path string, status int) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, status, w.Code, "%s: %s", path, w.Body)
	return w.Body.String()
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

func post(h http.Handler, path, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(deadlines{w}, r)
	return w
}

// deadlines lets a recorder take the deadline that actions extend.
type deadlines struct{ *httptest.ResponseRecorder }

func (deadlines) SetWriteDeadline(time.Time) error { return nil }

func TestTopics(t *testing.T) {
	_, h, _ := setup(t, nil)
	list := decode[struct{ Topics []Topic }](t, get(t, h, "/api/v1/topics", 200)).Topics
	require.Len(t, list, 2)
	require.Equal(t, "logs", list[0].Name)
	require.Equal(t, 3, list[0].Known)
	require.Equal(t, map[string]int{"writing": 3}, list[0].States)
	require.Equal(t, int64(300), list[0].LocalBytes)
	require.Equal(t, int64(3000), list[0].ArchiveBytes)
	require.Equal(t, int64(63), list[0].Offsets)
	require.Equal(t, int64(5002), list[0].RollLagMs)
	require.Equal(t, "sync", list[0].Durability)

	detail := decode[TopicDetail](t, get(t, h, "/api/v1/topics/logs", 200))
	require.Equal(t, map[string]string{"retention.ms": "-1"}, detail.Overrides)
	require.Len(t, detail.PartitionList, 3)
	require.Equal(t, Partition{Topic: "logs", Partition: 1, Broker: 1, State: "writing", Epoch: 3, Start: 5, LocalStart: 10, Tiered: 20, Durable: 25, End: 26,
		LocalBytes: 100, ArchiveBytes: 1000, Extents: 2, PendingBytes: 10, RollLagMs: 5001}, detail.PartitionList[1])
	require.Contains(t, get(t, h, "/api/v1/topics/none", 404), `no topic \"none\"`)
}

func TestPartitionPages(t *testing.T) {
	_, h, _ := setup(t, nil)
	page := decode[PartitionPage](t, get(t, h, "/api/v1/partitions?limit=3", 200))
	require.Equal(t, 4, page.Total)
	require.Len(t, page.Partitions, 3)
	rest := decode[PartitionPage](t, get(t, h, "/api/v1/partitions?limit=3&after="+page.Next, 200))
	require.Len(t, rest.Partitions, 1)
	require.Equal(t, "other", rest.Partitions[0].Topic)
	require.Empty(t, rest.Next)
	require.Len(t, decode[PartitionPage](t, get(t, h, "/api/v1/partitions?topic=other", 200)).Partitions, 1)
	for _, bad := range []string{"limit=0", "limit=x", "limit=999999", "after=-1", "after=x"} {
		get(t, h, "/api/v1/partitions?"+bad, 400)
	}
	get(t, h, "/api/v1/partitions?topic=none", 404)
	require.Empty(t, decode[PartitionPage](t, get(t, h, "/api/v1/partitions?after=999", 200)).Partitions)
}

func TestHealth(t *testing.T) {
	w, h, _ := setup(t, nil)
	get(t, h, "/healthz", 200)
	require.True(t, decode[Readiness](t, get(t, h, "/readyz", 200)).Ready)
	w.problems = []Problem{{Component: "bucket", Message: "slow"}}
	r := decode[Readiness](t, get(t, h, "/readyz", 200))
	require.True(t, r.Ready)
	require.Equal(t, w.problems, r.Problems)
	for id, s := range w.stats {
		s.State = partition.Recovering
		w.stats[id] = s
		break
	}
	r = decode[Readiness](t, get(t, h, "/readyz", 503))
	require.False(t, r.Ready)
	require.Equal(t, "1 of 4 partitions is being opened", r.Problems[1].Message)
	for id, s := range w.stats {
		s.State, s.Reason = partition.Failed, "disk"
		w.stats[id] = s
	}
	r = decode[Readiness](t, get(t, h, "/readyz", 200))
	require.Contains(t, r.Problems[1].Message, "4 of 4 partitions have failed")
	require.Contains(t, r.Problems[1].Message, "disk")
}

// fixed is a cluster that doesn't change.
type fixed struct{ img *cluster.Image }

func (f fixed) Image() *cluster.Image { return f.img }

// TestReadyWhenTakenUp: what the cluster has given to this broker must be served, also when the broker has not looked yet.
func TestReadyWhenTakenUp(t *testing.T) {
	topic := &cluster.Topic{Name: "t", ID: frame.TopicID{1}, Partitions: 4}
	id := func(p int32) frame.PartitionID { return frame.PartitionID{Topic: topic.ID, Partition: p} }
	img, err := cluster.ImageSpec{Revision: 1, ClusterID: "c", Topics: []*cluster.Topic{topic}, Assignments: map[frame.PartitionID]cluster.Assignment{
		id(0): {Owner: 1, State: cluster.Writing}, id(1): {Owner: 1, State: cluster.Starting}, id(2): {Owner: 2, State: cluster.Writing},
		id(3): {Owner: 1, State: cluster.Failed},
	}}.Build()
	require.NoError(t, err)
	w, h, _ := setup(t, func(o *Options) { o.Cluster = fixed{img} })
	w.stats = map[frame.PartitionID]partition.Stats{id(0): {ID: id(0)}, id(2): {ID: id(2)}}
	r := decode[Readiness](t, get(t, h, "/readyz", 503))
	require.Equal(t, "2 of 3 partitions are being opened", r.Problems[0].Message)
	w.stats[id(0)], w.stats[id(1)] = partition.Stats{ID: id(0), State: partition.Writing}, partition.Stats{ID: id(1), State: partition.Writing}
	require.True(t, decode[Readiness](t, get(t, h, "/readyz", 200)).Ready)
}

func TestRollAndEvict(t *testing.T) {
	w, h, _ := setup(t, nil)
	w.fail[1] = errors.New("bucket is away")
	rec := post(h, "/api/v1/topics/logs/roll", "{}", nil)
	require.Equal(t, 200, rec.Code, rec.Body)
	r := decode[ActionResult](t, rec.Body.String())
	require.Equal(t, 2, r.Done)
	require.Equal(t, 1, r.Failed)
	require.Equal(t, "bucket is away", r.Partitions[1].Error)
	require.Equal(t, int64(25), r.Partitions[0].Tiered, "the answer shows the state afterwards")

	w.rolls = nil
	rec = post(h, "/api/v1/topics/logs/roll", `{"partition": 2}`, nil)
	require.Equal(t, 200, rec.Code)
	require.Len(t, w.rolls, 1)
	require.Equal(t, 200, post(h, "/api/v1/topics/logs/evict", "", nil).Code)
	for path, body := range map[string]string{"/api/v1/topics/logs/roll": `{"partition": 9}`, "/api/v1/topics/none/roll": "{}"} {
		require.Equal(t, 404, post(h, path, body, nil).Code)
	}
	for _, body := range []string{"[]", `{"partitions": 1}`, "{"} {
		require.Equal(t, 400, post(h, "/api/v1/topics/logs/roll", body, nil).Code)
	}
	require.Equal(t, 413, post(h, "/api/v1/topics/logs/roll", strings.Repeat(" ", maxBody+1), nil).Code)
}

func TestForeignRequestsAreRefused(t *testing.T) {
	w, h, _ := setup(t, func(o *Options) { o.Loopback = true })
	local := func(r *http.Request) { r.Host = "127.0.0.1:9644" }
	for name, tc := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"form":          {func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, 415},
		"no type":       {func(r *http.Request) { r.Header.Del("Content-Type") }, 415},
		"cross site":    {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"other origin":  {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403},
		"rebound name":  {func(r *http.Request) { r.Host = "evil.example:9644" }, 403},
		"own console":   {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, 200},
		"curl":          {func(*http.Request) {}, 200},
		"localhost":     {func(r *http.Request) { r.Host = "localhost:9644" }, 200},
		"ipv6 loopback": {func(r *http.Request) { r.Host = "[::1]:9644" }, 200},
	} {
		t.Run(name, func(t *testing.T) {
			w.rolls = nil
			rec := post(h, "/api/v1/topics/other/roll", "{}", func(r *http.Request) { local(r); tc.change(r) })
			require.Equal(t, tc.status, rec.Code, rec.Body)
			require.Equal(t, tc.status == 200, len(w.rolls) == 1)
		})
	}
}

func TestUnknownRoutes(t *testing.T) {
	_, h, _ := setup(t, nil)
	require.Contains(t, get(t, h, "/api/v2/x", 404), "no such route")
	require.Contains(t, get(t, h, "/nothing", 404), "the console is /")
	get(t, h, "/debug/pprof/", 404)
	require.Equal(t, 405, post(h, "/healthz", "{}", nil).Code)
	_, h, _ = setup(t, func(o *Options) { o.Pprof = true })
	get(t, h, "/debug/pprof/", 200)
}

func TestControllerAlone(t *testing.T) {
	_, h, _ := setup(t, func(o *Options) { o.Partitions, o.Local = nil, nil })
	require.Contains(t, get(t, h, "/api/v1/partitions", 404), "has no partitions")
	require.Equal(t, 404, post(h, "/api/v1/topics/logs/roll?here=true", "{}", nil).Code)
	get(t, h, "/api/v1/topics", 200)
	get(t, h, "/api/v1/cluster", 200)
	require.NotContains(t, get(t, h, "/metrics", 200), "tierbroker_commitlog_bytes")
}

func TestClusterAndSmallRoutes(t *testing.T) {
	_, h, m := setup(t, nil)
	m.ObserveBucket(bucket.Op{Class: "roll", Topic: "logs", Kind: "data"}, "put", 64, time.Millisecond, nil)
	info := decode[ClusterInfo](t, get(t, h, "/api/v1/cluster", 200))
	require.Equal(t, 2, info.Topics)
	require.Equal(t, map[string]int{"writing": 4}, info.Partitions)
	require.Equal(t, []BucketCall{{"roll", "data", "put", 1, 0, 64}}, info.BucketCalls)
	require.Equal(t, []APITraffic{{"Produce", 6, 2, 600, 60}}, info.Requests)
	require.Equal(t, int64(400), info.LocalBytes)
	require.NotEmpty(t, info.ClusterID)
	require.Contains(t, get(t, h, "/api/v1/brokers", 200), `"brokers": []`)
	require.Contains(t, get(t, h, "/api/v1/config", 200), `"data-dir": "/d"`)
	require.Contains(t, get(t, h, "/api/v1/segments", 200), `"active": true`)
}

func TestMetrics(t *testing.T) {
	_, h, m := setup(t, nil)
	m.ConnectionFault("http")
	m.ObserveBucket(bucket.Op{Class: "cold", Topic: "logs", Kind: "data"}, "get", 4096, 20*time.Millisecond, nil)
	m.ObserveBucket(bucket.Op{Class: "head", Topic: "gone", Kind: "head"}, "put", 0, time.Millisecond, bucket.ErrPrecondition)
	m.ObserveBucket(bucket.Op{Class: "head", Topic: "gone", Kind: "head"}, "put", 0, time.Millisecond, bucket.ErrUnavailable)
	text := get(t, h, "/metrics", 200)
	for _, line := range []string{
		`tierbroker_build_info{version="v1"} 1`,
		`tierbroker_kafka_requests_total{api="Produce"} 6`,
		`tierbroker_kafka_errors_total{api="Produce",code="UNKNOWN_TOPIC_OR_PARTITION"} 2`,
		`tierbroker_kafka_request_seconds_bucket{api="Produce",le="0.001"} 1`,
		`tierbroker_kafka_request_seconds_bucket{api="Produce",le="1"} 3`,
		`tierbroker_kafka_request_seconds_bucket{api="Produce",le="+Inf"} 6`,
		`tierbroker_kafka_request_seconds_sum{api="Produce"} 3`,
		`tierbroker_kafka_connection_faults_total{kind="http"} 1`,
		`tierbroker_kafka_connections 5`,
		`tierbroker_topic_bytes_in_total{topic="logs"} 200`,
		`tierbroker_topic_cold_bytes_out_total{topic="logs"} 50`,
		`tierbroker_topic_local_bytes{topic="logs"} 300`,
		`tierbroker_topic_roll_lag_seconds{topic="logs"} 5.002`,
		`tierbroker_partitions{state="writing"} 4`,
		`tierbroker_bucket_requests_total{class="cold",kind="data",verb="get"} 1`,
		`tierbroker_bucket_errors_total{class="head",kind="head",verb="put"} 1`,
		`tierbroker_bucket_bytes_total{class="cold",kind="data",verb="get"} 4096`,
		`tierbroker_topic_bucket_requests_total{kind="data",topic="logs",verb="get"} 1`,
		`tierbroker_bucket_request_seconds_count{class="cold",verb="get"} 1`,
		`tierbroker_commitlog_bytes 8192`,
		`tierbroker_commitlog_position 150`,
		`tierbroker_cache_hits_total 3`,
		`tierbroker_ready 1`,
		`tierbroker_cluster_topics 2`,
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, `topic="gone"`, "topics that don't exist are no series")
	require.Contains(t, text, "go_goroutines")
}

func TestMetricsWithoutAServer(t *testing.T) {
	m := NewMetrics("v1", 0)
	families, err := m.registry.Gather()
	require.NoError(t, err)
	require.NotEmpty(t, families)
}

func TestConsole(t *testing.T) {
	_, h, _ := setup(t, nil)
	page := get(t, h, "/", 200)
	require.Contains(t, page, "<title>tierbroker</title>")
	all := page + get(t, h, "/console.css", 200) + get(t, h, "/console.js", 200)
	for _, word := range []string{"https://", "//cdn", "innerHTML", "eval(", "style=", "onclick="} {
		require.NotContains(t, all, word)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
}

func TestServer(t *testing.T) {
	client, err := cluster.Start(t.Context(), cluster.Options{Embedded: &cluster.EmbeddedOptions{Dir: t.TempDir()}})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	w := &world{stats: map[frame.PartitionID]partition.Stats{}}
	l, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	s, err := Serve(l, Options{Cluster: client, Operator: client, Partitions: w, Local: w, Health: w, Metrics: NewMetrics("v1", 0),
		Now: func() int64 { return testNow }, OnFault: func(err error) { t.Errorf("fault: %v", err) }, Loopback: true})
	require.NoError(t, err)
	_, err = Listen(s.Addr().String())
	require.Error(t, err, "the port is taken")
	resp, err := http.Get("http://" + s.Addr().String() + "/healthz")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Contains(t, string(body), "ok")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, s.Shutdown(ctx))
	_, err = Serve(l, Options{})
	require.ErrorContains(t, err, "must be set")
}
