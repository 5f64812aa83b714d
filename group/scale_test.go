package group

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// do handles a request without the world's bookkeeping.
func (w *world) do(r kmsg.Request) Step {
	w.token++
	return w.m.Handle(w.now, Client{ID: "c", Host: "/h"}, w.token, r)
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// TestTenThousandGroups bounds what ten thousand groups with a member and ten offsets each cost.
func TestTenThousandGroups(t *testing.T) {
	w := newWorld(Options{})
	before, start := heapInUse(), time.Now()
	records := 0
	for i := range 10_000 {
		id := fmt.Sprintf("group-%d", i)
		s := w.do(buildJoin(args{"v": "3", "topics": "t"}, id))
		join := s.Replies[0].Response.(*kmsg.JoinGroupResponse)
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Version, sync.Group, sync.Generation, sync.MemberID = 3, id, 1, join.MemberID
		records += len(w.do(sync).Records)
		c := buildCommit(args{"gen": "1", "member": join.MemberID, "v": "7",
			"offsets": "t:0:1,t:1:1,t:2:1,t:3:1,t:4:1,t:5:1,t:6:1,t:7:1,t:8:1,t:9:1"}, id)
		records += len(w.do(c).Records)
	}
	took := time.Since(start)
	perGroup := (heapInUse() - before) / 10_000
	t.Logf("%v, %d bytes a group, %d records", took, perGroup, records)
	require.Equal(t, 110_000, records)
	require.Less(t, perGroup, int64(8<<10))
	require.Less(t, took, 30*time.Second)

	list := w.do(buildRequest(t, "list", args{})).Replies[0].Response.(*kmsg.ListGroupsResponse)
	require.Len(t, list.Groups, 10_000)
	// All members vanish; each tick does a bounded part of the work.
	w.now = w.now.Add(time.Hour)
	ticks := 0
	for {
		at, ok := w.m.NextDeadline()
		require.True(t, ok)
		if at.After(w.now) {
			break
		}
		require.LessOrEqual(t, len(w.m.Tick(w.now).Records), maxTicks)
		ticks++
	}
	require.Greater(t, ticks, 9)
	require.Equal(t, 10_000, w.m.Stats().Groups[StateEmpty])
	// Then the offsets expire, and nothing is left.
	w.now = w.now.Add(8 * 24 * time.Hour)
	for range 100 {
		s := w.m.Tick(w.now)
		require.Less(t, len(s.Records), 2*maxSweep)
	}
	require.Empty(t, w.m.groups)
	require.Zero(t, w.m.offsets)
	require.Len(t, w.m.timers.queue, 1)
	runtime.KeepAlive(w)
}

// TestThousandMembers brings a group of a thousand members of either protocol to rest.
func TestThousandMembers(t *testing.T) {
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern=%v", modern), func(t *testing.T) {
			s := newSim(Options{InitialRebalanceDelay: 3 * time.Second}, 3000)
			before, start := heapInUse(), time.Now()
			for range 1000 {
				s.step(s.add(modern, nil))
			}
			require.NoError(t, s.settle())
			took := time.Since(start)
			log := 0
			for _, r := range s.w.log {
				log += len(r.Key) + len(r.Value)
			}
			s.w.log, s.w.replies = nil, nil
			used := heapInUse() - before
			t.Logf("%v, %d KB with the clients, %d KB of records", took, used>>10, log>>10)
			require.Less(t, took, time.Minute)
			require.Less(t, used, int64(64<<20))
			runtime.KeepAlive(s)
		})
	}
}

// TestPendingIDs: ids that were handed out and never used are bounded, and go.
func TestPendingIDs(t *testing.T) {
	w := newWorld(Options{})
	for range maxPending + 100 {
		w.do(buildJoin(args{"session": "1800000"}, "g"))
	}
	require.Len(t, w.m.groups["g"].classic.pending, maxPending)
	w.now = w.now.Add(time.Hour)
	for range maxPending/maxTicks + 1 {
		require.Empty(t, w.m.Tick(w.now).Records)
	}
	require.Empty(t, w.m.groups)
}

// TestCancel: who gave up is not answered, and its member is there until its session ends.
func TestCancel(t *testing.T) {
	w := newWorld(Options{InitialRebalanceDelay: time.Second})
	w.do(buildJoin(args{"v": "3"}, "g"))
	w.m.Cancel(w.token)
	w.m.Cancel(12345)
	w.now = w.now.Add(time.Second)
	require.Empty(t, w.m.Tick(w.now).Replies)
	require.Equal(t, StateCompleting, w.m.groups["g"].state())
	w.now = w.now.Add(time.Minute)
	require.Len(t, w.m.Tick(w.now).Records, 1)
	require.Equal(t, StateEmpty, w.m.groups["g"].state())
}

// TestClockBack: a clock that goes back doesn't bring timers or the machine out of order.
func TestClockBack(t *testing.T) {
	w := newWorld(Options{})
	w.do(buildJoin(args{"v": "3"}, "g"))
	w.now = w.now.Add(-time.Hour)
	w.do(buildRequest(t, "heartbeat", args{"": "g", "member": "c-1", "gen": "1"}))
	w.m.Tick(w.now)
	require.Equal(t, 1, w.m.groups["g"].memberCount())
	at, ok := w.m.NextDeadline()
	require.True(t, ok)
	require.True(t, at.After(w.start))
}
