package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// place is one partition, place in it one record.
type spot struct {
	topic     string
	partition int32
	offset    int64
}

// content is what must be the same after a restore.
type content struct {
	key, value string
	time       int64
	headers    string
}

func contentOf(r *kgo.Record) content {
	h := ""
	for _, x := range r.Headers {
		h += fmt.Sprintf("%s=%q;", x.Key, x.Value)
	}
	return content{string(r.Key), string(r.Value), r.Timestamp.UnixMilli(), h}
}

// lostCluster is a broker over a bucket that outlives it, and what it was given.
type lostCluster struct {
	t      *testing.T
	n      *node
	bucket string
	env    []string // of the tool, to reach the bucket
	want   map[spot]content
}

func newLostCluster(t *testing.T, args ...string) *lostCluster {
	x := &lostCluster{t: t, bucket: "file://" + filepath.Join(t.TempDir(), "bucket"), want: map[spot]content{}}
	x.n = x.node(args...)
	x.n.start()
	return x
}

func (x *lostCluster) node(args ...string) *node {
	return newNode(x.t, append([]string{"--bucket", x.bucket}, args...)...)
}

func (x *lostCluster) client(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(x.n.kafka)}, opts...)...)
	require.NoError(x.t, err)
	x.t.Cleanup(cl.Close)
	return cl
}

// produce writes n records of all kinds to a topic; keep says whether they must survive.
func (x *lostCluster) produce(topic string, n int, keep bool) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 2*time.Minute)
	defer cancel()
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for c, codec := range codecs {
		cl := x.client(kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(topic))
		var records []*kgo.Record
		for i := range n {
			r := &kgo.Record{Value: fmt.Appendf(nil, "%s %d/%d %s", topic, c, i, strings.Repeat("x", i%700)), Timestamp: time.UnixMilli(1_400_000_000_000 + int64(c*n+i)*977)}
			if i%3 > 0 {
				r.Key = fmt.Appendf(nil, "key %d", i)
			}
			for h := range i % 4 {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: fmt.Sprint("h", h), Value: []byte{byte(i), 0, 255}})
			}
			records = append(records, r)
		}
		for _, res := range cl.ProduceSync(ctx, records...) {
			require.NoError(x.t, res.Err)
			if keep {
				x.want[spot{topic, res.Record.Partition, res.Record.Offset}] = contentOf(res.Record)
			}
		}
		cl.Close()
	}
}

// compare reads topics from their starts and compares every record.
func (x *lostCluster) compare(topics ...string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 2*time.Minute)
	defer cancel()
	cl := x.client(kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	got := map[spot]content{}
	for len(got) < len(x.want) {
		f := cl.PollFetches(ctx)
		require.NoError(x.t, f.Err(), "%d of %d records read", len(got), len(x.want))
		f.EachRecord(func(r *kgo.Record) { got[spot{r.Topic, r.Partition, r.Offset}] = contentOf(r) })
	}
	require.Equal(x.t, x.want, got)
}

func (x *lostCluster) commit(group string, at map[string][]int64) {
	x.t.Helper()
	var o kadm.Offsets
	for topic, offsets := range at {
		for p, offset := range offsets {
			o.Add(kadm.Offset{Topic: topic, Partition: int32(p), At: offset, LeaderEpoch: -1, Metadata: "m-" + group})
		}
	}
	adm := kadm.NewClient(x.client())
	resp, err := adm.CommitOffsets(x.t.Context(), group, o)
	require.NoError(x.t, err)
	require.NoError(x.t, resp.Error())
}

func (x *lostCluster) requireCommitted(group string, at map[string][]int64) {
	x.t.Helper()
	adm := kadm.NewClient(x.client())
	got, err := adm.FetchOffsets(x.t.Context(), group)
	require.NoError(x.t, err)
	for topic, offsets := range at {
		for p, offset := range offsets {
			o, ok := got.Lookup(topic, int32(p))
			require.True(x.t, ok, "%s %s/%d", group, topic, p)
			require.Equal(x.t, []any{offset, "m-" + group}, []any{o.At, o.Metadata}, "%s %s/%d", group, topic, p)
		}
	}
}

// restored is what the tool reports.
type restored struct {
	ClusterID string `json:"cluster_id"`
	Topics    []struct {
		Name       string
		ID         string
		Partitions []struct {
			Partition         int32
			Head              bool
			End, Next, Newest int64
		}
	}
	Groups []struct {
		Group, Topic      string
		Partition         int32
		Offset, End, Next int64
	} `json:"groups_beyond_end"`
	Result *struct {
		ClusterID string `json:"cluster_id"`
	}
}

