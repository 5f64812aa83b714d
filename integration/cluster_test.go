package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// inbox is what the members of a group have read: how often each value.
type inbox struct {
	mu   sync.Mutex
	seen map[string]int
}

func (b *inbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seen)
}

// consume reads as a member of a group until ctx ends.
func (b *inbox) consume(ctx context.Context, m *mesh, group, topic string, wg *sync.WaitGroup) {
	cl := m.client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitInterval(200*time.Millisecond), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))
	wg.Go(func() {
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				b.mu.Lock()
				b.seen[string(r.Value)]++
				b.mu.Unlock()
			})
		}
	})
}

// produceEach writes n records to every partition and waits for all of them.
func (m *mesh) produceEach(cl *kgo.Client, topic string, partitions int32, tag string, n int) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	defer cancel()
	var rs []*kgo.Record
	for p := range partitions {
		for i := range n {
			rs = append(rs, &kgo.Record{Topic: topic, Partition: p, Value: fmt.Appendf(nil, "%s-%d-%d", tag, p, i)})
		}
	}
	require.NoError(m.t, cl.ProduceSync(ctx, rs...).FirstErr())
}

// Three brokers and a controller, each a process: every broker serves its share, and a broker that is killed comes back with
// what it had. Meanwhile the others go on, and clients of its sync partitions wait for it.
func TestClusterBrokerIsKilled(t *testing.T) {
	t.Parallel()
	m := newMesh(t, meshOptions{brokers: 3, controllers: 1})
	m.start()
	const partitions = 6
	m.createTopic("t", partitions, nil)
	adm := kadm.NewClient(m.client())
	leaders, err := m.leaders(adm, "t")
	require.NoError(t, err)
	share := map[int32]int{}
	for _, b := range leaders {
		share[b]++
	}
	require.Equal(t, map[int32]int{1: 2, 2: 2, 3: 2}, share, "partitions by broker")

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	in := &inbox{seen: map[string]int{}}
	for range 2 {
		in.consume(ctx, m, "g", "t", &wg)
	}
	defer func() { cancel(); wg.Wait() }()
	producer := m.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	m.produceEach(producer, "t", partitions, "before", 50)
	m.eventually(time.Minute, "the group has read what was written", func() bool { return in.count() == 50*partitions })

	m.brokers[1].kill()
	m.eventually(30*time.Second, "broker 2 leads nothing any more", func() bool {
		now, err := m.leaders(adm, "t")
		return err == nil && len(now) == partitions-2
	})
	// What it had waits for it; the rest goes on.
	short, stop := context.WithTimeout(ctx, 2*time.Second)
	for p, b := range leaders {
		if b != 2 {
			require.NoError(t, producer.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: p, Value: fmt.Appendf(nil, "meanwhile-%d", p)}).FirstErr())
			continue
		}
		waiting := m.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite())
		require.Error(t, waiting.ProduceSync(short, &kgo.Record{Topic: "t", Partition: p, Value: []byte("nobody takes it")}).FirstErr())
	}
	stop()
	m.brokers[1].start()
	m.produceEach(producer, "t", partitions, "after", 50)
	m.eventually(time.Minute, "the group has read everything", func() bool { return in.count() >= 100*partitions+4 })
	for _, b := range m.brokers {
		require.Contains(t, readTopic(t, b.kafka, "t")[0][0], "before-0-0", "read through broker %d", b.id)
	}
	committed, err := adm.FetchOffsets(ctx, "g")
	require.NoError(t, err)
	require.NoError(t, committed.Error())
}

