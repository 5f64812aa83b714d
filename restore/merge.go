package restore

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/catalog"
)

// merge makes the list of topics out of the snapshot and of what only heads know.
func (p *Plan) merge(heads map[frame.TopicID]map[int32]*found) {
	p.deleted = slices.Clone(p.snapshot.Deleted)
	gone := map[frame.TopicID]bool{}
	for _, d := range p.deleted {
		gone[d.ID] = true
		p.bury(d.ID, heads[d.ID])
	}
	known := map[frame.TopicID]bool{}
	for i := range p.snapshot.Topics {
		t := &p.snapshot.Topics[i]
		known[t.ID] = true
		p.add(*t, heads[t.ID], false)
	}
	unknown := slices.SortedFunc(maps.Keys(heads), frame.TopicID.Compare)
	for _, id := range unknown {
		if !known[id] && !gone[id] {
			p.unknown(id, heads[id])
		}
	}
	slices.SortFunc(p.Topics, func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
}

// bury notes the heads of a deleted topic: the new cluster's sweep changes them.
func (p *Plan) bury(id frame.TopicID, heads map[int32]*found) {
	for n, f := range heads {
		if f.bad == "" {
			p.dead = append(p.dead, frame.PartitionID{Topic: id, Partition: n})
		}
	}
	slices.SortFunc(p.dead, frame.PartitionID.Compare)
}

func (p *Plan) add(t catalog.Topic, heads map[int32]*found, onlyHeads bool) {
	out := &Topic{Name: t.Name, ID: t.ID, Internal: t.Internal, Deleting: t.Deleting, Found: onlyHeads}
	for n, f := range heads {
		if n >= cluster.MaxPartitionsPerTopic {
			continue
		}
		if n >= t.Partitions {
			if !onlyHeads {
				p.note(t.Name, n, "the copy of topics knows only %d partitions, the bucket has this one", t.Partitions)
			}
			t.Partitions = n + 1
		}
		if f.tombstone {
			out.deletedAt = max(out.deletedAt, f.deletedAt, 1)
		}
	}
	if out.deletedAt > 0 && !t.Deleting {
		p.note(t.Name, -1, "the topic was being deleted when the cluster was lost; its deletion goes on")
		out.Deleting, t.Deleting = true, true
	}
	for n := range t.Partitions {
		out.Partitions = append(out.Partitions, &Partition{Partition: n})
	}
	out.spec = t
	p.Topics = append(p.Topics, out)
}

// unknown decides about a topic that the snapshot doesn't name.
func (p *Plan) unknown(id frame.TopicID, heads map[int32]*found) {
	t := catalog.Topic{ID: id, Version: 1, Partitions: 1, CreatedAt: max(p.SnapshotAt, 0)}
	tombstones, deletedAt := 0, int64(0)
	for n, f := range heads {
		if f.tombstone {
			tombstones, deletedAt = tombstones+1, max(deletedAt, f.deletedAt)
		}
		if f.topic != "" {
			t.Name = f.topic
		}
		t.Partitions = max(t.Partitions, min(n, cluster.MaxPartitionsPerTopic-1)+1)
	}
	if tombstones == len(heads) {
		p.deleted = append(p.deleted, cluster.DeletedTopic{Name: t.Name, ID: id, Partitions: t.Partitions, DeletedAt: deletedAt})
		p.bury(id, heads)
		return
	}
	name := cmp.Or(t.Name, id.String())
	if err := cluster.ValidTopicName(t.Name); err != nil {
		p.note(name, -1, "topic id %s is not restored, its objects stay: %v", id, err)
		return
	}
	for _, have := range p.Topics {
		if cluster.TopicNamesCollide(have.Name, t.Name) {
			p.note(name, -1, "topic id %s is not restored, its objects stay: topic %s (%s) has its name", id, have.Name, have.ID)
			return
		}
	}
	t.Configs = map[string]string{cluster.RetentionMs: "-1", cluster.RetentionBytes: "-1"}
	if t.Internal = slices.Contains(internalTopics, t.Name); t.Internal {
		t.Partitions = max(t.Partitions, internalPartitions)
		t.Configs[cluster.CleanupPolicy], t.Configs[cluster.MaxMessageBytes] = "compact", "67108864"
	}
	p.note(name, -1, "only the heads of its %d partitions know the topic: its settings are lost, and nothing of it expires until it gets new ones", t.Partitions)
	p.add(t, heads, true)
}

// internalPartitions is how many partitions an internal topic has unless an operator has changed it: which of them a group is in
// depends on it.
const internalPartitions = 50

var internalTopics = []string{"__consumer_offsets", "__transaction_state"}
