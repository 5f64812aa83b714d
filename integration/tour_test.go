package integration

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

const tourLines = 2000

// logKind is a kind of log file: how a line is made, and how tierctl finds key and timestamp in it.
type logKind struct {
	name  string
	unit  time.Duration // resolution of the line's time
	flags []string
	line  func(r *rand.Rand, at time.Time, key string) string
	key   func(r *rand.Rand) string
}

func oneOf(r *rand.Rand, words string) string {
	list := strings.Fields(words)
	return list[r.IntN(len(list))]
}

var logKinds = []logKind{
	{"blocks", time.Second, []string{"--timestamp-pattern", `^\d{6} \d{6}`, "--timestamp-format", "hdfs", "--key-pattern", `blk_-?\d+`},
		func(r *rand.Rand, at time.Time, key string) string {
			return fmt.Sprintf("%s %d INFO store.Receiver$%d: %s of %s from /10.1.%d.%d", at.Format("060102 150405"), r.IntN(900), r.IntN(3),
				oneOf(r, "receiving received checking"), key, r.IntN(9), r.IntN(250))
		},
		func(r *rand.Rand) string { return "blk_" + strconv.Itoa(r.IntN(400)-200) }},
	{"jobs", time.Millisecond, []string{"--timestamp-pattern", `^\S+ \S+,\d+`, "--timestamp-format", "log4j", "--key-pattern", `\[(task_\d+)\]`},
		func(r *rand.Rand, at time.Time, key string) string {
			return fmt.Sprintf("%s %s [%s] runner.Step: %s after %d ms", at.Format("2006-01-02 15:04:05,000"), oneOf(r, "INFO WARN ERROR"), key,
				oneOf(r, "done failed retried übersprungen"), r.IntN(1e5))
		},
		func(r *rand.Rand) string { return fmt.Sprintf("task_%04d", r.IntN(60)) }},
	{"cloud", time.Millisecond, []string{"--timestamp-pattern", `^\S+ (\S+ \S+)`, "--timestamp-format", "iso", "--key-pattern", `\[(req-[0-9a-f]+)`, "--codec", "gzip"},
		func(r *rand.Rand, at time.Time, key string) string {
			return fmt.Sprintf(`api.log.1 %s %d INFO wsgi.server [%s - - -] "GET /v2/%s/detail HTTP/1.1" status: %d len: %d %s`, at.Format("2006-01-02 15:04:05.000"),
				r.IntN(30000), key, oneOf(r, "servers images flavors"), 200+r.IntN(300), r.IntN(1<<16), strings.Repeat("x", r.IntN(400)))
		},
		func(r *rand.Rand) string { return fmt.Sprintf("req-%08x", r.Uint32()) }},
	{"quorum", time.Millisecond, []string{"--timestamp-pattern", `^\S+ \S+`, "--timestamp-format", "2006-01-02 15:04:05,000", "--key-pattern", `myid=(\d+)`, "--codec", "snappy"},
		func(r *rand.Rand, at time.Time, key string) string {
			return fmt.Sprintf("%s - %-5s [Peer[myid=%s]:Worker@%d] - %s", at.Format("2006-01-02 15:04:05,000"), oneOf(r, "INFO WARN"), key, r.IntN(999),
				oneOf(r, "timeout connected leaving interrupted"))
		},
		func(r *rand.Rand) string { return strconv.Itoa(1 + r.IntN(5)) }},
	{"executors", time.Second, []string{"--timestamp-pattern", `^\S+ \S+`, "--timestamp-format", "spark", "--key-pattern", `rdd_\d+_\d+`, "--codec", "lz4"},
		func(r *rand.Rand, at time.Time, key string) string {
			return fmt.Sprintf("%s INFO memory.Store: block %s stored, %d.%d MB free", at.Format("06/01/02 15:04:05"), key, r.IntN(999), r.IntN(10))
		},
		func(r *rand.Rand) string { return fmt.Sprintf("rdd_%d_%d", r.IntN(20), r.IntN(40)) }},
	{"racks", time.Second, []string{"--timestamp-pattern", `^\S+ (\d+)`, "--timestamp-format", "unix", "--key-pattern", `^\S+ \d+ (\S+)`, "--codec", "zstd"},
		func(r *rand.Rand, at time.Time, key string) string {
			return fmt.Sprintf("- %d %s RAS KERNEL %s %d corrected", at.Unix(), key, oneOf(r, "INFO FATAL"), r.IntN(1e6))
		},
		func(r *rand.Rand) string { return fmt.Sprintf("R%02d-M%d-N%X", r.IntN(40), r.IntN(2), r.IntN(16)) }},
}

