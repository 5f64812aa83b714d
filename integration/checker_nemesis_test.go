package integration

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"syscall"
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
	busy  map[*proc]bool // have a misfortune already
}

// misfortune is one thing that can happen. begin draws all it needs first, so that what follows doesn't depend on whether it
// comes to pass; it returns for how long and how to end it, or nil when a process that it needs has another one.
type misfortune struct {
	name   string
	weight int
	begin  func(*nemesis) (time.Duration, func())
}

var misfortunes = []misfortune{
	{"broker killed", 4, func(n *nemesis) (time.Duration, func()) { return n.killed(n.broker(), false) }},
	{"broker killed, disk lost", 3, func(n *nemesis) (time.Duration, func()) { return n.killed(n.broker(), true) }},
	{"broker paused past its lease", 4, func(n *nemesis) (time.Duration, func()) { return n.paused(n.broker(), n.lease+n.upTo(n.lease)) }},
	{"broker paused for a moment", 2, func(n *nemesis) (time.Duration, func()) { return n.paused(n.broker(), n.upTo(n.lease/2)) }},
	{"cut from etcd", 3, func(n *nemesis) (time.Duration, func()) { return n.cut(n.broker(), true, false) }},
	{"cut from the bucket", 4, func(n *nemesis) (time.Duration, func()) { return n.cut(n.broker(), false, true) }},
	{"cut from both", 3, func(n *nemesis) (time.Duration, func()) { return n.cut(n.broker(), true, true) }},
	{"moves", 4, (*nemesis).moves},
	{"controller killed in mid-move", 3, func(n *nemesis) (time.Duration, func()) { n.moves(); return n.killed(n.controller(), false) }},
	{"controller paused in mid-move", 2, func(n *nemesis) (time.Duration, func()) {
		n.moves()
		return n.paused(n.controller(), n.lease+n.upTo(n.lease))
	}},
	{"broker killed in mid-move", 3, func(n *nemesis) (time.Duration, func()) { n.moves(); return n.killed(n.broker(), false) }},
	{"broker paused in mid-move", 3, func(n *nemesis) (time.Duration, func()) {
		n.moves()
		return n.paused(n.broker(), n.lease+n.upTo(n.lease))
	}},
	{"broker cut in mid-move", 3, func(n *nemesis) (time.Duration, func()) {
		n.moves()
		return n.cut(n.broker(), n.rnd.IntN(2) == 0, true)
	}},
	{"broker told to stop", 3, func(n *nemesis) (time.Duration, func()) { return n.restarted(n.broker()) }},
	{"records deleted", 2, (*nemesis).deleted},
}

func (n *nemesis) draw() misfortune {
	total := 0
	for _, x := range misfortunes {
		total += x.weight
	}
	k := n.rnd.IntN(total)
	for _, x := range misfortunes {
		if k -= x.weight; k < 0 {
			return x
		}
	}
	panic("unreachable")
}

