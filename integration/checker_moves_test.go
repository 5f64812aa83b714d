package integration

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	checkerMoves = flag.Int("checker.moves", 5, "how often the test of moves moves a loaded partition, by durability")
	checkerBytes = flag.Int64("checker.bytes", 32<<20, "how much the larger of the partitions that are moved has in the bucket")
)

// pulse notes when acknowledgements come.
type pulse struct {
	mu    sync.Mutex
	times []time.Time
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = append(p.times, time.Now())
}

// longest returns the longest time between two acknowledgements around [from, to].
func (p *pulse) longest(from, to time.Time) (most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, _ := slices.BinarySearchFunc(p.times, from, time.Time.Compare)
	for i = max(i, 1); i < len(p.times) && !p.times[i-1].After(to); i++ {
		most = max(most, p.times[i].Sub(p.times[i-1]))
	}
	return most
}

// since tells whether a beat has come after a time.
func (p *pulse) since(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.times) > 0 && p.times[len(p.times)-1].After(t)
}

// quantiles describes measured times.
func quantiles(d []time.Duration) string {
	if len(d) == 0 {
		return "nothing measured"
	}
	s := slices.Clone(d)
	slices.Sort(s)
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	return fmt.Sprintf("n %d, min %d ms, median %d ms, p90 %d ms, max %d ms", len(s), ms(s[0]), ms(s[len(s)/2]), ms(s[len(s)*9/10]), ms(s[len(s)-1]))
}

// A loaded partition is moved to and fro under an idempotent producer: nothing is lost or doubled, and the longest time without
// an acknowledgement is measured at each move; for one with little in the bucket and for one with much.
func TestMovesUnderLoad(t *testing.T) {
	m := newMesh(t, meshOptions{brokers: 2, controllers: 1, env: []string{"TIERBROKER_DISK_BUDGET=256MiB"}})
	m.start()
	for _, durability := range []string{"sync", "object"} {
		for _, bytes := range []int64{0, *checkerBytes} {
			t.Run(fmt.Sprintf("%s/%d MB", durability, bytes>>20), func(t *testing.T) { movesOf(t, m, durability, bytes) })
		}
	}
}

func movesOf(t *testing.T, m *mesh, durability string, bytes int64) {
	topic := fmt.Sprintf("%s-%d", durability, bytes)
	m.createTopic(topic, 1, map[string]string{"tierbroker.durability": durability, "segment.bytes": "16777216", "segment.ms": "60000"})
	if bytes > 0 {
		m.load(topic, bytes)
	}
	s := slot{topic, 0}
	h := newHistory()
	c := newCrowd(m, h, []slot{s}, 2*time.Millisecond)
	t.Cleanup(func() { c.stopAll(); c.writers.Wait(); c.readers.Wait() })
	acks := &pulse{}
	c.onAck = func(slot) { acks.beat() }
	c.produce("p", 1)
	adm := kadm.NewClient(m.client(patient()...))
	m.eventually(time.Minute, "the producer is on its way", func() bool { return acks.since(h.began.Add(time.Second)) })
	began := time.Now()
	var gaps, quiet []time.Duration
	for range *checkerMoves {
		from := time.Now()
		m.move(adm, s)
		moved := time.Now()
		m.eventually(time.Minute, "an acknowledgement after the move", func() bool { return acks.since(moved) })
		gaps = append(gaps, acks.longest(from, time.Now()))
		calm := time.Now()
		m.eventually(time.Minute, "half a second of acknowledgements", func() bool { return acks.since(calm.Add(500 * time.Millisecond)) })
		quiet = append(quiet, acks.longest(calm.Add(50*time.Millisecond), time.Now()))
	}
	took := time.Since(began)
	c.stopWriting()
	c.writers.Wait()
	m.eventually(time.Minute, "every record is acknowledged", func() bool { return c.unacked.Load() == 0 })
	c.checkTail(adm, s)
	acked, _ := h.counts()
	t.Logf("%s with %d MB: %d moves in %v, %d records; longest gap between acknowledgements at a move: %s; in half a second without: %s",
		durability, bytes>>20, *checkerMoves, took.Round(time.Second), acked, quantiles(gaps), quantiles(quiet))
	require.Empty(t, h.found())
}

// move sends a partition to the other broker and waits until clients are told that it is there.
func (m *mesh) move(adm *kadm.Client, s slot) {
	m.t.Helper()
	now, err := m.leaders(adm, s.topic)
	require.NoError(m.t, err)
	to := int32(3) - now[s.partition]
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(s.topic, s.partition, []int32{to})
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	r, err := adm.AlterPartitionAssignments(ctx, req)
	require.NoError(m.t, err)
	require.NoError(m.t, r.Error())
	m.eventually(time.Minute, fmt.Sprintf("%s is at broker %d", s, to), func() bool {
		now, err := m.leaders(adm, s.topic)
		return err == nil && now[s.partition] == to
	})
}

// load writes so many bytes to partition 0, in large batches that don't compress, and waits until most of them are in the bucket.
func (m *mesh) load(topic string, bytes int64) {
	m.t.Helper()
	cl := m.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedBytes(32<<20))
	rnd := rand.New(rand.NewPCG(1, 2))
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Hour)
	defer cancel()
	block := randomText(rnd, "", 256<<10)
	for done := int64(0); done < bytes; done += int64(len(block)) {
		value := fmt.Appendf(nil, "load %d ", done)
		value = append(value, block...)
		cl.Produce(ctx, &kgo.Record{Topic: topic, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				m.t.Errorf("load: %v", err)
			}
		})
	}
	require.NoError(m.t, cl.Flush(ctx))
}

// checkTail compares what was acknowledged with what is there from the first record of the history on.
func (c *crowd) checkTail(adm *kadm.Client, s slot) {
	c.m.t.Helper()
	first := c.h.first(s)
	c.h.deleting(s, first) // as if: what was loaded before is none of the history's business
	_, end, read := c.readFrom(adm, s, first, 5*time.Minute)
	c.h.whole(s, first, end, read)
}
