package integration

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const groupPartitions = 12

// groupNode is a broker whose groups are quick, with a topic of twelve partitions.
func groupNode(t *testing.T) *node {
	n := newNode(t)
	n.env = append(n.env, "TIERBROKER_KAFKA_CONFIG=group.initial.rebalance.delay.ms=100;group.min.session.timeout.ms=500")
	n.start()
	n.tierctl("topic", "create", "work", "--partitions", strconv.Itoa(groupPartitions))
	return n
}

// crew is what a group's members tell each other outside of the broker: who owns which partition, and what was processed.
type crew struct {
	t         *testing.T
	mu        sync.Mutex
	owner     map[int32]string
	processed map[string]int
}

func newCrew(t *testing.T) *crew {
	return &crew{t: t, owner: map[int32]string{}, processed: map[string]int{}}
}

func (l *crew) assigned(who string, ps []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range ps {
		if o := l.owner[p]; o != "" && o != who {
			l.t.Errorf("partition %d goes to %s, and %s still has it", p, who, o)
		}
		l.owner[p] = who
	}
}

func (l *crew) revoked(who string, ps []int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range ps {
		if l.owner[p] == who {
			delete(l.owner, p)
		}
	}
}

func (l *crew) done(v string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processed[v]++
}

func (l *crew) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.processed)
}

// balanced says whether every partition has an owner and every member its share.
func (l *crew) balanced(members int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	share := map[string]int{}
	for _, o := range l.owner {
		share[o]++
	}
	if len(l.owner) != groupPartitions || len(share) != members {
		return false
	}
	for _, n := range share {
		if n < groupPartitions/members || n > (groupPartitions+members-1)/members {
			return false
		}
	}
	return true
}

// member consumes until stop: it leaves the group, or, as a crash, doesn't.
type member struct {
	cl   *kgo.Client
	stop context.CancelFunc
	done chan struct{}
}

func (l *crew) join(n *node, who string, balancer kgo.GroupBalancer) *member {
	l.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.ConsumerGroup("workers"), kgo.ConsumeTopics("work"), kgo.ClientID(who),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(2*time.Second), kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.RebalanceTimeout(5*time.Second), kgo.Balancers(balancer), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { l.assigned(who, m["work"]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { l.revoked(who, m["work"]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { l.revoked(who, m["work"]) }),
	)
	require.NoError(l.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{cl: cl, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			fs := cl.PollRecords(ctx, 200)
			fs.EachRecord(func(r *kgo.Record) { l.done(string(r.Value)) })
			if !fs.Empty() {
				// A commit that fails is repeated after the next poll, or its records come again.
				if err := cl.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
					l.t.Logf("%s: commit: %v", who, err)
				}
			}
			cl.AllowRebalance()
		}
	}()
	return m
}

func (m *member) leave() {
	m.stop()
	<-m.done
	m.cl.AllowRebalance()
	m.cl.Close()
}

func awaitThat(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 60*time.Second, 20*time.Millisecond, what)
}

// TestGroupRebalances: members join, leave and crash under traffic; everything is processed, no partition has two
// owners at one time, assignments settle. The broker is killed twice on the way.
func TestGroupRebalances(t *testing.T) {
	for _, b := range []struct {
		name     string
		balancer kgo.GroupBalancer
	}{{"range", kgo.RangeBalancer()}, {"cooperative", kgo.CooperativeStickyBalancer()}} {
		t.Run(b.name, func(t *testing.T) {
			n := groupNode(t)
			l := newCrew(t)
			p, err := kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.DefaultProduceTopic("work"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
			require.NoError(t, err)
			defer p.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			sent := 0
			traffic, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				for {
					select {
					case <-traffic:
						return
					case <-time.After(2 * time.Millisecond):
					}
					if err := p.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint("r", sent))).FirstErr(); err != nil {
						t.Errorf("produce: %v", err)
						return
					}
					sent++
				}
			}()
			var ms []*member
			for i := range 4 {
				ms = append(ms, l.join(n, fmt.Sprint("m", i), b.balancer))
			}
			awaitThat(t, "four members share", func() bool { return l.balanced(4) })
			ms[0].leave()
			awaitThat(t, "three share", func() bool { return l.balanced(3) })
			n.kill()
			n.start()
			ms[0] = l.join(n, "m4", b.balancer)
			ms = append(ms, l.join(n, "m5", b.balancer), l.join(n, "m6", b.balancer))
			awaitThat(t, "six share", func() bool { return l.balanced(6) })
			ms[1].leave()
			ms[2].leave()
			n.kill()
			n.start()
			awaitThat(t, "four are left", func() bool { return l.balanced(4) })
			close(traffic)
			<-ended
			awaitThat(t, "everything is processed", func() bool { return l.count() == sent })
			for _, m := range []*member{ms[0], ms[3], ms[4], ms[5]} {
				m.leave()
			}
			t.Logf("%d records", sent)
		})
	}
}

// TestCommitSurvivesKill: an acknowledged commit is there after kill -9, every time.
func TestCommitSurvivesKill(t *testing.T) {
	n := groupNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for round := range 20 {
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.kafka))
		require.NoError(t, err)
		adm := kadm.NewClient(cl)
		at := int64(0)
		for i := range 1 + round%5 {
			at = int64(1000*round + i)
			var os kadm.Offsets
			for p := range int32(groupPartitions) {
				os.AddOffset("work", p, at+int64(p), -1)
			}
			for {
				resp, err := adm.CommitOffsets(ctx, "keeper", os)
				if err == nil {
					err = resp.Error()
				}
				if err == nil {
					break
				}
				require.True(t, kerr.IsRetriable(err), "%v", err)
			}
		}
		n.kill() // right behind the acknowledgement
		cl.Close()
		n.start()
		cl, err = kgo.NewClient(kgo.SeedBrokers(n.kafka))
		require.NoError(t, err)
		var got kadm.OffsetResponses
		for {
			if got, err = kadm.NewClient(cl).FetchOffsets(ctx, "keeper"); err == nil {
				break
			}
			require.True(t, kerr.IsRetriable(err), "%v", err)
		}
		for p := range int32(groupPartitions) {
			o, ok := got.Lookup("work", p)
			require.True(t, ok, "round %d, partition %d", round, p)
			require.Equal(t, at+int64(p), o.At, "round %d, partition %d", round, p)
		}
		cl.Close()
	}
}
