package restore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/catalog"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// Options of reading and running.
type Options struct {
	Bucket   bucket.Bucket
	Parallel int          // heads and streams at the same time; default 16
	Now      func() int64 // ms since 1970
	// Progress is told what is done and how much of it; it may be called by several goroutines. nil: nobody listens.
	Progress func(stage string, done, all int)
}

func (o *Options) setDefaults() {
	if o.Parallel <= 0 {
		o.Parallel = 16
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
}

// Plan is what a restore would bring back. It was read without changing anything.
type Plan struct {
	ClusterID   string `json:"cluster_id"` // that the bucket belongs to
	Incarnation string `json:"incarnation"`
	// Unfinished: a restore has begun and is not finished.
	Unfinished bool `json:"unfinished,omitempty"`
	// SnapshotAt is when the topics and settings were written to the bucket, ms since 1970; -1: there are none.
	SnapshotAt       int64    `json:"snapshot_at"`
	SnapshotRevision int64    `json:"snapshot_revision"`
	Topics           []*Topic `json:"topics"`
	Streams          []Stream `json:"streams"` // that will be sealed
	// Damaged partitions can't be restored; see Settings.LeaveDamaged.
	Damaged []Finding `json:"damaged"`
	Notes   []Finding `json:"notes"`

	root     catalog.Root
	snapshot *catalog.Snapshot
	deleted  []cluster.DeletedTopic
	dead     []frame.PartitionID // heads of deleted topics
	peeks    map[wal.StreamID]*peek
}

// Topic is one topic of a Plan.
type Topic struct {
	Name     string        `json:"name"`
	ID       frame.TopicID `json:"id"`
	Internal bool          `json:"internal,omitempty"`
	Deleting bool          `json:"deleting,omitempty"`
	// Found: the snapshot doesn't know the topic, heads do. Its settings are lost.
	Found      bool         `json:"found,omitempty"`
	Partitions []*Partition `json:"partitions"`

	spec      catalog.Topic
	deletedAt int64
}

// Partition is the recovery point of one partition.
type Partition struct {
	Partition int32 `json:"partition"`
	Head      bool  `json:"head"`  // false: nothing of it ever got to the bucket
	Start     int64 `json:"start"` // first offset
	Rolled    int64 `json:"rolled"`
	// End is the first offset that is lost, or was never written; Rolled of it are in data objects, the rest in WAL streams.
	End     int64    `json:"end"`
	Next    int64    `json:"next"`   // offset that the next record gets, or the lowest that it may get while streams are to be adopted
	Newest  int64    `json:"newest"` // largest timestamp of a record, ms since 1970; -1: none
	Records int64    `json:"records"`
	Bytes   int64    `json:"bytes"`
	Streams []string `json:"streams,omitempty"` // whose entries will be adopted

	tombstone bool
	damaged   bool
	covered   int64 // what is below was written, or given up, for certain
}

// Stream is a WAL stream.
type Stream struct {
	Stream     string `json:"stream"`
	Partitions int    `json:"partitions"` // that it adds records to
	Records    int64  `json:"records"`
	Bytes      int64  `json:"bytes"`
}

// Finding is something that an operator should know.
type Finding struct {
	Topic     string `json:"topic,omitempty"`
	Partition int32  `json:"partition"` // -1: of the topic as a whole
	What      string `json:"what"`
}

// Read finds out what a bucket holds. catalog.ErrNoRoot: no cluster.
func Read(ctx context.Context, o Options) (*Plan, error) {
	o.setDefaults()
	root, err := catalog.ReadRoot(ctx, o.Bucket)
	if err != nil {
		return nil, err
	}
	p := &Plan{ClusterID: root.ClusterID, Incarnation: root.Incarnation, Unfinished: root.Restore != nil, root: root,
		Topics: []*Topic{}, Streams: []Stream{}, Damaged: []Finding{}, Notes: []Finding{}}
	if err := p.readSnapshot(ctx, o.Bucket); err != nil {
		return nil, err
	}
	r := newReader(o, root)
	defer r.archive.Close() //nolint:errcheck // it only waits
	heads, err := r.heads(ctx)
	if err != nil {
		return nil, err
	}
	p.merge(heads)
	if err := p.measureAll(ctx, r, heads); err != nil {
		return nil, err
	}
	p.peeks = r.peeks
	p.Streams, err = r.streams(ctx)
	return p, err
}

// readSnapshot finds the topics and settings that count: those that an unfinished restore began with, or the newest of the newest
// life of the cluster that has any.
func (p *Plan) readSnapshot(ctx context.Context, b bucket.Bucket) error {
	op := bucket.Op{Class: bucket.ClassTool, Kind: bucket.KindCluster}
	if u := p.root.Restore; u != nil && u.Revision >= 0 {
		s, err := catalog.ReadSnapshot(ctx, b, op, u.Incarnation, u.Revision)
		if err != nil {
			return err
		}
		p.use(s)
		return nil
	}
	lives := []string{p.root.Incarnation}
	for i := len(p.root.Earlier) - 1; i >= 0; i-- {
		lives = append(lives, p.root.Earlier[i].Incarnation)
	}
	for _, life := range lives {
		s, damaged, err := catalog.Latest(ctx, b, op, life)
		for _, d := range damaged {
			p.note("", -1, "a newer copy of topics and settings is damaged: %v", d)
		}
		if err == nil {
			p.use(s)
			return nil
		}
		if !errors.Is(err, catalog.ErrNoSnapshot) {
			return err
		}
	}
	p.note("", -1, "the bucket has no copy of topics and settings; topics are taken from the heads of their partitions")
	p.use(&catalog.Snapshot{ClusterID: p.root.ClusterID, Incarnation: p.root.Incarnation, Revision: -1, WrittenAt: -1})
	return nil
}

func (p *Plan) use(s *catalog.Snapshot) {
	p.snapshot, p.SnapshotAt, p.SnapshotRevision = s, s.WrittenAt, s.Revision
}

func (p *Plan) note(topic string, partition int32, format string, args ...any) {
	p.Notes = append(p.Notes, Finding{topic, partition, fmt.Sprintf(format, args...)})
}

// measureAll fills in the recovery point of every partition.
func (p *Plan) measureAll(ctx context.Context, r *reader, heads map[frame.TopicID]map[int32]*found) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Parallel)
	count, all := counter{}, 0
	for _, t := range p.Topics {
		all += len(t.Partitions)
	}
	for _, t := range p.Topics {
		for _, q := range t.Partitions {
			f := heads[t.ID][q.Partition]
			g.Go(func() error {
				defer func() { r.o.Progress("read", count.add(1), all) }()
				return r.measure(gctx, t, q, f)
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, t := range p.Topics {
		for _, q := range t.Partitions {
			if f := heads[t.ID][q.Partition]; f != nil && f.bad != "" {
				q.damaged = true
				p.Damaged = append(p.Damaged, Finding{t.Name, q.Partition, f.bad})
			} else if f != nil && f.note != "" {
				p.note(t.Name, q.Partition, "%s", f.note)
			}
		}
	}
	return nil
}

// configs returns the dynamic broker settings by broker id.
func (p *Plan) configs() map[int32]map[string]string {
	out := map[int32]map[string]string{}
	for name, m := range p.snapshot.Config {
		id, err := strconv.ParseInt(name, 10, 32)
		switch {
		case name == "default":
			out[cluster.DefaultConfig] = m
		case err == nil && id >= 0:
			out[int32(id)] = m
		}
	}
	return out
}

// lives are the incarnations whose heads are taken over.
func lives(root *catalog.Root) map[string]bool {
	m := map[string]bool{root.Incarnation: true}
	for _, e := range root.Earlier {
		m[e.Incarnation] = true
	}
	return m
}

func (t *Topic) id(q *Partition) frame.PartitionID {
	return frame.PartitionID{Topic: t.ID, Partition: q.Partition}
}

// headless is the recovery point of a partition of which the bucket has nothing.
func (q *Partition) headless() {
	q.Newest, q.Next = -1, tier.FirstCeiling
}

// Partition returns a partition of a topic by name, nil when the plan has none.
func (p *Plan) Partition(topic string, n int32) *Partition {
	for _, t := range p.Topics {
		if t.Name == topic && n >= 0 && int(n) < len(t.Partitions) {
			return t.Partitions[n]
		}
	}
	return nil
}

// Lost reports whether a position lies behind records that are lost, or may be: it is above all that the bucket accounts for.
func (q *Partition) Lost(offset int64) bool { return offset > q.covered }
