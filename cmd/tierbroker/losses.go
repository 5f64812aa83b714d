package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/partition"
)

const (
	lossQuiet    = 2 * time.Second  // without a further loss, until they are told
	lossPatience = 30 * time.Second // from the first one, at most
	lossDetails  = 8                // partitions of a topic that are told one by one
)

// lossLog tells which records are lost, in one line for each topic: a lost disk takes all partitions of a broker at once.
type lossLog struct {
	log   *zap.Logger
	quiet time.Duration

	mu     sync.Mutex
	timer  *time.Timer
	since  time.Time
	topics map[string][]lostPartition
}

type lostPartition struct {
	partition int32
	partition.Loss
}

func newLossLog(log *zap.Logger, quiet time.Duration) *lossLog {
	return &lossLog{log: log, quiet: quiet, topics: map[string][]lostPartition{}}
}

// add notes a loss, to be told when no more come.
func (l *lossLog) add(topic string, p int32, loss partition.Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.topics) == 0 {
		l.since = time.Now()
		l.timer = time.AfterFunc(l.quiet, l.tell)
	} else if time.Since(l.since) < lossPatience {
		l.timer.Reset(l.quiet)
	}
	l.topics[topic] = append(l.topics[topic], lostPartition{p, loss})
}

// close tells what was noted and not told yet.
func (l *lossLog) close() {
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.tell()
}

// tell logs what was noted.
func (l *lossLog) tell() {
	l.mu.Lock()
	topics := l.topics
	l.topics = map[string][]lostPartition{}
	l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		l.topic(name, topics[name])
	}
}

// topic tells about one topic: how far its partitions were recovered, and of when the newest record is that is left.
func (l *lossLog) topic(name string, lost []lostPartition) {
	// Those that have lost the most time come first; those with nothing in the bucket are counted.
	slices.SortFunc(lost, func(a, b lostPartition) int {
		return cmp.Or(cmp.Compare(a.Newest, b.Newest), cmp.Compare(a.partition, b.partition))
	})
	known := slices.DeleteFunc(slices.Clone(lost), func(p lostPartition) bool { return p.Newest < 0 })
	fields := []zap.Field{zap.String("topic", name), zap.Stringer("durability", lost[0].Durability), zap.Int("partitions", len(lost))}
	if n := len(lost) - len(known); n > 0 {
		fields = append(fields, zap.Int("nothing_in_bucket", n))
	}
	if len(known) > 0 {
		fields = append(fields, zap.String("recovered_until", clock(known[0].Newest)))
		if last := known[len(known)-1].Newest; last != known[0].Newest {
			fields = append(fields, zap.String("recovered_until_at_most", clock(last)))
		}
	}
	var details []string
	for _, p := range known[:min(len(known), lossDetails)] {
		details = append(details, fmt.Sprintf("partition %d: records before offset %d are here, the last of %s; it goes on at %d", p.partition, p.End, clock(p.Newest), p.Next))
	}
	if more := len(known) - len(details); more > 0 {
		details = append(details, fmt.Sprintf("and %d more", more))
	}
	if len(details) > 0 {
		fields = append(fields, zap.Strings("detail", details))
	}
	l.log.Warn(lossText(name), fields...)
}

func lossText(topic string) string {
	if topic == "__consumer_offsets" {
		return "part of the local log is lost: what groups committed after the newest record that was recovered is gone; " +
			"they go on from what they had committed before"
	}
	return "part of the local log is lost: records that were acknowledged after the newest one that was recovered are gone"
}

func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
