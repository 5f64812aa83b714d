package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/tierbroker/tierbroker/tier/bucket/faultproxy"
)

// nemesis does to a mesh what machines, networks and operators do. What it does is drawn from the seed alone; when, depends on
// how fast the cluster is.
type nemesis struct {
	m     *mesh
	c     *crowd
	adm   *kadm.Client
	rnd   *rand.Rand
	lease time.Duration
	disks bool // data directories may be lost
	made  map[string]int
}

// misfortune is one thing that can happen.
type misfortune struct {
	name   string
	weight int
	do     func(*nemesis)
}

var misfortunes = []misfortune{
	{"broker killed", 4, func(n *nemesis) { n.killed(n.broker(), false) }},
	{"broker killed, disk lost", 3, func(n *nemesis) { n.killed(n.broker(), true) }},
	{"broker paused past its lease", 4, func(n *nemesis) { n.paused(n.broker(), n.lease+n.upTo(n.lease)) }},
	{"broker paused for a moment", 2, func(n *nemesis) { n.paused(n.broker(), n.upTo(n.lease/2)) }},
	{"cut from etcd", 3, func(n *nemesis) { n.cut(n.broker(), true, false) }},
	{"cut from the bucket", 4, func(n *nemesis) { n.cut(n.broker(), false, true) }},
	{"cut from both", 3, func(n *nemesis) { n.cut(n.broker(), true, true) }},
	{"moves", 4, (*nemesis).moves},
	{"controller killed in mid-move", 3, func(n *nemesis) { n.moves(); n.killed(n.controller(), false) }},
	{"controller paused in mid-move", 2, func(n *nemesis) { n.moves(); n.paused(n.controller(), n.lease+n.upTo(n.lease)) }},
	{"broker killed in mid-move", 3, func(n *nemesis) { n.moves(); n.killed(n.broker(), false) }},
	{"broker told to stop", 3, func(n *nemesis) { n.restarted(n.broker()) }},
	{"broker and controller killed", 2, (*nemesis).bothKilled},
	{"records deleted", 2, (*nemesis).deleted},
}

// run goes on until the time is over. Between two misfortunes the cluster has a moment, and every few of them it must show
// that it serves everything.
func (n *nemesis) run(d, bound time.Duration) {
	total := 0
	for _, x := range misfortunes {
		total += x.weight
	}
	until := time.Now().Add(d)
	for i := 1; time.Now().Before(until); i++ {
		k := n.rnd.IntN(total)
		for _, x := range misfortunes {
			if k -= x.weight; k < 0 {
				n.made[x.name]++
				x.do(n)
				break
			}
		}
		n.wait(n.upTo(2 * time.Second))
		if i%3 == 0 {
			n.calm(bound)
		}
	}
}

// calm waits until every process is ready and every partition has acknowledged something new.
func (n *nemesis) calm(bound time.Duration) {
	n.m.t.Helper()
	began := time.Now()
	deadline := began.Add(bound)
	for _, p := range append(append([]*proc(nil), n.m.controllers...), n.m.brokers...) {
		p.awaitReady(time.Until(deadline))
	}
	for {
		late := n.c.h.late(n.c.slots, began)
		if len(late) == 0 {
			break
		}
		if time.Now().After(deadline) {
			n.m.t.Fatalf("not served within %v after everything was healed: %v\nfaults: %q", bound, late, n.c.h.found())
		}
		n.wait(20 * time.Millisecond)
	}
	n.say("all served again after %v", time.Since(began).Round(time.Millisecond))
	if found := n.c.h.found(); len(found) > 0 {
		n.m.t.Fatalf("found: %q", found)
	}
}

func (n *nemesis) say(format string, args ...any) {
	n.m.t.Logf("%7.2fs %s", time.Since(n.c.h.began).Seconds(), fmt.Sprintf(format, args...))
}

func (n *nemesis) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-n.m.t.Context().Done():
	}
}

// upTo draws a duration.
func (n *nemesis) upTo(d time.Duration) time.Duration { return time.Duration(n.rnd.Int64N(int64(d))) }

func (n *nemesis) broker() *proc     { return n.m.brokers[n.rnd.IntN(len(n.m.brokers))] }
func (n *nemesis) controller() *proc { return n.m.controllers[n.rnd.IntN(len(n.m.controllers))] }