// restore runs the tool; on failure it returns what was said.
func (x *lostCluster) restore(args ...string) (*restored, string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(x.t, "tierctl"), append([]string{"cluster", "restore", "--bucket", x.bucket, "-o", "json"}, args...)...)
	cmd.Env = append(os.Environ(), x.env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, errs.String() + err.Error()
	}
	var r restored
	require.NoError(x.t, json.Unmarshal(out, &r), "%s", out)
	return &r, ""
}

// Everything but the bucket is destroyed, and the tool builds the cluster again: same topics, settings, offsets, bytes and group
// positions. What never got to the bucket is missing, and its offsets are never given to anything else.
func TestRestoreFromBucketAlone(t *testing.T) {
	t.Parallel()
	x := newLostCluster(t)
	x.n.tierctl("topic", "create", "audit", "--partitions", "3", "--config", "retention.ms=-1")
	x.n.tierctl("topic", "create", "one.small", "--partitions", "1", "--config", "max.message.bytes=700000", "--config", "retention.ms=-1")
	x.n.tierctl("topic", "create", "never-written", "--partitions", "2")
	x.produce("audit", 400, true)
	x.produce("one.small", 40, true)
	positions := map[string][]int64{"audit": {17, 0, 3}, "one.small": {200}}
	x.commit("billing", positions)
	x.n.tierctl("topic", "roll", "audit", "one.small")
	x.produce("one.small", 2, false) // lost: never rolled
	ahead := map[string][]int64{"one.small": {207}}
	x.commit("ahead", ahead)
	x.n.tierctl("topic", "roll", "__consumer_offsets")
	described := x.n.tierctl("topic", "describe", "audit", "-o", "json")

	_, said := x.restore("--data-dir", filepath.Join(t.TempDir(), "new"), "--yes")
	require.Contains(t, said, "a living cluster owns the bucket", "an idle cluster answers")
	old := x.n
	old.kill()

	plan, said := x.restore("--dry-run")
	require.NotNil(t, plan, said)
	require.Nil(t, plan.Result)
	x.n = x.node()
	result, said := x.restore("--data-dir", x.n.dir, "--old-cluster-is-gone", "--yes")
	require.NotNil(t, result, said)
	require.NotEqual(t, plan.ClusterID, result.Result.ClusterID)
	require.Equal(t, plan.Topics, result.Topics, "what is restored is what was announced")
	next := x.checkPlan(result)
	for _, dir := range []string{x.n.dir, old.dir} {
		_, said = x.restore("--data-dir", dir, "--old-cluster-is-gone", "--yes")
		require.Regexp(t, "etcd is not empty|is not empty: it holds", said)
	}

	x.n.start()
	x.compare("audit", "one.small", "never-written")
	x.requireCommitted("billing", positions)
	x.requireCommitted("ahead", ahead)
	require.Equal(t, settingsOf(t, described), settingsOf(t, x.n.tierctl("topic", "describe", "audit", "-o", "json")))
	x.goOn(next)

	// The old broker is back: it is told, and changes nothing.
	old.launch()
	select {
	case <-old.exited:
	case <-time.After(60 * time.Second):
		t.Fatal("a broker of the old cluster goes on with the bucket")
	}
	require.Contains(t, old.out.String(), "belongs to cluster")
	x.n.stop()
	out, err := exec.Command(program(t, "tierctl"), "archive", "verify", "--bucket", x.bucket).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// checkPlan checks the recovery points, and returns where one.small goes on.
func (x *lostCluster) checkPlan(r *restored) int64 {
	x.t.Helper()
	next := int64(0)
	ends := map[string]int64{}
	for s := range x.want {
		key := fmt.Sprint(s.topic, "/", s.partition)
		ends[key] = max(ends[key], s.offset+1)
	}
	seen := 0
	for _, topic := range r.Topics {
		for _, p := range topic.Partitions {
			end, ok := ends[fmt.Sprint(topic.Name, "/", p.Partition)]
			if !ok {
				continue
			}
			seen++
			require.True(x.t, p.Head)
			require.Equal(x.t, end, p.End, "%s/%d", topic.Name, p.Partition)
			require.GreaterOrEqual(x.t, p.Next, int64(1<<20))
			require.Greater(x.t, p.Newest, int64(1_400_000_000_000))
			if topic.Name == "one.small" {
				next = p.Next
			}
		}
	}
	require.Equal(x.t, len(ends), seen)
	require.Len(x.t, r.Groups, 1, "the group that stands in what is lost")
	require.Equal(x.t, []any{"ahead", "one.small", int64(207), int64(200), next},
		[]any{r.Groups[0].Group, r.Groups[0].Topic, r.Groups[0].Offset, r.Groups[0].End, r.Groups[0].Next})
	return next
}

// goOn writes behind the gap, and a group that stood in it reads on there.
func (x *lostCluster) goOn(next int64) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	cl := x.client(kgo.DefaultProduceTopic("one.small"), kgo.ConsumerGroup("ahead"), kgo.ConsumeTopics("one.small"), kgo.DisableAutoCommit())
	r, err := cl.ProduceSync(ctx, kgo.StringRecord("after")).First()
	require.NoError(x.t, err)
	require.Equal(x.t, next, r.Offset)
	f := cl.PollFetches(ctx)
	require.NoError(x.t, f.Err())
	got := f.Records()[0]
	require.Equal(x.t, []any{"after", next}, []any{string(got.Value), got.Offset}, "nothing is read twice")
	empty, err := cl.ProduceSync(ctx, &kgo.Record{Topic: "never-written", Value: []byte("first")}).First()
	require.NoError(x.t, err)
	require.GreaterOrEqual(x.t, empty.Offset, int64(1<<20), "nobody knows what it had")
}

