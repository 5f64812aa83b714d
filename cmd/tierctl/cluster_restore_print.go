package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/tierbroker/tierbroker/frame"
	groups "github.com/tierbroker/tierbroker/group"
	"github.com/tierbroker/tierbroker/restore"
)

// stageBars shows one bar for each stage of a restore.
type stageBars struct {
	mu    sync.Mutex
	stage string
	bar   *progress
}

func (s *stageBars) at(stage string, done, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar == nil || s.stage != stage {
		if s.bar != nil {
			s.bar.finish()
		}
		s.stage, s.bar = stage, newProgress(stage, int64(all), func(n int64) string { return strconv.FormatInt(n, 10) })
	}
	s.bar.at(int64(done))
}

func (s *stageBars) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		s.bar.finish()
	}
	s.bar = nil
}

// groupPosition is a group's offset that lies behind what a partition can be restored to.
type groupPosition struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	End       int64  `json:"end"`  // first offset that is lost
	Next      int64  `json:"next"` // where the group reads on
}

const offsetsTopic = "__consumer_offsets"

// groupsBeyond replays the group coordinators' partitions and compares where groups stand with what can be restored.
func groupsBeyond(ctx context.Context, o restore.Options, p *restore.Plan) ([]groupPosition, error) {
	out := []groupPosition{}
	for _, t := range p.Topics {
		if t.Name != offsetsTopic || t.Deleting {
			continue
		}
		for i, q := range t.Partitions {
			m := groups.New(groups.Options{NewID: func() string { return "" }})
			id := frame.PartitionID{Topic: t.ID, Partition: q.Partition}
			if err := restore.Records(ctx, o, p, id, func(key, value []byte) { m.Apply(groups.Record{Key: key, Value: value}) }); err != nil {
				return nil, err
			}
			o.Progress("read group positions", i+1, len(t.Partitions))
			tour := groups.Tour{Number: 1}
			for m.Visit(&tour, 1<<16, func(c groups.Committed) {
				if q := p.Partition(c.Topic, c.Partition); q != nil && q.Lost(c.At) {
					out = append(out, groupPosition{c.Group, c.Topic, c.Partition, c.At, q.End, q.Next})
				}
			}) {
			}
		}
	}
	slices.SortFunc(out, func(a, b groupPosition) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}

// printPlan shows people how far everything can be restored.
func printPlan(w io.Writer, r *restoreReport) error {
	fmt.Fprintf(w, "cluster %s, topics and settings of %s\n", r.ClusterID, moment(r.SnapshotAt))
	if r.Unfinished {
		fmt.Fprintln(w, "a restore of this bucket was begun and is not finished")
	}
	t := newTable("topic", "partition", "start", "end", "newest", "records", "wal", "next", "note")
	for _, topic := range r.Topics {
		for i := 0; i < len(topic.Partitions); {
			q, n := topic.Partitions[i], emptyRun(topic.Partitions[i:])
			i += n
			if n > 1 {
				t.row(topic.Name, fmt.Sprintf("%d-%d", q.Partition, q.Partition+int32(n)-1), q.Start, q.End, "-", 0, 0, q.Next, dash(partitionNote(topic, q)))
				continue
			}
			t.row(topic.Name, q.Partition, q.Start, q.End, moment(q.Newest), q.Records, max(q.End-q.Rolled, 0), q.Next, dash(partitionNote(topic, q)))
		}
	}
	tables := []*table{t}
	if len(r.Streams) > 0 {
		s := newTable("wal stream to seal", "partitions", "records", "bytes")
		for _, x := range r.Streams {
			s.row(x.Stream, x.Partitions, x.Records, size(x.Bytes))
		}
		tables = append(tables, s)
	}
	if len(r.Groups) > 0 {
		s := newTable("group behind the end", "topic", "partition", "offset", "end", "reads on at")
		for _, x := range r.Groups {
			s.row(x.Group, x.Topic, x.Partition, x.Offset, x.End, x.Next)
		}
		tables = append(tables, s)
	}
	if len(r.Damaged)+len(r.Notes) > 0 {
		s := newTable("", "topic", "partition", "what")
		for _, f := range r.Damaged {
			s.row("damaged", dash(f.Topic), number(int64(f.Partition)), f.What)
		}
		for _, f := range r.Notes {
			s.row("note", dash(f.Topic), number(int64(f.Partition)), f.What)
		}
		tables = append(tables, s)
	}
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := t.write(w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// emptyRun counts the partitions at the front of which no record comes back and
// that are all alike, so that fifty of them take one line; at least 1.
func emptyRun(list []*restore.Partition) int {
	a, n := list[0], 1
	for _, b := range list[1:] {
		if b.Head != a.Head || b.Records != 0 || a.Records != 0 || b.Start != a.Start || b.End != a.End || b.Next != a.Next || b.Partition != a.Partition+int32(n) {
			break
		}
		n++
	}
	return n
}

func partitionNote(t *restore.Topic, q *restore.Partition) string {
	switch {
	case t.Deleting:
		return "being deleted"
	case !q.Head:
		return "nothing in the bucket"
	}
	return ""
}
