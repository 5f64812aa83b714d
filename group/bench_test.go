package group

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkCommit is commits of one partition each, as a consumer sends them.
func BenchmarkCommit(b *testing.B) {
	for _, partitions := range []int{1, 100} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			w := newWorld(Options{})
			join := w.do(buildJoin(args{"v": "3"}, "g")).Replies[0].Response.(*kmsg.JoinGroupResponse)
			w.do(buildRequest(nil, "sync", args{"": "g", "v": "3", "member": join.MemberID, "gen": "1"}))
			r := kmsg.NewPtrOffsetCommitRequest()
			r.Version, r.Group, r.MemberID, r.Generation = 9, "g", join.MemberID, 1
			t := kmsg.OffsetCommitRequestTopic{Topic: "orders"}
			for p := range partitions {
				t.Partitions = append(t.Partitions, kmsg.OffsetCommitRequestTopicPartition{Partition: int32(p)})
			}
			r.Topics = append(r.Topics, t)
			b.ReportAllocs()
			for i := range b.N {
				for p := range r.Topics[0].Partitions {
					r.Topics[0].Partitions[p].Offset = int64(i)
				}
				if s := w.do(r); len(s.Records) != partitions {
					b.Fatal(s)
				}
			}
			b.ReportMetric(float64(b.N*partitions)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// BenchmarkApply is the replay of commits to 10,000 partitions.
func BenchmarkApply(b *testing.B) {
	var log []Record
	for i := range 10_000 {
		o := offset{at: int64(i), expires: -1}
		log = append(log, Record{appendOffsetKey(nil, fmt.Sprintf("group-%d", i%100), "orders", int32(i/100)), o.append(nil)})
	}
	m := New(Options{NewID: func() string { return "" }})
	b.ReportAllocs()
	for i := range b.N {
		m.Apply(log[i%len(log)])
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkHundredMembers is the machine's work from the first join until all of 100 members have their partitions.
func BenchmarkHundredMembers(b *testing.B) {
	for _, modern := range []bool{false, true} {
		b.Run(fmt.Sprintf("modern=%v", modern), func(b *testing.B) {
			for range b.N {
				s := newSim(Options{}, 300)
				for range 100 {
					s.step(s.add(modern, nil))
				}
				if err := s.settle(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	s := newSim(Options{}, 300)
	for range 100 {
		s.step(s.add(true, nil))
	}
	if err := s.settle(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := range b.N {
		s.step(s.clients[i%100])
	}
}