// logRecord is what a line must be as a record; its offset is its place in the file.
type logRecord struct {
	ts    int64
	key   []byte
	value string
}

// makeLog makes the lines of a file. Times are uneven, many repeat, some go back a little as in logs of many threads; now
// and then a line has no time of its own and no key.
func makeLog(k *logKind, seed uint64) []logRecord {
	r := rand.New(rand.NewPCG(seed, 1))
	at := time.Date(2015, 10, 18, 17, 41, 44, 0, time.UTC)
	records := make([]logRecord, tourLines)
	for i := range records {
		if k.name == "jobs" && i > 0 && i%97 == 0 {
			records[i] = logRecord{ts: records[i-1].ts, value: fmt.Sprintf("\tat org.example.Step.run(Step.java:%d)", r.IntN(500))}
			continue
		}
		switch n := r.IntN(100); {
		case n < 45:
		case n < 95:
			at = at.Add(time.Duration(1+r.IntN(4)) * k.unit)
		case n < 98:
			at = at.Add(time.Duration(r.IntN(7200)) * time.Second)
		default:
			at = at.Add(-time.Duration(r.IntN(6)) * k.unit)
		}
		key := k.key(r)
		records[i] = logRecord{ts: at.UnixMilli(), key: []byte(key), value: k.line(r, at, key)}
	}
	return records
}

// firstAtOrAfter is what a lookup by time must answer: the first record in the order of offsets.
func firstAtOrAfter(records []logRecord, ts int64) (offset, found int64) {
	for i := range records {
		if records[i].ts >= ts {
			return int64(i), records[i].ts
		}
	}
	return -1, -1
}

// tour is a set of topics with what they must hold. Each file is there twice: under its name as tierctl writes it, in few
// large batches, and with -small as a client writes it, in many small ones.
type tour struct {
	t      *testing.T
	n      *node
	bucket string
	rnd    *rand.Rand
	topics map[string][]logRecord // so far
	names  []string
}

func newTour(t *testing.T, n *node, bucket string) *tour {
	x := &tour{t: t, n: n, bucket: bucket, rnd: rand.New(rand.NewPCG(7, 7)), topics: map[string][]logRecord{}}
	for i := range logKinds {
		x.names = append(x.names, logKinds[i].name, logKinds[i].name+"-small")
	}
	return x
}

// write appends the lines [from, to) of every file to both of its topics.
func (x *tour) write(files map[string][]logRecord, from, to int) {
	x.t.Helper()
	dir := x.t.TempDir()
	for i := range logKinds {
		k := &logKinds[i]
		part := files[k.name][from:to]
		path := filepath.Join(dir, k.name+".log")
		require.NoError(x.t, os.WriteFile(path, text(part), 0o644))
		x.n.tierctl(append([]string{"produce", k.name, path}, k.flags...)...)
		x.writeSmall(k.name+"-small", part, kgo.CompressionCodec{})
		x.topics[k.name] = files[k.name][:to]
		x.topics[k.name+"-small"] = files[k.name][:to]
	}
}

// text is the file that holds the lines.
func text(records []logRecord) []byte {
	var b bytes.Buffer
	for _, r := range records {
		b.WriteString(r.value)
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func (x *tour) writeSmall(topic string, records []logRecord, codec kgo.CompressionCodec) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(x.n.kafka), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(4<<10), kgo.ProducerBatchCompression(codec))
	require.NoError(x.t, err)
	defer cl.Close()
	rs := make([]*kgo.Record, 0, len(records))
	for _, r := range records {
		rs = append(rs, &kgo.Record{Timestamp: time.UnixMilli(r.ts), Key: r.key, Value: []byte(r.value)})
	}
	require.NoError(x.t, cl.ProduceSync(ctx, rs...).FirstErr())
}

