package integration

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	checkerDuration = flag.Duration("checker.duration", 0, "how long each part of the checker works against the cluster (default 40s)")
	checkerSeed     = flag.Uint64("checker.seed", 0, "seed of the checker (default: another one each time)")
	checkerControls = flag.Int("checker.controllers", 1, "how many controllers the checker's cluster has; of several, two of three misfortunes hit the one that leads")
	checkerBound    = flag.Duration("checker.bound", 90*time.Second, "in which everything must be served after it was healed")
)

// A cluster of processes under clients that remember everything, while processes are killed, stopped and told to stop, networks
// are cut and partitions moved. No record may be lost, doubled or changed, nothing that was seen may go, nothing may go back,
// and whatever happened, everything is served again soon.
//
// Disks are lost in the first part, which has only partitions that don't need them.
func TestChecker(t *testing.T) {
	t.Run("object", func(t *testing.T) { check(t, true, map[string]string{"obj": "object"}) })
	t.Run("all", func(t *testing.T) { check(t, false, map[string]string{"obj": "object", "syn": "sync", "asy": "async"}) })
}

func check(t *testing.T, disks bool, topics map[string]string) {
	seed, duration := *checkerSeed, *checkerDuration
	if seed == 0 {
		seed = rand.Uint64() >> 12
	}
	if duration == 0 {
		duration = 25 * time.Second
	}
	t.Logf("-checker.seed %d", seed)
	const lease = 3 * time.Second
	m := newMesh(t, meshOptions{brokers: 3, controllers: *checkerControls, lease: lease, env: []string{"TIERBROKER_SWEEP_DELAY=10s"}})
	m.start()
	var slots []slot
	for _, name := range []string{"obj", "syn", "asy"} {
		if topics[name] == "" {
			continue
		}
		const partitions = 4
		m.createTopic(name, partitions, map[string]string{"tierbroker.durability": topics[name], "segment.ms": "7000", "segment.bytes": "1048576"})
		for p := range int32(partitions) {
			slots = append(slots, slot{name, p})
		}
	}
	h := newHistory()
	c := newCrowd(m, h, slots, 4*time.Millisecond)
	t.Cleanup(func() { c.stopAll(); c.writers.Wait(); c.readers.Wait() })
	c.produce("p1", seed)
	c.produce("p2", seed+1)
	c.follow("steady", 0)
	c.follow("again", 15*time.Second)
	c.join("m1", "obj")
	c.join("m2", "obj")
	c.watch()
	n := &nemesis{m: m, c: c, adm: kadm.NewClient(m.client(patient()...)), rnd: rand.New(rand.NewPCG(seed, 1)), lease: lease, disks: disks, made: map[string]int{}}
	n.calm(*checkerBound)
	n.run(duration, *checkerBound)
	n.heal()
	n.calm(*checkerBound)
	c.finish(*checkerBound)
	acked, seen := h.counts()
	t.Logf("%d records acknowledged, %d seen; %v", acked, seen, n.made)
	require.Empty(t, h.found())
}

// finish ends the writing, reads everything once more and compares.
func (c *crowd) finish(bound time.Duration) {
	t := c.m.t
	c.stopWriting()
	c.writers.Wait()
	c.m.eventually(bound, "every record is acknowledged", func() bool { return c.unacked.Load() == 0 })
	adm := kadm.NewClient(c.m.client(patient()...))
	ends := map[slot]int64{}
	for _, s := range c.slots {
		start, end, read := c.readFrom(adm, s, -1, bound)
		ends[s] = end
		c.h.whole(s, start, end, read)
	}
	if c.grouped != "" {
		c.m.eventually(bound, "the group has read everything", func() bool {
			if !c.positions(adm) {
				return false
			}
			for s, o := range c.h.confirmedCommits() {
				if o != ends[s] {
					return false
				}
			}
			return true
		})
		c.h.groupWhole()
	}
	c.stopAll()
	c.readers.Wait()
	require.NoError(t, t.Context().Err())
}

// readFrom reads one partition from an offset (-1: its start) to its end with a client of its own.
func (c *crowd) readFrom(adm *kadm.Client, s slot, from int64, bound time.Duration) (start, end int64, read map[int64]string) {
	t := c.m.t
	t.Helper()
	c.m.eventually(bound, "limits of "+s.String(), func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		starts, err := adm.ListStartOffsets(ctx, s.topic)
		if err != nil || starts.Error() != nil {
			return false
		}
		ends, err := adm.ListEndOffsets(ctx, s.topic)
		if err != nil || ends.Error() != nil {
			return false
		}
		a, _ := starts.Lookup(s.topic, s.partition)
		b, _ := ends.Lookup(s.topic, s.partition)
		start, end = a.Offset, b.Offset
		return true
	})
	cl, err := kgo.NewClient(append(patient(), kgo.SeedBrokers(c.m.seeds()...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		s.topic: {s.partition: kgo.NewOffset().At(max(start, from))}}))...)
	require.NoError(t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	read = map[int64]string{}
	for next := max(start, from); next < end; {
		require.NoError(t, ctx.Err(), "%s is read up to %d of %d", s, next, end)
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			read[r.Offset] = string(r.Value)
			next = r.Offset + 1
		})
	}
	return start, end, read
}