// run goes on until the time is over. Often two misfortunes overlap. Between them the cluster has a moment, and every few of
// them it must show that it serves everything.
func (n *nemesis) run(d, bound time.Duration) {
	n.busy = map[*proc]bool{}
	until := time.Now().Add(d)
	for i := 1; time.Now().Before(until); i++ {
		first, second := n.draw(), n.draw()
		between, both := n.upTo(n.lease), n.rnd.IntN(2) == 0
		hold, end := first.begin(n)
		if end != nil {
			n.made[first.name]++
		}
		if both {
			n.wait(min(hold, between))
			more, endSecond := second.begin(n)
			if endSecond != nil {
				n.made[second.name]++
				n.wait(more)
				endSecond()
			}
			hold -= min(hold, between+more)
		}
		n.wait(hold)
		if end != nil {
			end()
		}
		clear(n.busy)
		n.wait(n.upTo(2 * time.Second))
		if i%2 == 0 {
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

func (n *nemesis) broker() *proc { return n.m.brokers[n.rnd.IntN(len(n.m.brokers))] }

// controller draws one of the controllers. With several, it is the leading one two times of three.
func (n *nemesis) controller() *proc {
	list := n.m.controllers
	c := list[n.rnd.IntN(len(list))]
	if len(list) == 1 || n.rnd.IntN(3) == 0 {
		return c
	}
	for _, x := range list {
		if x.cmd != nil && n.leads(x) {
			n.made["the leading controller"]++
			return x
		}
	}
	return c
}

// leads asks a controller whether it is the leading one.
func (n *nemesis) leads(c *proc) bool {
	ctx, cancel := context.WithTimeout(n.m.t.Context(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.admin+"/metrics", nil)
	require.NoError(n.m.t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	text, err := io.ReadAll(resp.Body)
	return resp.Body.Close() == nil && err == nil && strings.Contains(string(text), "\ntierbroker_controller_leading 1\n")
}

// take marks a process as one that has a misfortune; false: it has one already.
func (n *nemesis) take(p *proc) bool {
	ok := !n.busy[p]
	n.busy[p] = true
	return ok
}

func (n *nemesis) killed(b *proc, lost bool) (time.Duration, func()) {
	d := n.upTo(2 * n.lease)
	lost = lost && n.disks
	if !n.take(b) {
		return 0, nil
	}
	n.say("%s killed for %v, disk lost: %v", b.name, d, lost)
	b.kill()
	if lost {
		b.wipe()
	}
	return d, b.launch
}

func (n *nemesis) paused(b *proc, d time.Duration) (time.Duration, func()) {
	if !n.take(b) {
		return 0, nil
	}
	n.say("%s paused for %v", b.name, d)
	b.pause()
	return d, b.resume
}

// spoilt is what can be wrong with a bucket.
var spoilt = map[string]faultproxy.Mode{
	"a: refuses":                       {Kind: faultproxy.Refuse},
	"b: hangs":                         {Kind: faultproxy.Hang},
	"c: says slow down":                {Kind: faultproxy.SlowDown},
	"d: loses half of what it answers": {Kind: faultproxy.Lose, Every: 2},
	"e: loses what it answers":         {Kind: faultproxy.Lose},
	"f: is slow":                       {Latency: 500 * time.Millisecond},
	"g: cuts what it answers":          {Kind: faultproxy.Cut, Every: 2},
	"h: gets wrong bytes":              {Kind: faultproxy.FlipPut, Every: 2},
	"i: sends wrong bytes":             {Kind: faultproxy.Flip, Every: 2},
}

func (n *nemesis) cut(b *proc, etcd, bucket bool) (time.Duration, func()) {
	d := n.upTo(3 * n.lease)
	way := []linkState{linkRefused, linkFrozen}[n.rnd.IntN(2)]
	names := slices.Sorted(maps.Keys(spoilt))
	name := names[n.rnd.IntN(len(names))]
	if !n.take(b) {
		return 0, nil
	}
	if etcd {
		n.say("%s has no etcd for %v (%d)", b.name, d, way)
		b.links(way)
	}
	if bucket {
		n.say("%s has a bad bucket for %v: %s", b.name, d, name)
		b.bucket.SetMode(spoilt[name])
	}
	return d, func() {
		b.links(linkUp)
		b.bucket.SetMode(faultproxy.Mode{})
	}
}

// moves asks for a move of some partitions. Nobody waits for them, and they may be refused.
func (n *nemesis) moves() (time.Duration, func()) {
	var req kadm.AlterPartitionAssignmentsReq
	count := 0
	for _, s := range n.c.slots {
		if b := n.broker(); n.rnd.IntN(2) == 0 {
			req.Assign(s.topic, s.partition, []int32{b.id})
			count++
		}
	}
	wait := n.upTo(200 * time.Millisecond)
	ctx, cancel := context.WithTimeout(n.m.t.Context(), 5*time.Second)
	defer cancel()
	r, err := n.adm.AlterPartitionAssignments(ctx, req)
	if err == nil {
		err = r.Error()
	}
	n.say("%d moves asked for: %v", count, err)
	n.wait(wait)
	return 0, func() {}
}

func (n *nemesis) restarted(b *proc) (time.Duration, func()) {
	if !n.take(b) {
		return 0, nil
	}
	n.say("%s is told to stop", b.name)
	b.signal(syscall.SIGTERM)
	exited := b.exited
	return n.lease, func() {
		select {
		case <-exited:
		case <-time.After(90 * time.Second):
			n.m.t.Fatalf("%s did not end on SIGTERM", b.name)
		}
		require.Equal(n.m.t, 0, b.cmd.ProcessState.ExitCode(), "%s ends by itself", b.name)
		b.cmd = nil
		b.launch()
	}
}

// deleted deletes the older half of a partition.
func (n *nemesis) deleted() (time.Duration, func()) {
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
	return 0, func() {}
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