func (n *nemesis) killed(b *proc, lost bool) {
	d := n.upTo(2 * n.lease)
	lost = lost && n.disks
	n.say("%s killed for %v, disk lost: %v", b.name, d, lost)
	b.kill()
	if lost {
		b.wipe()
	}
	n.wait(d)
	b.launch()
}

func (n *nemesis) bothKilled() {
	b, c, d := n.broker(), n.controller(), n.upTo(n.lease)
	n.say("%s and %s killed for %v", b.name, c.name, d)
	b.kill()
	c.kill()
	n.wait(d)
	b.launch()
	c.launch()
}

func (n *nemesis) paused(b *proc, d time.Duration) {
	n.say("%s paused for %v", b.name, d)
	b.pause()
	n.wait(d)
	b.resume()
}

func (n *nemesis) cut(b *proc, etcd, bucket bool) {
	d := n.upTo(3 * n.lease)
	way := []linkState{linkRefused, linkFrozen}[n.rnd.IntN(2)]
	spoilt := []faultproxy.Mode{{Kind: faultproxy.Refuse}, {Kind: faultproxy.Hang}, {Kind: faultproxy.SlowDown}, {Kind: faultproxy.Lose, Every: 2},
		{Kind: faultproxy.Lose}, {Kind: faultproxy.Pass, Latency: 500 * time.Millisecond}}[n.rnd.IntN(6)]
	if !bucket {
		spoilt = faultproxy.Mode{}
	}
	if !etcd {
		way = linkUp
	}
	n.say("%s for %v with etcd %d, bucket %d every %d", b.name, d, way, spoilt.Kind, spoilt.Every)
	b.links(way)
	b.bucket.SetMode(spoilt)
	n.wait(d)
	b.links(linkUp)
	b.bucket.SetMode(faultproxy.Mode{})
}

// moves asks for a move of some partitions. Nobody waits for them, and they may be refused.
func (n *nemesis) moves() {
	var req kadm.AlterPartitionAssignmentsReq
	count := 0
	for _, s := range n.c.slots {
		if b := n.broker(); n.rnd.IntN(2) == 0 {
			req.Assign(s.topic, s.partition, []int32{b.id})
			count++
		}
	}
	ctx, cancel := context.WithTimeout(n.m.t.Context(), 5*time.Second)
	defer cancel()
	r, err := n.adm.AlterPartitionAssignments(ctx, req)
	if err == nil {
		err = r.Error()
	}
	n.say("%d moves asked for: %v", count, err)
}

func (n *nemesis) restarted(b *proc) {
	n.say("%s is told to stop", b.name)
	b.stop()
	b.launch()
}

// deleted deletes the older half of a partition.
func (n *nemesis) deleted() {
	s := n.c.slots[n.rnd.IntN(len(n.c.slots))]
	offset := n.c.h.deletable(s)
	n.c.h.deleting(s, offset)
	ctx, cancel := context.WithTimeout(n.m.t.Context(), 10*time.Second)
	defer cancel()
	r, err := n.adm.DeleteRecords(ctx, kadm.Offsets{s.topic: {s.partition: {Topic: s.topic, Partition: s.partition, At: offset}}})
	if err == nil {
		err = r.Error()
	}
	if err == nil {
		n.c.h.deleted(s, offset)
	}
	n.say("%s deleted up to %d: %v", s, offset, err)
}

// heal takes away everything that was done.
func (n *nemesis) heal() {
	for _, b := range n.m.brokers {
		require.NotNil(n.m.t, b.cmd)
		b.resume()
		b.links(linkUp)
		b.bucket.SetMode(faultproxy.Mode{})
	}
	for _, c := range n.m.controllers {
		c.resume()
	}
}

// send asks for a move of every partition to one broker.
func (n *nemesis) send(broker int32) {
	var req kadm.AlterPartitionAssignmentsReq
	for _, s := range n.c.slots {
		req.Assign(s.topic, s.partition, []int32{broker})
	}
	n.m.eventually(time.Minute, "moves are taken", func() bool {
		ctx, cancel := context.WithTimeout(n.m.t.Context(), 10*time.Second)
		defer cancel()
		r, err := n.adm.AlterPartitionAssignments(ctx, req)
		return err == nil && r.Error() == nil
	})
}

// allAt tells whether one broker leads every partition.
func (n *nemesis) allAt(broker int32) bool {
	for _, s := range n.c.slots {
		now, err := n.m.leaders(n.adm, s.topic)
		if err != nil || now[s.partition] != broker {
			return false
		}
	}
	return true
}
