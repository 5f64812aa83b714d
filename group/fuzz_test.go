package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzApply gives any bytes as records, then uses the machine: it must not panic, and its snapshot must give itself again.
func FuzzApply(f *testing.F) {
	for _, r := range sampleLog(f) {
		f.Add(r.Key, r.Value, r.Value != nil)
	}
	f.Add([]byte{0, 2, 0, 1, 'g'}, []byte{0, 3, 0, 0, 0, 0, 0, 1}, true)
	f.Add([]byte{0, 8, 0, 1, 'g', 0, 1, 'm'}, []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 9, 0xff, 0xff, 0xff, 0xff, 0x0f}, true)
	log := sampleLog(f)
	f.Fuzz(func(t *testing.T, key, value []byte, has bool) {
		if !has {
			value = nil
		} else if value == nil {
			value = []byte{}
		}
		for _, before := range [][]Record{nil, log} {
			w := newWorld(Options{})
			w.log = append(append(w.log, before...), Record{key, value})
			w.topics = topicList{{ID: topicID("t"), Name: "t", Partitions: 3}}
			w.boot()
			snap := snapshotOf(w.m)
			again := New(w.opts)
			for _, r := range snap {
				again.Apply(r)
			}
			require.Equal(t, snap, snapshotOf(again))
			require.Zero(t, again.badRecords, "a snapshot must be readable")
			exercise(w)
		}
	})
}

// exercise uses every group that there is.
func exercise(w *world) {
	var reqs []kmsg.Request
	for _, id := range sortedKeys(w.m.groups) {
		reqs = append(reqs,
			buildRequest(nil, "describe", args{"": id}), buildRequest(nil, "describe-consumer", args{"": id}),
			buildCommit(args{"offsets": "t:0:1"}, id), buildFetch(args{}, id),
			buildJoin(args{"v": "3", "topics": "t"}, id), buildBeat(args{"member": "x", "epoch": "0", "rebalance": "100", "topics": "t", "owned": ""}, id),
			buildRequest(nil, "heartbeat", args{"": id, "member": "m", "gen": "1"}),
			buildRequest(nil, "leave", args{"": id, "v": "4", "members": "m"}),
			buildBeat(args{"member": "x", "epoch": "-1"}, id), buildRequest(nil, "delete", args{"": id}))
	}
	for _, r := range reqs {
		w.token++
		w.open[w.token] = true
		w.keep(w.m.Handle(w.now, Client{}, w.token, r))
	}
	for range 100 {
		w.now = w.now.Add(time.Minute)
		w.keep(w.m.Tick(w.now))
	}
}

// sampleLog is the records of a few groups of all kinds.
func sampleLog(t testing.TB) []Record {
	w := newWorld(Options{})
	for _, line := range []string{
		"topics t:3 u:2",
		"commit simple offsets=t:0:1 meta=x", "commit old v=3 retention=1000 offsets=t:1:1",
		"join g v=3 client=a topics=t", "sync g member=a-1 gen=1 v=3 assign=a-1:A",
		"beat c member=m epoch=0 rebalance=1000 topics=t regex=u.* owned= instance=i rack=r",
		"join c v=3 client=b topics=t", "delete-offsets simple topics=t:0", "beat c member=m epoch=1 instance=i owned=t:0",
	} {
		tt, _ := t.(*testing.T)
		w.command(tt, line)
	}
	return w.log
}

// FuzzRequests gives any request to a machine with groups of all kinds.
func FuzzRequests(f *testing.F) {
	log := sampleLog(f)
	seed := func(r kmsg.Request, version int16) {
		r.SetVersion(version)
		f.Add(r.Key(), version, r.AppendTo(nil))
	}
	for v := int16(0); v <= 9; v++ {
		seed(buildJoin(args{"topics": "t"}, "g"), v)
		seed(buildRequest(nil, "sync", args{"": "g", "member": "a-1", "gen": "1", "assign": "a-1:x"}), min(v, 5))
		seed(buildRequest(nil, "leave", args{"": "g", "member": "a-1", "members": "a-1"}), min(v, 5))
		seed(buildCommit(args{"offsets": "t:0:1", "gen": "1", "member": "a-1"}, "g"), v)
		seed(buildFetch(args{"topics": "t:0"}, "g"), v)
	}
	seed(buildBeat(args{"member": "m", "epoch": "1", "instance": "i", "owned": "t:0"}, "c"), 1)
	seed(buildBeat(args{"member": "n", "epoch": "0", "rebalance": "1", "topics": "t", "regex": "(a|b)*", "owned": ""}, "g"), 1)
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		r := kmsg.RequestForKey(key)
		if r == nil || !Handles(r) || version < 0 || version > r.MaxVersion() {
			return
		}
		r.SetVersion(version)
		if r.ReadFrom(body) != nil {
			return
		}
		w := newWorld(Options{})
		w.log = append(w.log, log...)
		w.topics = topicList{{ID: topicID("t"), Name: "t", Partitions: 3}}
		w.boot()
		for range 3 {
			w.token++
			w.open[w.token] = true
			s := w.keep(w.m.Handle(w.now, Client{ID: string(body)}, w.token, r))
			for _, rep := range s.Replies {
				printReply(rep.Response)
			}
		}
		for range 40 {
			w.now = w.now.Add(time.Minute)
			w.keep(w.m.Tick(w.now))
		}
		require.Empty(t, w.m.waiting, "every wait has an end")
		before := snapshotOf(w.m)
		w.boot()
		require.Equal(t, before, snapshotOf(w.m))
		require.Zero(t, w.m.badRecords)
	})
}