// etcd is away for much longer than a lease: brokers stay, reads go on, writes of sync topics stop before the lease can end and
// go on when etcd is back. Nobody loses its partitions by that.
func TestClusterWithoutEtcd(t *testing.T) {
	t.Parallel()
	m := newMesh(t, meshOptions{brokers: 2, controllers: 1})
	m.start()
	m.createTopic("t", 4, nil)
	producer := m.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	m.produceEach(producer, "t", 4, "before", 10)
	epochs := m.epochs("t")

	m.controllers[0].kill()
	w := newWire(t, m.brokers[0].node)
	p := m.ownedBy(1, "t")
	m.eventually(30*time.Second, "writes of a sync topic stop", func() bool {
		return w.produce("t", p, []byte("doubt")).err == kerr.NotLeaderForPartition
	})
	require.False(t, m.brokers[0].ready(), "a broker in doubt says so")
	got, err := w.fetch("t", p, 0)
	require.NoError(t, err, "reads go on")
	require.NotEmpty(t, got)
	// Long after the lease.
	until := time.After(2 * 3 * time.Second)
	for waiting := true; waiting; {
		select {
		case <-until:
			waiting = false
		default:
			r := w.produce("t", p, []byte("doubt"))
			require.Equal(t, error(kerr.NotLeaderForPartition), r.err)
			_, err := w.fetch("t", p, 0)
			require.NoError(t, err)
		}
	}
	m.controllers[0].start()
	m.produceEach(producer, "t", 4, "after", 10)
	require.Equal(t, epochs, m.epochs("t"), "etcd that comes back in time for nobody takes nothing from anybody")
	for _, b := range m.brokers {
		b.eventually(10*time.Second, "ready", b.ready)
	}
}

// A broker that stood still for longer than its lease comes back as another incarnation, in the same process and on the same port.
func TestClusterBrokerIsPausedPastItsLease(t *testing.T) {
	t.Parallel()
	m := newMesh(t, meshOptions{brokers: 2, controllers: 1})
	m.start()
	m.createTopic("t", 4, nil)
	producer := m.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	m.produceEach(producer, "t", 4, "before", 10)
	epochs := m.epochs("t")
	p := m.ownedBy(2, "t")

	b := m.brokers[1]
	pid := b.cmd.Process.Pid
	// A request that was on its way when the process stopped is not confirmed after it has gone on.
	w := newWire(t, b.node)
	require.NoError(t, w.produce("t", p, []byte("x")).err)
	b.pause()
	answer := make(chan error, 1)
	go func() { answer <- w.produce("t", p, []byte("late")).err }()
	// A client would ask any broker, and wait for the one that stands still.
	other := m.client(kgo.SeedBrokers(m.brokers[0].kafka)).SeedBrokers()[0]
	m.eventually(30*time.Second, "its registration is gone", func() bool {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{}
		resp, err := other.Request(t.Context(), req)
		return err == nil && len(resp.(*kmsg.MetadataResponse).Brokers) == 1
	})
	b.resume()
	require.Equal(t, error(kerr.NotLeaderForPartition), <-answer)
	m.produceEach(producer, "t", 4, "after", 10)
	require.Equal(t, pid, b.cmd.Process.Pid)
	require.Contains(t, b.out.String(), "joining the cluster again")
	after := m.epochs("t")
	require.Greater(t, after[p], epochs[p])
	require.Equal(t, epochs[m.ownedBy(1, "t")], after[m.ownedBy(1, "t")], "the other broker's partitions are as they were")
	b.eventually(10*time.Second, "ready", b.ready)
}

// Cut from etcd, and from nothing else, a broker does the same.
func TestClusterBrokerIsCutFromEtcd(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]linkState{"refused": linkRefused, "frozen": linkFrozen} {
		t.Run(name, func(t *testing.T) {
			m := newMesh(t, meshOptions{brokers: 2, controllers: 1})
			m.start()
			m.createTopic("t", 4, nil)
			producer := m.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
			m.produceEach(producer, "t", 4, "before", 10)
			b := m.brokers[0]
			w := newWire(t, b.node)
			p := m.ownedBy(1, "t")
			b.links(state)
			m.eventually(30*time.Second, "writes of a sync topic stop", func() bool {
				return w.produce("t", p, []byte("doubt")).err == kerr.NotLeaderForPartition
			})
			other := newWire(t, m.brokers[1].node)
			require.NoError(t, other.produce("t", m.ownedBy(2, "t"), []byte("goes on")).err)
			seen := kadm.NewClient(m.client(kgo.SeedBrokers(m.brokers[1].kafka)))
			m.eventually(30*time.Second, "its lease has ended", func() bool {
				leaders, err := m.leaders(seen, "t")
				return err == nil && len(leaders) == 2
			})
			got, err := w.fetch("t", p, 0)
			require.NoError(t, err, "reads go on")
			require.NotEmpty(t, got)
			b.links(linkUp)
			m.produceEach(producer, "t", 4, "after", 10)
			b.eventually(10*time.Second, "ready", b.ready)
		})
	}
}