// check reads everything back in every way and holds it against the slices.
func (x *tour) check(stage string) {
	x.t.Helper()
	x.readAll(stage)
	x.readFromOffsets(stage)
	x.lookUpTimes(stage)
}

func (x *tour) same(stage, topic string, r *kgo.Record) {
	x.t.Helper()
	records := x.topics[topic]
	require.Less(x.t, r.Offset, int64(len(records)), "%s: %s has more records than were written", stage, topic)
	want := &records[r.Offset]
	require.Equal(x.t, want.value, string(r.Value), "%s: value of %s at %d", stage, topic, r.Offset)
	require.Equal(x.t, want.ts, r.Timestamp.UnixMilli(), "%s: timestamp of %s at %d", stage, topic, r.Offset)
	require.Equal(x.t, want.key, r.Key, "%s: key of %s at %d", stage, topic, r.Offset)
}

func (x *tour) readAll(stage string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(x.n.kafka), kgo.ConsumeTopics(x.names...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(x.t, err)
	defer cl.Close()
	next := map[string]int64{}
	for left := len(x.names); left > 0; {
		fs := cl.PollFetches(ctx)
		require.NoError(x.t, ctx.Err(), "%s: read so far: %v", stage, next)
		require.Empty(x.t, fs.Errors(), stage)
		fs.EachRecord(func(r *kgo.Record) {
			require.Equal(x.t, next[r.Topic], r.Offset, "%s: next offset of %s", stage, r.Topic)
			x.same(stage, r.Topic, r)
			if next[r.Topic]++; next[r.Topic] == int64(len(x.topics[r.Topic])) {
				left--
			}
		})
	}
}

// readFromOffsets begins in the middle of batches: every topic at another offset in each round.
func (x *tour) readFromOffsets(stage string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	for range 6 {
		from, at := map[string]map[int32]kgo.Offset{}, map[string]int64{}
		for _, name := range x.names {
			at[name] = x.rnd.Int64N(int64(len(x.topics[name])))
			from[name] = map[int32]kgo.Offset{0: kgo.NewOffset().At(at[name])}
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(x.n.kafka), kgo.ConsumePartitions(from))
		require.NoError(x.t, err)
		for len(at) > 0 {
			fs := cl.PollFetches(ctx)
			require.NoError(x.t, ctx.Err(), "%s: nothing came from %v", stage, at)
			require.Empty(x.t, fs.Errors(), stage)
			fs.EachRecord(func(r *kgo.Record) {
				if want, first := at[r.Topic]; first {
					require.Equal(x.t, want, r.Offset, "%s: first offset read of %s", stage, r.Topic)
					delete(at, r.Topic)
				}
				x.same(stage, r.Topic, r)
			})
		}
		cl.Close()
	}
}

// lookUpTimes asks for T-1, T and T+1 of many T, and for the special timestamps.
func (x *tour) lookUpTimes(stage string) {
	x.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(x.n.kafka))
	require.NoError(x.t, err)
	defer cl.Close()
	var g errgroup.Group
	g.SetLimit(8)
	ask := func(expect func(records []logRecord) (ask, offset, ts int64)) {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		want := map[string][3]int64{}
		for _, name := range x.names {
			t, offset, ts := expect(x.topics[name])
			want[name] = [3]int64{t, offset, ts}
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Timestamp, p.CurrentLeaderEpoch = t, -1
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic, rt.Partitions = name, []kmsg.ListOffsetsRequestTopicPartition{p}
			req.Topics = append(req.Topics, rt)
		}
		g.Go(func() error { return compareOffsets(x.t.Context(), cl, req, want) })
	}
	for range 40 {
		picked := x.rnd.IntN(1 << 20)
		for d := int64(-1); d <= 1; d++ {
			ask(func(records []logRecord) (int64, int64, int64) {
				t := records[picked%len(records)].ts + d
				offset, ts := firstAtOrAfter(records, t)
				return t, offset, ts
			})
		}
	}
	ask(func(records []logRecord) (int64, int64, int64) { return 0, 0, records[0].ts })
	ask(func([]logRecord) (int64, int64, int64) { return time.Now().UnixMilli(), -1, -1 })
	ask(func([]logRecord) (int64, int64, int64) { return -2, 0, -1 })
	ask(func(records []logRecord) (int64, int64, int64) { return -1, int64(len(records)), -1 })
	ask(func(records []logRecord) (int64, int64, int64) {
		last := slices.MaxFunc(records, func(a, b logRecord) int { return int(a.ts - b.ts) })
		offset, ts := firstAtOrAfter(records, last.ts)
		return -3, offset, ts
	})
	require.NoError(x.t, g.Wait(), stage)
}

