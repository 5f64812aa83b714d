package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
)

// Topic is a topic in listings. The sums cover the partitions that a broker has told of.
type Topic struct {
	Name         string         `json:"name"`
	ID           string         `json:"id"`
	Partitions   int32          `json:"partitions"`
	Known        int            `json:"partitions_known"` // that the sums cover
	States       map[string]int `json:"states"`           // of partitions; those that nobody told of are "unknown"
	Durability   string         `json:"durability"`
	Internal     bool           `json:"internal"`
	Deleting     bool           `json:"deleting"`
	CreatedAt    int64          `json:"created_at"`
	Offsets      int64          `json:"offsets"`       // sum of end - start
	LocalBytes   int64          `json:"local_bytes"`   // in the commit log
	ArchiveBytes int64          `json:"archive_bytes"` // in the bucket
	PendingBytes int64          `json:"pending_bytes"` // not yet in the bucket
	RollLagMs    int64          `json:"roll_lag_ms"`   // age of the oldest of them
}

// TopicList is the answer of /api/v1/topics.
type TopicList struct {
	Topics     []*Topic `json:"topics"`
	Unanswered []Silent `json:"unanswered"`
}

// TopicDetail is one topic with its settings and partitions.
type TopicDetail struct {
	Topic
	Overrides     map[string]string `json:"overrides"`
	PartitionList []Partition       `json:"partition_list"`
	Unanswered    []Silent          `json:"unanswered"`
}

// Partition is one partition as its broker sees it. Of one that nobody told of, State is "unknown" and the figures are -1.
type Partition struct {
	Topic        string `json:"topic"`
	Partition    int32  `json:"partition"`
	Broker       int32  `json:"broker"` // -1: none owns it
	State        string `json:"state"`
	Reason       string `json:"reason,omitempty"`
	Epoch        int32  `json:"epoch"`
	Start        int64  `json:"start"`
	LocalStart   int64  `json:"local_start"`
	Tiered       int64  `json:"tiered"`
	Durable      int64  `json:"durable"`
	End          int64  `json:"end"`
	LocalBytes   int64  `json:"local_bytes"`
	ArchiveBytes int64  `json:"archive_bytes"`
	Extents      int    `json:"extents"`
	PendingBytes int64  `json:"pending_bytes"`
	RollLagMs    int64  `json:"roll_lag_ms"`
	HeadVersion  int64  `json:"head_version"`
}

func less(a, b frame.PartitionID) bool { return a.Compare(b) < 0 }

func (a *api) toPartition(s *partition.Stats) Partition {
	return Partition{
		Topic: s.Topic, Partition: s.ID.Partition, Broker: a.BrokerID, State: s.State.String(), Reason: s.Reason,
		Epoch: s.Offsets.Epoch, Start: s.Offsets.Start, LocalStart: s.Offsets.LocalStart, Tiered: s.Offsets.Tiered,
		Durable: s.Offsets.Durable, End: s.Offsets.End,
		LocalBytes: s.LocalBytes, ArchiveBytes: s.ArchiveBytes, Extents: s.Extents,
		PendingBytes: s.PendingBytes, RollLagMs: rollLag(s, a.Now()), HeadVersion: s.HeadVersion,
	}
}

// rollLag is the age of the oldest record that isn't in the bucket, in ms.
func rollLag(s *partition.Stats, now int64) int64 {
	if s.PendingSince == 0 || s.PendingBytes == 0 {
		return 0
	}
	return max(0, now-s.PendingSince)
}

// add sums a partition into its topic.
func (t *Topic) add(s *partition.Stats, now int64) {
	t.Known++
	t.States[s.State.String()]++
	t.Offsets += max(0, s.Offsets.End-s.Offsets.Start)
	t.LocalBytes += s.LocalBytes
	t.ArchiveBytes += s.ArchiveBytes
	t.PendingBytes += s.PendingBytes
	t.RollLagMs = max(t.RollLagMs, rollLag(s, now))
}

func newTopic(t *cluster.Topic) *Topic {
	return &Topic{
		Name: t.Name, ID: t.ID.String(), Partitions: t.Partitions, States: map[string]int{},
		Durability: t.Config.Durability.String(), Internal: t.Internal, Deleting: t.Deleting, CreatedAt: t.CreatedAt,
	}
}

