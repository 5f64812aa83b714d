package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var nextPort atomic.Int64

func init() { nextPort.Store(int64(os.Getpid()) * 37) }

// ledger is what producers were told: the offset of every acknowledged value.
type ledger struct {
	mu    sync.Mutex
	acked map[string]int64 // "partition/value" -> offset
	seq   atomic.Int64
	fails atomic.Int64
}

func (l *ledger) note(r *kgo.Record) {
	l.mu.Lock()
	l.acked[fmt.Sprintf("%d/%s", r.Partition, r.Value)] = r.Offset
	l.mu.Unlock()
}

// load produces with idempotent clients, five requests in flight, until ctx ends.
func (l *ledger) load(ctx context.Context, t *testing.T, addr, topic string, producers int, wg *sync.WaitGroup) {
	for range producers {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
			kgo.ProducerLinger(time.Millisecond), kgo.ProducerBatchMaxBytes(32<<10),
			kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.MetadataMinAge(50*time.Millisecond),
			kgo.MaxBufferedRecords(2000))
		require.NoError(t, err)
		wg.Go(func() {
			defer cl.Close()
			pad := make([]byte, 300)
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				if l.seq.Load()%4 == 0 {
					<-tick.C // about 2,000 records a second: what is acknowledged is held against every kill, later
				}
				v := append([]byte(strconv.FormatInt(l.seq.Add(1), 10)+" "), pad[:rand.IntN(300)]...)
				cl.Produce(ctx, &kgo.Record{Value: v}, func(r *kgo.Record, err error) {
					switch {
					case err == nil:
						l.note(r)
					case !errors.Is(err, context.Canceled):
						if l.fails.Add(1) <= 3 {
							t.Logf("a record was not acknowledged: %v", err)
						}
					}
				})
			}
			flush, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := cl.Flush(flush); err != nil {
				t.Errorf("flush: %v", err)
			}
		})
	}
}

// readTopic consumes every partition from start to end and returns the values by partition and offset.
func readTopic(t *testing.T, addr, topic string) map[int32]map[int64]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	left := map[int32]int64{}
	out := map[int32]map[int64]string{}
	ends.Each(func(o kadm.ListedOffset) {
		out[o.Partition] = map[int64]string{}
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "still to read: %v", left)
		for _, e := range fs.Errors() {
			t.Fatalf("fetch %s-%d: %v", e.Topic, e.Partition, e.Err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if old, twice := out[r.Partition][r.Offset]; twice && old != string(r.Value) {
				t.Errorf("partition %d offset %d has two contents", r.Partition, r.Offset)
			}
			out[r.Partition][r.Offset] = string(r.Value)
			if end, ok := left[r.Partition]; ok && r.Offset >= end-1 {
				delete(left, r.Partition)
			}
		})
	}
	return out
}

// verify holds the topic against the ledger: every acknowledged value at its offset, no value twice, no hole.
func (l *ledger) verify(t *testing.T, got map[int32]map[int64]string) {
	t.Helper()
	seen := map[string]int64{}
	for p, values := range got {
		for o := range int64(len(values)) {
			v, ok := values[o]
			require.True(t, ok, "partition %d has no offset %d", p, o)
			if at, dup := seen[v]; dup {
				t.Fatalf("value %.12q is at offsets %d and %d of partition %d", v, at, o, p)
			}
			seen[v] = o
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, o := range l.acked {
		var p int32
		var v string
		for i := range key {
			if key[i] == '/' {
				n, err := strconv.Atoi(key[:i])
				require.NoError(t, err)
				p, v = int32(n), key[i+1:]
				break
			}
		}
		require.Equal(t, v, got[p][o], "acknowledged at offset %d of partition %d", o, p)
	}
}

// A broker that is killed a hundred times at random moments under load loses nothing it acknowledged, gives no offset
// two contents, and its idempotent producers leave no duplicates.
func TestKillUnderLoad(t *testing.T) {
	t.Parallel()
	kills := 100
	if testing.Short() {
		kills = 10
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	n := newNode(t)
	n.start()
	n.tierctl("topic", "create", "load", "--partitions", "4", "--config", "segment.bytes=1048576", "--config", "segment.ms=1000")
	ctx, cancel := context.WithCancel(context.Background())
	l := &ledger{acked: map[string]int64{}}
	var wg sync.WaitGroup
	l.load(ctx, t, n.kafka, "load", 3, &wg)
	began := time.Now()
	for range kills {
		timer := time.NewTimer(time.Duration(50+rnd.IntN(500)) * time.Millisecond)
		<-timer.C
		n.kill()
		n.start()
	}
	cancel()
	wg.Wait()
	l.mu.Lock()
	t.Logf("%d kills in %v, %d records acknowledged, %d failed", kills, time.Since(began).Round(time.Second), len(l.acked), l.fails.Load())
	l.mu.Unlock()
	got := readTopic(t, n.kafka, "load")
	l.verify(t, got)
	n.stop()
	n.start()
	n.tierctl("topic", "roll", "load")
	n.tierctl("topic", "evict", "load")
	l.verify(t, readTopic(t, n.kafka, "load"))
}