func compareOffsets(ctx context.Context, cl *kgo.Client, req *kmsg.ListOffsetsRequest, want map[string][3]int64) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		p, w := t.Partitions[0], want[t.Topic]
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return fmt.Errorf("%s at time %d: %w", t.Topic, w[0], err)
		}
		if p.Offset != w[1] || p.Timestamp != w[2] {
			return fmt.Errorf("%s at time %d: got offset %d with time %d, want %d with %d", t.Topic, w[0], p.Offset, p.Timestamp, w[1], w[2])
		}
		delete(want, t.Topic)
	}
	if len(want) > 0 {
		return fmt.Errorf("no answer for %v", want)
	}
	return nil
}

// checkTools reads the files back with tierctl, from the broker and from the bucket alone.
func (x *tour) checkTools() {
	x.t.Helper()
	for i := range logKinds {
		name := logKinds[i].name
		records := x.topics[name]
		require.Equal(x.t, string(text(records)), x.n.tierctl("consume", name), name)
		t := records[x.rnd.IntN(len(records))].ts
		from, _ := firstAtOrAfter(records, t)
		require.Equal(x.t, string(text(records[from:])), x.n.tierctl("consume", name, "--from", "@"+strconv.FormatInt(t, 10)), "%s from %d", name, t)
		require.Equal(x.t, string(text(records)), x.n.tierctl("archive", "cat", name, "--bucket", x.bucket), name)
	}
	x.n.tierctl("archive", "verify", "--bucket", x.bucket)
}

func (x *tour) move(verb string) {
	x.t.Helper()
	x.n.tierctl(append([]string{"topic", verb}, x.names...)...)
}

// run writes the files in three parts, so that there are several objects and a moment when each topic is hot and cold.
func (x *tour) run() {
	n := x.n
	files := map[string][]logRecord{}
	for i := range logKinds {
		files[logKinds[i].name] = makeLog(&logKinds[i], uint64(i))
	}
	n.start()
	n.tierctl(append([]string{"topic", "create", "--partitions", "1", "--config", "retention.ms=-1"}, x.names...)...)
	x.write(files, 0, 700)
	x.check("hot")
	x.move("roll")
	x.write(files, 700, 1300)
	x.move("roll")
	x.move("evict")
	x.write(files, 1300, tourLines)
	x.check("hot and cold")
	x.move("roll")
	x.move("evict")
	x.check("cold")
	n.stop()
	n.start()
	x.check("restarted")
	n.stop()
	require.NoError(x.t, os.RemoveAll(filepath.Join(n.dir, "index")))
	n.start()
	x.check("without index")
	x.checkTools()
	n.stop()
}

// Files of log lines, their times and their keys come back the same by offset and by time, hot, cold and half of each,
// after a restart and without the index.
func TestTour(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		url := "file://" + t.TempDir()
		newTour(t, newNode(t, "--bucket", url), url).run()
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		server := s3test.Start(t)
		url := server.URL("tour").String()
		n := newNode(t, "--bucket", url)
		n.env = server.Environ()
		newTour(t, n, url).run()
	})
}
