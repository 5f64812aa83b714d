package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// groupPartitions is the number of partitions of the topics that groups read.
const groupPartitions = 12

// verdict is what a group's events amount to.
type verdict struct {
	records   int64 // distinct ones
	repeated  int64 // processed again, as at-least-once allows
	handovers int   // assignments of a partition
	lost      int   // partitions whose owner was told that it had been thrown out
	shared    []string
	skipped   []string
	strayed   []string // processed by a member that did not own the partition
}

// judge goes through a group's events in the order of time. ends are the topic's ends.
//
// A partition is owned from "assigned" to "revoked", "lost" or the moment its member's process was
// gone, all as the member saw it, so that an interval is never shorter than what the member took
// for its own: a second owner within is an error. Every offset that the broker says is committed
// must have been processed below, must not go back, and in the end be the topic's end.
func judge(events []event, ends map[int32]int64) verdict {
	// Of what happened within one microsecond, ends of ownership come first.
	rank := map[string]int{"revoked": -1, "lost": -1, "gone": -1, "committed": 1}
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(rank[a.What], rank[b.What]))
	})
	j := judgement{owner: map[int32]string{}, since: map[int32]int64{}, done: map[int32][]bool{}, safe: map[int32]int64{}, below: map[int32]int64{}}
	for p, end := range ends {
		j.done[p] = make([]bool, end)
	}
	for _, e := range events {
		j.take(e)
	}
	for _, p := range slices.Sorted(maps.Keys(ends)) {
		if at := j.processedBelow(p); at != ends[p] {
			j.skipped = append(j.skipped, fmt.Sprintf("partition %d: offset %d of %d was never processed", p, at, ends[p]))
		}
		if j.safe[p] != ends[p] {
			j.skipped = append(j.skipped, fmt.Sprintf("partition %d: %d is committed in the end, it ends at %d", p, j.safe[p], ends[p]))
		}
	}
	return j.verdict
}

type judgement struct {
	verdict
	owner map[int32]string
	since map[int32]int64
	done  map[int32][]bool // by offset
	below map[int32]int64  // everything below was processed
	safe  map[int32]int64  // committed
}

func (j *judgement) take(e event) {
	switch e.What {
	case "assigned":
		for _, p := range e.Partitions {
			if o := j.owner[p]; o != "" && o != e.who {
				j.shared = append(j.shared, fmt.Sprintf("partition %d is assigned to %s at %d, and %s has had it since %d", p, e.who, e.Time, o, j.since[p]))
			}
			j.owner[p], j.since[p] = e.who, e.Time
			j.handovers++
		}
	case "revoked", "lost":
		for _, p := range e.Partitions {
			if j.owner[p] == e.who {
				delete(j.owner, p)
			}
			if e.What == "lost" {
				j.lost++
			}
		}
	case "gone":
		maps.DeleteFunc(j.owner, func(_ int32, o string) bool { return o == e.who })
	case "records":
		for p, r := range e.Records {
			j.process(e, p, r)
		}
	case "committed":
		for p, o := range e.committed {
			j.commit(e, p, o)
		}
	case "broken":
		j.skipped = append(j.skipped, e.who+" printed what is no event: "+e.Text)
	}
}

func (j *judgement) process(e event, p int32, r [3]int64) {
	first, last := r[0], r[1]
	if first < 0 || last-first+1 != r[2] || last >= int64(len(j.done[p])) {
		j.skipped = append(j.skipped, fmt.Sprintf("partition %d: %s processed %d records from %d to %d, and it ends at %d", p, e.who, r[2], first, last, len(j.done[p])))
		return
	}
	if j.owner[p] != e.who {
		j.strayed = append(j.strayed, fmt.Sprintf("partition %d: %s processed %d to %d at %d, its owner is %q", p, e.who, first, last, e.Time, j.owner[p]))
	}
	for o := first; o <= last; o++ {
		if j.done[p][o] {
			j.repeated++
		} else {
			j.records++
		}
		j.done[p][o] = true
	}
}

func (j *judgement) processedBelow(p int32) int64 {
	for j.below[p] < int64(len(j.done[p])) && j.done[p][j.below[p]] {
		j.below[p]++
	}
	return j.below[p]
}

func (j *judgement) commit(e event, p int32, o int64) {
	if o < j.safe[p] {
		j.skipped = append(j.skipped, fmt.Sprintf("partition %d: the committed offset goes back from %d to %d at %d", p, j.safe[p], o, e.Time))
	}
	j.safe[p] = o
	if at := j.processedBelow(p); at < o {
		j.skipped = append(j.skipped, fmt.Sprintf("partition %d: %d is committed at %d, and offset %d was not processed", p, o, e.Time, at))
	}
}