// settingsOf returns what doesn't depend on the broker that serves a topic.
func settingsOf(t *testing.T, described string) map[string]any {
	var d map[string]any
	require.NoError(t, json.Unmarshal([]byte(described), &d), described)
	out := map[string]any{}
	for _, k := range []string{"name", "id", "config", "configs", "internal"} {
		if v, ok := d[k]; ok {
			out[k] = v
		}
	}
	require.NotEmpty(t, out)
	return out
}

// A bucket without a cluster is no bucket to restore from, and nothing is made of the target.
func TestRestoreRefusesWhatIsNoCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	x := &lostCluster{t: t, bucket: "file://" + dir}
	target := filepath.Join(t.TempDir(), "new")
	_, said := x.restore("--data-dir", target, "--yes")
	require.Contains(t, said, "holds no cluster")
	_, said = x.restore("--yes")
	require.Contains(t, said, "give --data-dir or --etcd-endpoints")
	_, err := os.Stat(target)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What was acknowledged because it was in a WAL object is part of the bucket: nothing of it is missing after kill -9 and a restore,
// whether it was rolled or not, and it is there again after a second loss and restore.
func TestRestoreAdoptsStreams(t *testing.T) {
	t.Parallel()
	x := newLostCluster(t)
	x.n.tierctl("topic", "create", "safe", "--partitions", "2", "--config", "tierbroker.durability=object", "--config", "retention.ms=-1")
	x.produce("safe", 60, true)
	x.n.tierctl("topic", "roll", "safe")
	x.produce("safe", 60, true)
	ends := map[int32]int64{}
	for s := range x.want {
		ends[s.partition] = max(ends[s.partition], s.offset+1)
	}
	for life := range 2 {
		x.n.kill()
		require.NoError(t, os.RemoveAll(x.n.dir))
		x.n = x.node()
		r, said := x.restore("--data-dir", x.n.dir, "--old-cluster-is-gone", "--yes")
		require.NotNil(t, r, said)
		next := map[int32]int64{}
		for _, topic := range r.Topics {
			for _, p := range topic.Partitions {
				if topic.Name == "safe" {
					require.Equal(t, ends[p.Partition], p.End, "life %d", life)
					next[p.Partition] = p.Next
				}
			}
		}
		require.Len(t, next, 2)
		x.n.start()
		x.compare("safe")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cl := x.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for p, least := range next {
			res, err := cl.ProduceSync(ctx, &kgo.Record{Topic: "safe", Partition: p, Value: fmt.Appendf(nil, "life %d", life)}).First()
			require.NoError(t, err)
			require.GreaterOrEqual(t, res.Offset, least)
			require.Less(t, res.Offset, least+1<<21)
			x.want[spot{"safe", p, res.Offset}], ends[p] = contentOf(res), res.Offset+1
		}
		cancel()
	}
	x.n.stop()
	out, err := exec.Command(program(t, "tierctl"), "archive", "verify", "--bucket", x.bucket).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
