package integration

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/bucket/faultproxy"
)

// streamObjects counts the objects in the bucket that belong to WAL streams of a broker.
func (m *mesh) streamObjects(b bucket.Bucket, broker string) (keys []string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	for after := ""; ; {
		page, err := b.List(ctx, bucket.Op{Class: bucket.ClassSweep, Kind: bucket.KindWAL}, "wal/", after, bucket.MaxList)
		require.NoError(m.t, err)
		for _, o := range page.Items {
			if f := strings.Split(o.Key, "/"); len(f) > 2 && f[2] == broker {
				keys = append(keys, o.Key)
			}
		}
		if after = page.Next; after == "" {
			return keys
		}
	}
}

// An owner is stopped with WAL objects on their way to the bucket. Others take over, go on, and sweep its stream. Then it
// comes back, what was on its way arrives, and so do writes that clients had sent it: none of this changes anything.
func TestZombieOwnerAfterSweep(t *testing.T) {
	t.Parallel()
	m := newMesh(t, meshOptions{brokers: 2, controllers: 1, env: []string{"TIERBROKER_SWEEP_DELAY=1s"}})
	m.start()
	m.createTopic("t", 4, map[string]string{"tierbroker.durability": "object", "segment.ms": "2000", "segment.bytes": "1048576"})
	zombie := m.brokers[0]
	p := m.ownedBy(zombie.id, "t")
	s := slot{"t", p}
	h := newHistory()
	c := newCrowd(m, h, []slot{s}, 2*time.Millisecond)
	t.Cleanup(func() { c.stopAll(); c.writers.Wait(); c.readers.Wait() })
	c.produce("p", 1)
	c.follow("steady", 0)
	n := &nemesis{m: m, c: c}
	n.calm(time.Minute)
	raw := m.server.Open(t, "p")
	before := m.streamObjects(raw, "1")
	require.Greater(t, len(before), 1)

	// What it writes into its stream waits in the network, and what clients send it from now on waits too.
	zombie.bucket.SetMode(faultproxy.Mode{Kind: faultproxy.Hang, Match: func(method, path string) bool { return method == "PUT" && strings.Contains(path, "/wal/") }})
	m.eventually(time.Minute, "objects are on their way", func() bool { return zombie.bucket.Spoiled() >= 2 })
	w := newWire(t, zombie.node)
	zombie.pause()
	sent := make(chan error, 1)
	go func() { sent <- w.produce("t", p, []byte("zombie 0 .")).err }()
	adm := kadm.NewClient(m.client(append(patient(), kgo.SeedBrokers(m.brokers[1].kafka))...))
	m.eventually(time.Minute, "the other broker leads", func() bool {
		now, err := m.leaders(adm, "t")
		return err == nil && now[p] == 2
	})
	n.served(time.Minute)
	m.eventually(2*time.Minute, "the zombie's stream is swept", func() bool { return len(m.streamObjects(raw, "1")) == 1 })
	t.Logf("of %d objects of its stream one, the seal, is left", len(before))

	zombie.bucket.SetMode(faultproxy.Mode{})
	zombie.resume()
	require.Error(t, <-sent, "a write that a zombie had got")
	m.eventually(time.Minute, "it is a broker again", func() bool { return zombie.ready() })
	n.calm(time.Minute)
	c.finish(time.Minute)
	require.Empty(t, h.found())
}

// served waits until every partition has acknowledged something new, whatever brokers live.
func (n *nemesis) served(bound time.Duration) {
	n.m.t.Helper()
	began := time.Now()
	n.m.eventually(bound, "everything is served", func() bool { return len(n.c.h.late(n.c.slots, began)) == 0 })
}

// leading returns the node whose controller leads, as some other process is told.
func (m *mesh) leading(through *proc) int32 {
	_, body := through.get("/api/v1/cluster/status")
	status := struct {
		Controller int32 `json:"controller_id"`
	}{Controller: -1}
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		return -1
	}
	return status.Controller
}

// The controller that leads is stopped in the middle of moves and killed brokers. Another leads, and does what is to be done;
// then the first goes on with what it had in mind, which must change nothing.
func TestZombieController(t *testing.T) {
	t.Parallel()
	m := newMesh(t, meshOptions{brokers: 3, controllers: 3, env: []string{"TIERBROKER_SWEEP_DELAY=1s"}})
	m.start()
	m.createTopic("t", 6, map[string]string{"tierbroker.durability": "object", "segment.ms": "2000", "segment.bytes": "1048576"})
	var slots []slot
	for p := range int32(6) {
		slots = append(slots, slot{"t", p})
	}
	h := newHistory()
	c := newCrowd(m, h, slots, 4*time.Millisecond)
	t.Cleanup(func() { c.stopAll(); c.writers.Wait(); c.readers.Wait() })
	c.produce("p", 1)
	c.follow("steady", 0)
	adm := kadm.NewClient(m.client(patient()...))
	n := &nemesis{m: m, c: c, adm: adm}
	n.calm(time.Minute)
	var zombie *proc
	m.eventually(time.Minute, "a controller leads", func() bool {
		id := m.leading(m.brokers[0])
		for _, x := range m.controllers {
			if x.id == id {
				zombie = x
			}
		}
		return zombie != nil
	})
	epochs := m.epochs("t")
	n.send(1) // moves, of which some are under way
	zombie.pause()
	m.brokers[1].kill()
	m.eventually(time.Minute, "another controller leads", func() bool {
		id := m.leading(m.brokers[0])
		return id >= 0 && id != zombie.id
	})
	n.served(time.Minute)
	m.brokers[1].launch()
	n.send(2)
	m.eventually(time.Minute, "the moves are made", func() bool { return n.allAt(2) })
	settled := m.epochs("t")
	require.NotEqual(t, epochs, settled)
	zombie.resume()
	m.eventually(time.Minute, "it serves again", zombie.ready)
	n.calm(time.Minute)
	require.Equal(t, settled, m.epochs("t"), "nothing changes hands because of it")
	c.finish(time.Minute)
	require.Empty(t, h.found())
}
