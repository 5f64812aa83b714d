package integration

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/tier/bucket/faultproxy"
)

// hotReader follows a topic like any consumer while the bucket is unwell.
type hotReader struct {
	mu   sync.Mutex
	seen map[int32]map[int64]string
	n    int
}

func (h *hotReader) run(ctx context.Context, t *testing.T, addr, topic string, wg *sync.WaitGroup) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	wg.Go(func() {
		defer cl.Close()
		for ctx.Err() == nil {
			fs := cl.PollFetches(ctx)
			for _, e := range fs.Errors() {
				if ctx.Err() == nil {
					t.Errorf("hot fetch of %s-%d: %v", e.Topic, e.Partition, e.Err)
				}
			}
			h.mu.Lock()
			fs.EachRecord(func(r *kgo.Record) {
				if h.seen[r.Partition] == nil {
					h.seen[r.Partition] = map[int64]string{}
				}
				h.seen[r.Partition][r.Offset] = string(r.Value)
				h.n++
			})
			h.mu.Unlock()
		}
	})
}

func (h *hotReader) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// bucketFaults are the ways in which a bucket is unwell. What is read cold during each is a partition that nobody has
// read before, so that the cache can't help.
var bucketFaults = []struct {
	name   string
	mode   faultproxy.Mode
	lasts  time.Duration
	reads  bool // whether cold reads get through in between
	strong bool // whether everything fails, so that cold reads must have been put off
}{
	{name: "503 SlowDown", mode: faultproxy.Mode{Kind: faultproxy.SlowDown}, lasts: 3 * time.Second, strong: true},
	{name: "every second body flipped", mode: faultproxy.Mode{Kind: faultproxy.Flip, Every: 2}, lasts: 3 * time.Second, reads: true},
	{name: "every body flipped", mode: faultproxy.Mode{Kind: faultproxy.Flip}, lasts: 3 * time.Second, strong: true},
	{name: "bodies cut", mode: faultproxy.Mode{Kind: faultproxy.Cut}, lasts: 3 * time.Second, strong: true},
	{name: "bodies of puts flipped", mode: faultproxy.Mode{Kind: faultproxy.FlipPut}, lasts: 3 * time.Second, reads: true},
	{name: "answers to puts lost", mode: faultproxy.Mode{Kind: faultproxy.Lose, Match: isPut}, lasts: 3 * time.Second, reads: true},
	{name: "connections refused", mode: faultproxy.Mode{Kind: faultproxy.Refuse}, lasts: 3 * time.Second, strong: true},
	{name: "hangs", mode: faultproxy.Mode{Kind: faultproxy.Hang}, lasts: 10 * time.Second, strong: true},
}

func isPut(method, _ string) bool { return method == http.MethodPut }

const faultSegment = 128 << 10

// A bucket that answers 503, hangs, cuts bodies or flips bits costs producers nothing while the local log has room, gives
// consumers of old records right bytes, late ones, or an error on which they try again, and consumers of new ones no trouble
// at all. When it is over, what waited is rolled without a restart, and nothing is lost or doubled.
func TestBucketFaults(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.n
	n.start()
	n.tierctl("topic", "create", "cold", "--partitions", fmt.Sprint(len(bucketFaults)))
	n.tierctl("topic", "create", "load", "--partitions", "2", "--config", fmt.Sprintf("internal.segment.bytes=%d", faultSegment))
	var cold []*reader
	w := newWire(t, n)
	for i := range bucketFaults {
		cold = append(cold, &reader{w: w, topic: "cold", partition: int32(i), want: r.fill("cold", int32(i), 300, 1000)})
	}
	n.tierctl("topic", "roll", "cold")
	n.tierctl("topic", "evict", "cold")

	l, hot := &ledger{acked: map[string]int64{}}, &hotReader{seen: map[int32]map[int64]string{}}
	var producers, consumers sync.WaitGroup
	producing, stopProducing := context.WithCancel(t.Context())
	consuming, stopConsuming := context.WithCancel(t.Context())
	defer stopConsuming()
	l.steady(producing, t, n.kafka, "load", &producers)
	hot.run(consuming, t, n.kafka, "load", &consumers)
	n.eventually(20*time.Second, "records are rolled while all is well", func() bool { return tieredAll(n, "load") > 0 })
	for i := range bucketFaults {
		r.endure(i, cold[i], l, hot)
	}
	stopProducing()
	producers.Wait()
	n.eventually(20*time.Second, "the consumer has seen all that was acknowledged", func() bool { return hot.count() >= l.count() })
	stopConsuming()
	consumers.Wait()
	require.Zero(t, l.fails.Load())
	t.Logf("%d records acknowledged", l.count())

	n.tierctl("topic", "roll", "load")
	n.tierctl("topic", "evict", "load")
	got := readTopic(t, n.kafka, "load")
	l.verify(t, got)
	require.Equal(t, got, hot.seen, "what was read hot during the faults and cold after them")
	n.tierctl("archive", "verify", "--bucket", r.direct)
	n.stop()
}

func tieredAll(n *node, topic string) (sum int64) {
	for _, p := range n.partitions(topic) {
		sum += p.Tiered
	}
	return sum
}

// endure runs one fault.
func (r *rig) endure(i int, cold *reader, l *ledger, hot *hotReader) {
	t, n, f := r.t, r.n, &bucketFaults[i]
	t.Helper()
	acked, seen, tiered := l.count(), hot.count(), tieredAll(n, "load")
	r.proxy.SetMode(f.mode)
	end := time.Now().Add(f.lasts)
	for time.Now().Before(end) && !cold.done() {
		cold.step()
	}
	for time.Now().Before(end) {
		<-time.After(time.Until(end))
	}
	spoiled := r.proxy.Spoiled()
	acked, seen, progress := l.count()-acked, hot.count()-seen, tieredAll(n, "load")-tiered
	r.proxy.SetMode(faultproxy.Mode{})
	over := time.Now()
	waited := map[int32]int64{} // ends when the bucket is well again
	for _, p := range n.partitions("load") {
		waited[p.Partition] = p.End
	}
	t.Logf("%s: %d requests spoiled; %d acknowledged, %d read hot, %d rolled; cold: %d read, %d answers late, %d retriable errors, slowest %v",
		f.name, spoiled, acked, seen, progress, cold.next, cold.late, cold.refused, cold.slowest.Round(time.Millisecond))
	require.Positive(t, spoiled, "%s: nothing was spoiled", f.name)
	require.Greater(t, acked, 50, "%s: producers must go on", f.name)
	require.Greater(t, seen, 50, "%s: consumers of new records must go on", f.name)
	require.Less(t, cold.slowest, 30*time.Second, "%s: a fetch must end before its client's patience", f.name)
	if f.strong {
		require.False(t, cold.done(), "%s: the cold partition was read through a bucket that fails", f.name)
		require.Positive(t, cold.late+cold.refused, f.name)
	}
	if f.reads {
		require.True(t, cold.done(), "%s: right bodies must be served, however many wrong ones come before", f.name)
	}
	cold.finish(n, 40*time.Second)
	n.eventually(60*time.Second, f.name+": what waited is rolled", func() bool {
		for _, p := range n.partitions("load") {
			if p.Tiered < waited[p.Partition] {
				return false
			}
		}
		return true
	})
	t.Logf("%s: all is well again after %v", f.name, time.Since(over).Round(10*time.Millisecond))
}
