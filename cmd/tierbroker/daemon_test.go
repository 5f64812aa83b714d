package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tierbroker/tierbroker/config"
)

func load(t *testing.T, env []string) *config.Config {
	t.Helper()
	c, err := config.Load(config.Input{Env: env, CheckKafka: checkKafka})
	require.NoError(t, err)
	return c
}

// running is a daemon inside the test process.
type running struct {
	d            *daemon
	kafka, admin string
	logs         *observer.ObservedLogs
	stop         context.CancelCauseFunc
	done         chan error
}

// start runs a daemon in dir on free ports and waits until it is ready.
func start(t *testing.T, dir string, env ...string) *running {
	t.Helper()
	c := load(t, append([]string{"TIERBROKER_DATA_DIR=" + dir, "TIERBROKER_KAFKA_LISTEN=127.0.0.1:0", "TIERBROKER_ADMIN_LISTEN=127.0.0.1:0",
		"TIERBROKER_SEGMENT_FILE_BYTES=120MiB", "TIERBROKER_DISK_MIN_FREE=1MiB"}, env...))
	core, logs := observer.New(zap.InfoLevel)
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &running{logs: logs, stop: cancel, done: make(chan error, 1)}
	r.d = newDaemon(c, zap.New(core))
	go func() { r.done <- r.d.run(ctx) }()
	t.Cleanup(func() { cancel(errSignal) })
	require.Eventually(t, func() bool {
		select {
		case err := <-r.done:
			r.done <- err
			return true
		default:
			return logs.FilterMessage("ready").Len() > 0
		}
	}, 30*time.Second, 5*time.Millisecond)
	ready := logs.FilterMessage("ready").All()
	require.NotEmpty(t, ready, "ended with %v", logs.All())
	fields := ready[0].ContextMap()
	r.kafka, r.admin = fmt.Sprint(fields["kafka"]), fmt.Sprint(fields["admin"])
	return r
}

// end stops the daemon as a signal does.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop(errSignal)
	select {
	case err := <-r.done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the daemon does not stop")
	}
}

func (r *running) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.kafka), kgo.AllowAutoTopicCreation()}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func (r *running) produce(t *testing.T, values ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client := r.client(t, kgo.DefaultProduceTopic("t"))
	for _, v := range values {
		require.NoError(t, client.ProduceSync(ctx, kgo.StringRecord(v)).FirstErr())
	}
}

func (r *running) consume(t *testing.T, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client := r.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var got []string
	for len(got) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "got %v", got)
		fetches.EachRecord(func(rec *kgo.Record) { got = append(got, string(rec.Value)) })
	}
	return got
}

func TestRecordsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir)
	r.produce(t, "a", "b")
	require.Equal(t, []string{"a", "b"}, r.consume(t, 2))
	r.end(t)
	r = start(t, dir)
	r.produce(t, "c")
	require.Equal(t, []string{"a", "b", "c"}, r.consume(t, 3))
	r.end(t)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "index")))
	r = start(t, dir)
	require.Equal(t, []string{"a", "b", "c"}, r.consume(t, 3))
	r.end(t)
}

func TestAdminServer(t *testing.T) {
	r := start(t, t.TempDir(), "TIERBROKER_PPROF=true")
	r.produce(t, "a")
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": `"ready": true`, "/metrics": "tierbroker_topic_bytes_in_total{topic=\"t\"}",
		"/api/v1/topics": `"name": "t"`, "/api/v1/config": "data-dir", "/api/v1/segments": `"active": true`, "/": "<title>", "/debug/pprof/": "goroutine"} {
		resp, err := http.Get(r.admin + path)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 200, resp.StatusCode, path)
		require.Contains(t, string(body), want, path)
	}
	for what, want := range map[string]int{"roll": 200, "evict": 200} {
		resp, err := http.Post(r.admin+"/api/v1/topics/t/"+what, "application/json", strings.NewReader("{}"))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode)
	}
	require.Equal(t, []string{"a"}, r.consume(t, 1))
	r.end(t)
}

// mistakes runs a daemon that must not come up and returns what it says.
func failing(t *testing.T, env ...string) error {
	t.Helper()
	c := load(t, append([]string{"TIERBROKER_KAFKA_LISTEN=127.0.0.1:0", "TIERBROKER_ADMIN_LISTEN=127.0.0.1:0"}, env...))
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	err := runDaemon(ctx, c, zap.NewNop())
	require.ErrorAs(t, err, new(userError), "%v", err)
	return err
}

