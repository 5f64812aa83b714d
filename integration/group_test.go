package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
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

// member consumes until stop; a static one then doesn't leave the group, as if it had crashed.
type member struct {
	cl   *kgo.Client
	stop context.CancelFunc
	done chan struct{}
}

func (l *crew) join(n *node, who string, balancer kgo.GroupBalancer, more ...kgo.Opt) *member {
	l.t.Helper()
	cl, err := kgo.NewClient(append(more, kgo.SeedBrokers(n.kafka), kgo.ConsumerGroup("workers"), kgo.ConsumeTopics("work"), kgo.ClientID(who),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(2*time.Second), kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.RebalanceTimeout(5*time.Second), kgo.Balancers(balancer), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { l.assigned(who, m["work"]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { l.revoked(who, m["work"]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { l.revoked(who, m["work"]) }),
	)...)
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
	t.Parallel()
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
			ms = append(ms, l.join(n, "m5", b.balancer), l.join(n, "m6", b.balancer, kgo.InstanceID("six")))
			awaitThat(t, "six share", func() bool { return l.balanced(6) })
			ms[1].leave()
			ms[2].leave()
			n.kill()
			n.start()
			awaitThat(t, "four are left", func() bool { return l.balanced(4) })
			close(traffic)
			<-ended
			ms[5].leave() // no word to the broker: its session ends
			awaitThat(t, "three are left", func() bool { return l.balanced(3) })
			awaitThat(t, "everything is processed", func() bool { return l.count() == sent })
			for _, m := range []*member{ms[0], ms[3], ms[4]} {
				m.leave()
			}
			t.Logf("%d records", sent)
		})
	}
}

// TestTierctlGroups: lag by records, bytes, time and place; resets with their dry run; deletion.
func TestTierctlGroups(t *testing.T) {
	t.Parallel()
	n := groupNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.DefaultProduceTopic("work"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	began := time.Now().Add(-time.Hour)
	produce := func(from, to int) {
		for i := from; i < to; i++ {
			r := kgo.StringRecord(fmt.Sprint("a record of the group's test ", i))
			r.Partition, r.Timestamp = int32(i%2), began.Add(time.Duration(i)*time.Second)
			require.NoError(t, cl.ProduceSync(ctx, r).FirstErr())
		}
	}
	produce(0, 40)
	n.at(t, 0, "", "topic", "roll", "work")
	n.at(t, 0, "", "topic", "evict", "work")
	produce(40, 60)
	var os kadm.Offsets
	os.AddOffset("work", 0, 10, -1)
	require.NoError(t, kadm.NewClient(cl).CommitAllOffsets(ctx, "readers", os))

	out, _ := n.at(t, 0, "", "group", "list", "--state", "Empty", "-o", "json")
	require.Contains(t, out, `"group": "readers"`)
	out, _ = n.at(t, 0, "", "group", "describe", "readers", "-o", "json")
	var d struct {
		State      string
		Partitions []struct {
			Partition     int32
			Committed     int64
			LagRecords    int64 `json:"lag_records"`
			LagBytes      int64 `json:"lag_bytes"`
			LagMs         int64 `json:"lag_ms"`
			RecordsBucket int64 `json:"records_in_bucket"`
			BytesBucket   int64 `json:"bytes_in_bucket"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Len(t, d.Partitions, 1)
	p := d.Partitions[0]
	require.Equal(t, []int64{10, 20, 10}, []int64{p.Committed, p.LagRecords, p.RecordsBucket}, out)
	require.Greater(t, p.LagBytes, p.BytesBucket)
	require.Positive(t, p.BytesBucket)
	require.InDelta(t, time.Since(began.Add(20*time.Second)).Milliseconds(), p.LagMs, 60_000)

	reset := func(want string, args ...string) {
		t.Helper()
		n.at(t, 0, "work,0,3\nwork,1,4\n", append([]string{"group", "reset", "readers", "--apply"}, args...)...)
		got, err := kadm.NewClient(cl).FetchOffsets(ctx, "readers")
		require.NoError(t, err)
		var s string
		for _, o := range got.Sorted() {
			s += fmt.Sprintf("%d:%d ", o.Partition, o.At)
		}
		require.Equal(t, want, s)
	}
	out, errOut := n.at(t, 0, "", "group", "reset", "readers", "--to", "earliest")
	require.Contains(t, errOut, "nothing was changed")
	require.Contains(t, out, "30")
	reset("0:30 ", "--to", "latest")
	reset("0:0 1:0 ", "--to", "earliest", "--topic", "work", "--partition", "0,1")
	reset("0:5 1:0 ", "--to", "5", "--topic", "work", "--partition", "0")
	reset("0:30 1:30 ", "--to", "999")
	reset("0:15 1:15 ", "--to", "@"+strconv.FormatInt(began.Add(30*time.Second).UnixMilli(), 10))
	reset("0:0 1:0 ", "--to", "-2h")
	reset("0:3 1:4 ", "--from-file", "-")
	n.at(t, 2, "", "group", "reset", "readers", "--to", "soon")
	n.at(t, 2, "", "group", "reset", "readers")

	l := newCrew(t)
	m := l.join(n, "m0", kgo.RangeBalancer())
	awaitThat(t, "a member has everything", func() bool { return l.balanced(1) })
	_, errOut = n.at(t, 1, "", "group", "reset", "workers", "--topic", "work", "--to", "earliest", "--apply")
	require.Contains(t, errOut, "1 members")
	_, errOut = n.at(t, 1, "", "group", "delete", "workers", "--yes")
	require.Contains(t, errOut, "NON_EMPTY_GROUP")
	out, _ = n.at(t, 0, "", "group", "describe", "workers")
	require.Contains(t, out, "Stable, assignor range")
	m.leave()
	n.at(t, 0, "", "group", "delete", "workers", "readers", "--yes")
	_, errOut = n.at(t, 1, "", "group", "describe", "readers")
	require.Contains(t, errOut, "there is no group readers")
}