// sumTopics returns all topics of the image with what this broker holds of them.
func (a *api) sumTopics() []*Topic {
	image := a.Cluster.Image()
	byID := make(map[frame.TopicID]*Topic)
	topics := []*Topic{}
	for _, t := range image.Topics() {
		sum := newTopic(t)
		byID[t.ID] = sum
		topics = append(topics, sum)
	}
	if a.Partitions != nil {
		now := a.Now()
		a.Partitions.Stats(func(s partition.Stats) bool {
			if t := byID[s.ID.Topic]; t != nil {
				t.add(&s, now)
			}
			return true
		})
	}
	return topics
}

func (a *api) topics(w http.ResponseWriter, r *http.Request) {
	list := TopicList{Topics: a.sumTopics(), Unanswered: []Silent{}}
	if !onlyHere(r) {
		a.gatherTopics(r.Context(), &list)
	}
	writeJSON(w, http.StatusOK, list)
}

// findTopic answers 404 itself and returns nil when there is no such topic.
func (a *api) findTopic(w http.ResponseWriter, r *http.Request) *cluster.Topic {
	name := r.PathValue("topic")
	t := a.Cluster.Image().TopicByName(name)
	if t == nil {
		writeError(w, http.StatusNotFound, fmt.Errorf("no topic %q", name))
	}
	return t
}

func (a *api) topic(w http.ResponseWriter, r *http.Request) {
	t := a.findTopic(w, r)
	if t == nil {
		return
	}
	detail := a.detailHere(t)
	if !onlyHere(r) {
		a.gatherTopic(r.Context(), t, detail)
	}
	writeJSON(w, http.StatusOK, detail)
}

// detailHere tells what this node holds of a topic.
func (a *api) detailHere(t *cluster.Topic) *TopicDetail {
	detail := &TopicDetail{Topic: *newTopic(t), Overrides: t.Overrides, PartitionList: []Partition{}, Unanswered: []Silent{}}
	now := a.Now()
	for _, s := range a.statsOf(func(id frame.PartitionID) bool { return id.Topic == t.ID }) {
		detail.add(&s, now)
		detail.PartitionList = append(detail.PartitionList, a.toPartition(&s))
	}
	return detail
}

// statsOf returns the chosen partitions of this broker in the order of their ids.
func (a *api) statsOf(choose func(frame.PartitionID) bool) []partition.Stats {
	if a.Partitions == nil {
		return nil
	}
	var found []partition.Stats
	a.Partitions.Stats(func(s partition.Stats) bool {
		if choose(s.ID) {
			found = append(found, s)
		}
		return true
	})
	slices.SortFunc(found, func(x, y partition.Stats) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), x.ID.Compare(y.ID))
	})
	return found
}

const (
	defaultPartitions = 500
	maxPartitions     = 5000
)

// PartitionPage is a part of the partitions of this broker.
type PartitionPage struct {
	Partitions []Partition `json:"partitions"`
	Total      int         `json:"total"`
	// Next is the value for "after" that leads to the next page; "" on the last one.
	Next string `json:"next"`
}

func (a *api) partitions(w http.ResponseWriter, r *http.Request) {
	skip, limit, ok := pageOf(w, r)
	if !ok {
		return
	}
	choose := func(frame.PartitionID) bool { return true }
	if name := r.URL.Query().Get("topic"); name != "" {
		t := a.Cluster.Image().TopicByName(name)
		if t == nil {
			writeError(w, http.StatusNotFound, fmt.Errorf("no topic %q", name))
			return
		}
		choose = func(id frame.PartitionID) bool { return id.Topic == t.ID }
	}
	all := a.statsOf(choose)
	page := PartitionPage{Partitions: []Partition{}, Total: len(all)}
	rest := all[min(skip, len(all)):]
	if len(rest) > limit {
		rest = rest[:limit]
		page.Next = strconv.Itoa(skip + limit)
	}
	for i := range rest {
		page.Partitions = append(page.Partitions, a.toPartition(&rest[i]))
	}
	writeJSON(w, http.StatusOK, page)
}
