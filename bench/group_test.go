package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/tierbroker/tierbroker/bench/drive"
	"github.com/tierbroker/tierbroker/bench/process"
)

// groupTopic makes the topic that the groups of a benchmark consume.
func groupTopic(b *testing.B, broker *process.Broker, partitions int) {
	o := drive.Options{Topic: "work", Partitions: partitions, Durability: "sync"}
	require.NoError(b, drive.EnsureTopic(b.Context(), broker.Kafka, &o))
}

func dial(b *testing.B, broker *process.Broker, opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(broker.Kafka))...)
	require.NoError(b, err)
	return cl
}

// commitOnce commits one offset of a group without members, as a consumer that assigns its partitions itself does.
func commitOnce(ctx context.Context, cl *kgo.Client, group string, p int32, offset int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset = p, offset
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "work", Partitions: []kmsg.OffsetCommitRequestTopicPartition{rp}}}
	r, err := cl.Request(ctx, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

// BenchmarkGroupCommits commits offsets over TCP: each committer is a client of its own with a group of its own, commits one
// partition and waits for the answer, which comes when the commit is durable. The bound of one committer is the disk's fdatasync
// (bare-sync-ms: pwrite and fdatasync of 4 KiB, alone, before the run).
func BenchmarkGroupCommits(b *testing.B) {
	dir := b.TempDir()
	broker := startBroker(b, filepath.Join(dir, "data"))
	defer stopBroker(b, broker)
	groupTopic(b, broker, 64)
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprintf("committers=%d", n), func(b *testing.B) {
			var clients []*kgo.Client
			for i := range n {
				cl := dial(b, broker, kgo.MaxVersions(kversion.V3_9_0()))
				defer cl.Close()
				clients = append(clients, cl)
				require.NoError(b, commitOnce(b.Context(), cl, fmt.Sprint("g-", i), int32(i), 0))
			}
			bare := syncProbe(b, dir, 50)
			var next atomic.Int64
			took := make([][]time.Duration, n)
			b.ResetTimer()
			each(n, func(i int) {
				for at := next.Add(1); at <= int64(b.N); at = next.Add(1) {
					began := time.Now()
					if err := commitOnce(b.Context(), clients[i], fmt.Sprint("g-", i), int32(i), at); err != nil {
						b.Error(err)
						return
					}
					took[i] = append(took[i], time.Since(began))
				}
			})
			b.StopTimer()
			all := slices.Concat(took...)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			b.ReportMetric(ms(median(all)), "p50-ms")
			b.ReportMetric(ms(quantile(all, 0.99)), "p99-ms")
			b.ReportMetric(ms(median(bare)), "bare-sync-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkGroupJoin brings a hundred franz-go clients into one group over a hundred partitions, and measures from the first
// client's making until each has its partition. The classic protocol waits group.initial.rebalance.delay.ms for further members
// (here 0); in the new one members learn what is theirs with a heartbeat, every group.consumer.heartbeat.interval.ms (5 s).
func BenchmarkGroupJoin(b *testing.B) {
	const members = 100
	for _, c := range []struct {
		name string
		opts []kgo.Opt
	}{
		{"classic", []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}},
		{"consumer", []kgo.Opt{kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.Setenv("TIERBROKER_KAFKA_CONFIG", "group.initial.rebalance.delay.ms=0")
			broker := startBroker(b, filepath.Join(b.TempDir(), "data"))
			defer stopBroker(b, broker)
			groupTopic(b, broker, members)
			first := dial(b, broker, kgo.MaxVersions(kversion.V3_9_0()))
			require.NoError(b, commitOnce(b.Context(), first, "none", 0, 0)) // the internal topic is there
			first.Close()
			var took []time.Duration
			var cpu []float64
			for turn := 0; b.Loop(); turn++ {
				ready := newReadiness(members)
				before, err := broker.Usage()
				require.NoError(b, err)
				began := time.Now()
				var clients []*kgo.Client
				for range members {
					clients = append(clients, dial(b, broker, append(ready.opts(), append(c.opts, kgo.ConsumerGroup(fmt.Sprint("g-", turn)), kgo.ConsumeTopics("work"))...)...))
				}
				select {
				case <-ready.all:
				case <-time.After(patient):
					b.Fatalf("%s", ready)
				}
				took = append(took, time.Since(began))
				after, err := broker.Usage()
				require.NoError(b, err)
				cpu = append(cpu, (after.CPU() - before.CPU()).Seconds())
				var closed sync.WaitGroup
				for _, cl := range clients {
					closed.Go(cl.Close)
				}
				closed.Wait()
			}
			b.Logf("%v, broker's processor seconds %.2f", took, cpu)
			slices.Sort(cpu)
			b.ReportMetric(median(took).Seconds(), "s")
			b.ReportMetric(cpu[len(cpu)/2], "broker-cpu-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// readiness notes who has which partitions, until every partition has one owner and every member one partition.
type readiness struct {
	mu      sync.Mutex
	members int
	has     map[*kgo.Client]map[int32]bool
	all     chan struct{}
	done    bool
}

func newReadiness(members int) *readiness {
	return &readiness{members: members, has: map[*kgo.Client]map[int32]bool{}, all: make(chan struct{})}
}

func (r *readiness) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d members of %d have partitions", len(r.has), r.members)
}

func (r *readiness) opts() []kgo.Opt {
	change := func(have bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, cl *kgo.Client, m map[string][]int32) { r.change(cl, m["work"], have) }
	}
	return []kgo.Opt{kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false))}
}

func (r *readiness) change(cl *kgo.Client, ps []int32, have bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has[cl] == nil {
		r.has[cl] = map[int32]bool{}
	}
	owned := map[int32]bool{}
	for _, p := range ps {
		if have {
			r.has[cl][p] = true
		} else {
			delete(r.has[cl], p)
		}
	}
	for _, own := range r.has {
		if len(own) != 1 {
			return
		}
		for p := range own {
			owned[p] = true
		}
	}
	if !r.done && len(owned) == r.members {
		r.done = true
		close(r.all)
	}
}
