package broker

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/group"
	"github.com/tierbroker/tierbroker/journal"
)

// BenchmarkCoordinatorStart is the time from a new journal until a shard answers, behind a million commits of ten groups with a
// thousand partitions each, of one partition at a time. Snapshots bound what is read: records-read counts it, and written-s is how
// long all the commits took, with up to a thousand waiting for the disk at one time.
func BenchmarkCoordinatorStart(b *testing.B) {
	const commits, groups, partitions = 1_000_000, 10, 1000
	n := groupNode(b, partitions, 0)
	j := n.b.groups.current()
	shard := int32(0)
	began := time.Now()
	var done sync.WaitGroup
	slots := make(chan error, 1000)
	for i := range commits {
		req := commitReq(fmt.Sprint("g-", i%groups), "t", int32(i/groups%partitions), int64(i))
		req.SetVersion(8)
		slots <- nil
		done.Add(1)
		for {
			err := j.Do(shard, func(s *groupShard, now time.Time) journal.Step {
				st := s.step(s.m.Handle(now, group.Client{ID: "bench", Host: "/bench"}, group.Token(i), req))
				st.Done = func(err error) {
					if err != nil {
						b.Errorf("commit: %v", err)
					}
					<-slots
					done.Done()
				}
				return st
			})
			if err == nil {
				break
			}
			require.True(b, errors.Is(err, journal.ErrOverloaded), err)
		}
	}
	done.Wait()
	require.False(b, b.Failed())
	wrote := time.Since(began)
	topic := n.client.Image().TopicByName(offsetsTopic)
	p := n.set.Get(frame.PartitionID{Topic: topic.ID, Partition: shard})
	var took []time.Duration
	for b.Loop() {
		took = append(took, n.restartGroups(b, shard))
	}
	o := p.Offsets()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms")
	b.ReportMetric(wrote.Seconds(), "written-s")
	b.ReportMetric(float64(o.End-o.Start), "records-read")
	b.ReportMetric(float64(o.End), "records-written")
	b.ReportMetric(0, "ns/op")
	check := kmsg.NewPtrOffsetFetchRequest()
	check.Group, check.Version = "g-3", 5
	check.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{999}}}
	got := make(chan int64, 1)
	require.NoError(b, n.b.groups.current().Do(shard, func(s *groupShard, now time.Time) journal.Step {
		st := s.m.Handle(now, group.Client{}, commits, check)
		at := st.Replies[0].Response.(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0].Offset
		got <- at
		return journal.Step{}
	}))
	require.EqualValues(b, commits-groups+3, <-got)
}

// restartGroups throws all group machines away and returns how long it takes until a shard runs again.
func (n *node) restartGroups(b *testing.B, shard int32) time.Duration {
	g := n.b.groups
	g.mu.Lock()
	g.journal.Close()
	g.journal = nil
	g.mu.Unlock()
	began := time.Now()
	j := g.open(n.client.Image())
	for deadline := began.Add(time.Minute); j.Status(shard) != nil; {
		if time.Now().After(deadline) {
			b.Fatal(j.Status(shard))
		}
		<-time.After(100 * time.Microsecond)
	}
	return time.Since(began)
}
