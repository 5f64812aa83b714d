package integration

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var checkerPartitions = flag.String("checker.partitions", "1,50", "for how many partitions the time of a failover is measured")

// The owner of partitions with durability object is killed with its disk: how long until others acknowledge writes?
func TestFailoverTime(t *testing.T) {
	for _, text := range strings.Split(*checkerPartitions, ",") {
		count, err := strconv.Atoi(text)
		require.NoError(t, err)
		t.Run(text, func(t *testing.T) { failover(t, count) })
	}
}

func failover(t *testing.T, count int) {
	const lease = 3 * time.Second
	m := newMesh(t, meshOptions{brokers: 3, controllers: 1, lease: lease})
	m.start()
	// A third of the partitions is at each broker.
	m.createTopic("t", int32(3*count), map[string]string{"tierbroker.durability": "object", "segment.ms": "60000"})
	victim := m.brokers[0]
	var mine []slot
	for _, p := range m.describe("t") {
		if p.Leader == victim.id {
			mine = append(mine, slot{"t", p.Partition})
		}
	}
	require.Len(t, mine, count)
	h := newHistory()
	c := newCrowd(m, h, mine, time.Millisecond)
	t.Cleanup(c.stopAll)
	cl := m.client(append(patient(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.RecordRetries(1<<30))...)
	round(t, cl, h, mine, 0)
	began := time.Now()
	victim.kill()
	victim.wipe()
	times := round(t, cl, h, mine, 1)
	slices.Sort(times)
	t.Logf("%d partitions, lease %v: first acknowledgement %v after kill -9, half of them %v, all %v", count, lease,
		times[0].Round(time.Millisecond), times[len(times)/2].Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond))
	require.Less(t, times[0], lease+20*time.Second)
	require.Less(t, time.Since(began), 2*time.Minute)
	adm := kadm.NewClient(m.client(patient()...))
	for i, s := range mine {
		if i%max(1, count/20) == 0 { // reading all of a thousand one by one would take long
			start, end, read := c.readFrom(adm, s, -1, time.Minute)
			h.whole(s, start, end, read)
		}
	}
	require.Empty(t, h.found())
}

// round writes one record to each partition, and returns after which time each was acknowledged.
func round(t *testing.T, cl *kgo.Client, h *history, slots []slot, seq int) []time.Duration {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var times []time.Duration
	for _, s := range slots {
		value := fmt.Sprintf("p/%s %d .", s, seq)
		cl.Produce(ctx, &kgo.Record{Topic: s.topic, Partition: s.partition, Value: []byte(value)}, func(r *kgo.Record, err error) {
			took := time.Since(began)
			if err != nil {
				h.fault("produce failed", "%s: %v", s, err)
				return
			}
			h.acknowledged("p", s, r.Offset, value)
			mu.Lock()
			times = append(times, took)
			mu.Unlock()
		})
	}
	require.NoError(t, cl.Flush(ctx))
	require.Len(t, times, len(slots), "%q", h.found())
	return times
}

// All brokers are told to stop and started again, one after the other, under load: no client sees an error that it can't
// try again, and how long each partition takes no writes is measured.
func TestRollingRestart(t *testing.T) {
	m := newMesh(t, meshOptions{brokers: 3, controllers: 1})
	m.start()
	var slots []slot
	for _, durability := range []string{"sync", "object"} {
		m.createTopic(durability, 6, map[string]string{"tierbroker.durability": durability, "segment.ms": "60000"})
		for p := range int32(6) {
			slots = append(slots, slot{durability, p})
		}
	}
	h := newHistory()
	c := newCrowd(m, h, slots, time.Millisecond)
	t.Cleanup(func() { c.stopAll(); c.writers.Wait(); c.readers.Wait() })
	acks := map[slot]*pulse{}
	for _, s := range slots {
		acks[s] = &pulse{}
	}
	c.onAck = func(s slot) { acks[s].beat() }
	c.produce("p", 1)
	c.follow("steady", 0)
	c.join("m", "object")
	c.watch()
	adm := kadm.NewClient(m.client(patient()...))
	n := &nemesis{m: m, c: c}
	n.calm(time.Minute)
	moved, stayed := map[string][]time.Duration{}, map[string][]time.Duration{}
	for _, b := range m.brokers {
		at := map[slot]int32{}
		for _, topic := range []string{"sync", "object"} {
			now, err := m.leaders(adm, topic)
			require.NoError(t, err)
			for p, leader := range now {
				at[slot{topic, p}] = leader
			}
		}
		from := time.Now()
		b.stop()
		stopped := time.Since(from)
		for _, topic := range []string{"sync", "object"} {
			m.eventually(10*time.Second, "every partition has found another broker", func() bool {
				now, err := m.leaders(adm, topic)
				return err == nil && len(now) == 6 && !slices.Contains(slices.Collect(maps.Values(now)), b.id)
			})
		}
		b.start()
		n.calm(time.Minute)
		to := time.Now()
		for _, s := range slots {
			if at[s] == b.id {
				moved[s.topic] = append(moved[s.topic], acks[s].longest(from, to))
			} else {
				stayed[s.topic] = append(stayed[s.topic], acks[s].longest(from, to))
			}
		}
		t.Logf("broker %d ended after %v and was ready again after %v", b.id, stopped.Round(time.Millisecond), time.Since(from).Round(time.Millisecond))
	}
	c.finish(time.Minute)
	for _, topic := range []string{"sync", "object"} {
		t.Logf("%s: longest pause of a partition whose broker restarted: %s; of the others: %s", topic, quantiles(moved[topic]), quantiles(stayed[topic]))
	}
	require.Empty(t, h.found())
}