func TestMistakesAreToldInOneSentence(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	dir := t.TempDir()
	r := start(t, dir)
	require.ErrorContains(t, failing(t, "TIERBROKER_DATA_DIR="+dir), "in use by another process")
	r.end(t)

	for name, tc := range map[string]struct {
		env  []string
		want string
	}{
		"kafka port":       {[]string{"TIERBROKER_KAFKA_LISTEN=" + taken.Addr().String()}, "kafka-listen: " + taken.Addr().String() + " is taken"},
		"admin port":       {[]string{"TIERBROKER_ADMIN_LISTEN=" + taken.Addr().String()}, "admin-listen: " + taken.Addr().String() + " is taken"},
		"foreign address":  {[]string{"TIERBROKER_KAFKA_LISTEN=203.0.113.1:9092"}, "kafka-listen"},
		"memory":           {[]string{"TIERBROKER_BUCKET=mem://"}, "keeps nothing"},
		"bucket url":       {[]string{"TIERBROKER_BUCKET=s3:/x"}, "bucket"},
		"missing folder":   {[]string{"TIERBROKER_BUCKET=file:///does/not/exist"}, "can't open the bucket"},
		"another cluster":  {[]string{"TIERBROKER_BUCKET=file://" + filepath.Join(dir, "bucket")}, "this data directory is new"},
		"unreachable etcd": {[]string{"TIERBROKER_ETCD_ENDPOINTS=http://127.0.0.1:1"}, "can't reach etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			err := failing(t, append([]string{"TIERBROKER_DATA_DIR=" + t.TempDir()}, tc.env...)...)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "\n", "one sentence")
		})
	}
	empty := t.TempDir()
	require.ErrorContains(t, failing(t, "TIERBROKER_DATA_DIR="+dir, "TIERBROKER_BUCKET=file://"+empty), "is it the right bucket?")
}

// TestFirstAnswerAfterARestart: whoever gets through to a broker that has been started again finds it serving its partitions.
func TestFirstAnswerAfterARestart(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := "TIERBROKER_KAFKA_LISTEN=" + l.Addr().String()
	require.NoError(t, l.Close())
	r := start(t, dir, port)
	const partitions = 40
	adm := kadm.NewClient(r.client(t))
	_, err = adm.CreateTopic(t.Context(), partitions, 1, nil, "many")
	require.NoError(t, err)
	r.produce(t, "a")
	r.end(t)

	// A client tries all the time, as one does that has lost its connection.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer := make(chan *kmsg.MetadataResponse, 1)
	client := r.client(t)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var resp *kmsg.MetadataResponse
		err := errors.New("not tried")
		for err != nil && ctx.Err() == nil {
			<-tick.C
			resp, err = kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
		}
		answer <- resp
	}()
	r = start(t, dir, port)
	resp := <-answer
	require.NotNil(t, resp)
	leaders := 0
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			require.Zero(t, p.ErrorCode, "%s/%d", *topic.Topic, p.Partition)
			leaders++
		}
	}
	require.GreaterOrEqual(t, leaders, partitions+1)
	r.end(t)
}

// TestStartCutShort: a crash between making the bucket's root and writing the
// identity leaves a directory that can be started again.
func TestStartCutShort(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir)
	r.produce(t, "a")
	r.end(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "meta.json")))
	r = start(t, dir)
	require.Equal(t, []string{"a"}, r.consume(t, 1))
	r.end(t)
}

func TestCommandLine(t *testing.T) {
	for _, args := range [][]string{{"nope"}, {"--nope"}, {"check-config", "--broker-id", "x"}, {"check-config", "--bucket", "ftp://x"},
		{"check-config", "--config", "/does/not/exist"}, {"run", "extra"}} {
		require.Equal(t, exitUser, execute(args), "%v", args)
	}
	t.Setenv("TIERBROKER_KAFKA_CONFIG", "num.partitions=3")
	require.Equal(t, exitUser, execute([]string{"check-config"}))
	t.Setenv("TIERBROKER_KAFKA_CONFIG", "retention.ms=-1;group.min.session.timeout.ms=100")
	for _, args := range [][]string{{"check-config"}, {"version"}, {"--help"}, {"run", "--help"}} {
		require.Equal(t, 0, execute(args), "%v", args)
	}
	var b bytes.Buffer
	cmd := newCheckConfig()
	cmd.SetOut(&b)
	cmd.SetArgs(nil)
	require.NoError(t, cmd.Execute())
	require.Contains(t, b.String(), "group.min.session.timeout.ms=100;retention.ms=-1")
}
