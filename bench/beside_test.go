package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"github.com/tierbroker/tierbroker/bench/process"
)

// BenchmarkProduceBesideGroup asks what a restless group costs a producer of one broker: one record at a time to a sync topic, alone
// (alone), while a group of ten members of the same broker rebalances without pause and each member commits every 20 ms (here), and
// while such a group does so on another broker of the same machine (there). What here costs more than there is the broker's doing,
// the rest the machine's. Beside it run two probes: ApiVersions over a connection of its own (ping: processors, no disk) and pwrite and
// fdatasync of 4 KiB to a file (disk). Medians and 99th percentiles in ms of all turns of five seconds.
func BenchmarkProduceBesideGroup(b *testing.B) {
	b.Setenv("TIERBROKER_KAFKA_CONFIG", "group.initial.rebalance.delay.ms=100")
	dir := b.TempDir()
	var brokers [2]*process.Broker
	for i := range brokers {
		brokers[i] = startBroker(b, filepath.Join(dir, fmt.Sprint("data-", i)))
		defer stopBroker(b, brokers[i])
		groupTopic(b, brokers[i], 12)
	}
	f, err := os.Create(filepath.Join(dir, "probe"))
	require.NoError(b, err)
	defer func() { require.NoError(b, f.Close()) }()
	sides := []struct {
		name string
		on   int // the group's broker, -1 for none
	}{{"alone", -1}, {"there", 1}, {"here", 0}}
	got := make([]samples, len(sides))
	for turn := 0; b.Loop(); turn++ {
		for i := range sides {
			i = (i + turn) % len(sides)
			var c *restless
			if at := sides[i].on; at >= 0 {
				c = newRestless(b, brokers[at], 10)
			}
			got[i].measure(b, brokers[0], f, 5*time.Second)
			if c != nil {
				c.end()
				got[i].commits += c.commits.Load()
				got[i].rebalances += c.rebalances.Load()
			}
		}
	}
	for i, s := range sides {
		g := &got[i]
		b.Logf("%-5s produce %s (%d), ping %s, disk %s; %d commits, %d assignments", s.name, spread(g.produce), len(g.produce), spread(g.ping), spread(g.disk), g.commits, g.rebalances)
		b.ReportMetric(ms(median(g.produce)), s.name+"-p50-ms")
		b.ReportMetric(ms(quantile(g.produce, 0.99)), s.name+"-p99-ms")
	}
	b.ReportMetric(0, "ns/op")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// quantile returns the q-th quantile.
func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func spread(d []time.Duration) string {
	return fmt.Sprintf("p50 %.1f p99 %.1f max %.1f ms", ms(median(d)), ms(quantile(d, 0.99)), ms(slices.Max(d)))
}

// syncProbe writes 4 KiB n times, each with its fdatasync, and returns what each took.
func syncProbe(b *testing.B, dir string, n int) []time.Duration {
	f, err := os.CreateTemp(dir, "probe-*")
	require.NoError(b, err)
	defer func() { require.NoError(b, f.Close()) }()
	var took []time.Duration
	for range n {
		d, err := syncOnce(f)
		require.NoError(b, err)
		took = append(took, d)
	}
	return took
}

func syncOnce(f *os.File) (time.Duration, error) {
	began := time.Now()
	if _, err := f.WriteAt(make([]byte, 4<<10), 0); err != nil {
		return 0, err
	}
	err := unix.Fdatasync(int(f.Fd()))
	return time.Since(began), err
}

// samples are the latencies of one side over all its turns.
type samples struct {
	produce, ping, disk []time.Duration
	commits, rebalances int64
}

// measure produces and probes for the time d.
func (s *samples) measure(b *testing.B, broker *process.Broker, f *os.File, d time.Duration) {
	producer := dial(b, broker, kgo.DefaultProduceTopic("work"), kgo.ProducerLinger(0))
	defer producer.Close()
	pinger := dial(b, broker)
	defer pinger.Close()
	ctx, cancel := context.WithTimeout(b.Context(), patient)
	defer cancel()
	produce := func() error { return producer.ProduceSync(ctx, kgo.StringRecord("a record")).FirstErr() }
	ping := func() error { _, err := pinger.Request(ctx, kmsg.NewPtrApiVersionsRequest()); return err }
	disk := func() error { _, err := syncOnce(f); return err }
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for _, p := range []struct {
		into  *[]time.Duration
		do    func() error
		pause time.Duration
	}{{&s.produce, produce, 2 * time.Millisecond}, {&s.ping, ping, 5 * time.Millisecond}, {&s.disk, disk, 20 * time.Millisecond}} {
		require.NoError(b, p.do()) // connections are made
		all.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				if err := p.do(); err != nil {
					b.Errorf("probe: %v", err)
					return
				}
				*p.into = append(*p.into, time.Since(began))
				<-time.After(p.pause)
			}
		})
	}
	all.Wait()
}

// restless is a group whose members come and go all the time.
type restless struct {
	b                   *testing.B
	broker              *process.Broker
	cancel              context.CancelFunc
	members             sync.WaitGroup
	commits, rebalances atomic.Int64
}

// newRestless starts the group and returns when each of its members has committed once, on the average.
func newRestless(b *testing.B, broker *process.Broker, members int) *restless {
	ctx, cancel := context.WithCancel(b.Context())
	r := &restless{b: b, broker: broker, cancel: cancel}
	for i := range members {
		r.members.Go(func() {
			for ctx.Err() == nil {
				life := time.Hour // eight stay, the others come and go
				if i < 2 {
					life = time.Second
				}
				r.live(ctx, int32(i), life)
			}
		})
	}
	require.Eventually(b, func() bool { return r.commits.Load() > int64(members) && r.rebalances.Load() > int64(members) }, patient, 10*time.Millisecond)
	return r
}

// live is a member for the given time.
func (r *restless) live(ctx context.Context, p int32, life time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, life)
	defer cancel()
	cl := dial(r.b, r.broker, kgo.ConsumerGroup("restless"), kgo.ConsumeTopics("work"), kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()),
		kgo.HeartbeatInterval(100*time.Millisecond), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { r.rebalances.Add(1) }))
	defer cl.Close()
	var polls sync.WaitGroup
	polls.Go(func() {
		for ctx.Err() == nil {
			cl.PollFetches(ctx)
		}
	})
	for n := int64(1); ctx.Err() == nil; n++ {
		done := func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if err == nil && resp != nil && len(resp.Topics) == 1 && resp.Topics[0].Partitions[0].ErrorCode == 0 {
				r.commits.Add(1)
			}
		}
		// During a rebalance commits are refused, which is not what this is about.
		cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{"work": {p: {Epoch: -1, Offset: n}}}, done)
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	polls.Wait()
}

// end stops all members.
func (r *restless) end() {
	r.cancel()
	r.members.Wait()
}
