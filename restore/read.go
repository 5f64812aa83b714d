package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/catalog"
	"github.com/tierbroker/tierbroker/tier/wal"
)

type counter struct{ n atomic.Int64 }

func (c *counter) add(n int64) int { return int(c.n.Add(n)) }

// reader reads heads, and WAL streams once for all partitions.
type reader struct {
	o       Options
	archive *tier.Archive
	known   map[string]bool // lives of the cluster

	mu    sync.Mutex
	peeks map[wal.StreamID]*peek
}

// peek is what a stream holds.
type peek struct {
	once   sync.Once
	stream *wal.Sealed
	err    error
	adds   Stream // under reader.mu
}

// found is what a head tells a plan.
type found struct {
	topic     string
	tombstone bool
	deletedAt int64
	bad, note string // why it can't be restored, what to know
}

func newReader(o Options, root catalog.Root) *reader {
	return &reader{o: o, known: lives(&root), peeks: map[wal.StreamID]*peek{},
		archive: tier.New(tier.Options{Heads: o.Bucket, ClusterID: root.ClusterID, ClusterIncarnation: root.Incarnation, ReadAhead: -1})}
}

// heads looks at every head of the bucket.
func (r *reader) heads(ctx context.Context) (map[frame.TopicID]map[int32]*found, error) {
	ids, err := r.archive.List(ctx)
	if err != nil {
		return nil, err
	}
	out := map[frame.TopicID]map[int32]*found{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Parallel)
	var mu sync.Mutex
	count := counter{}
	for _, id := range ids {
		g.Go(func() error {
			f, err := r.look(gctx, id)
			if err != nil {
				return err
			}
			r.o.Progress("look at heads", count.add(1), len(ids))
			mu.Lock()
			defer mu.Unlock()
			if f != nil {
				if out[id.Topic] == nil {
					out[id.Topic] = map[int32]*found{}
				}
				out[id.Topic][id.Partition] = f
			}
			return nil
		})
	}
	return out, g.Wait()
}

// look returns nil for a head that is gone.
func (r *reader) look(ctx context.Context, id frame.PartitionID) (*found, error) {
	h, err := r.archive.Load(ctx, id)
	switch {
	case errors.Is(err, tier.ErrNoHead):
		return nil, nil
	case errors.Is(err, tier.ErrCorrupt), errors.Is(err, tier.ErrFeature), errors.Is(err, bucket.ErrCorrupt):
		return &found{bad: err.Error()}, nil
	case err != nil:
		return nil, err
	}
	f := &found{topic: h.Topic, tombstone: h.Tombstone, deletedAt: h.TombstoneTime}
	if !r.known[h.ClusterIncarnation] {
		f.bad = fmt.Sprintf("its head belongs to incarnation %s of cluster %s, of which the root knows nothing", h.ClusterIncarnation, h.Cluster)
	}
	return f, nil
}

// measure finds out how far a partition can be restored.
func (r *reader) measure(ctx context.Context, t *Topic, q *Partition, f *found) error {
	q.headless()
	if f == nil || f.bad != "" {
		return nil
	}
	h, streams, note, err := r.view(ctx, t.id(q))
	if errors.Is(err, tier.ErrNoHead) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("partition %d of topic %s: %w", q.Partition, t.Name, err)
	}
	f.note = note
	q.Head, q.tombstone, q.Streams = true, h.Tombstone, streams
	q.Start, q.End, q.Records, q.Bytes, q.Newest = h.Start, h.End, h.Records, h.Bytes, h.MaxTimestamp
	q.Next = max(h.Ceiling, h.End)
	q.Rolled = rolled(h)
	q.covered = h.End
	if n := len(h.Extents); n > 0 && h.Extents[n-1].Kind == tier.KindVoid {
		// A gap that an earlier restore, a loss, or a deletion of records left: the last record is before it.
		q.End = max(h.Extents[n-1].Start, h.Start)
		if h.OwnerOf().Incarnation == renewed.Incarnation { // by a run before this one
			q.Next, q.covered = h.End, q.End
		}
	}
	return nil
}

// rolled is where the data objects end.
func rolled(h *tier.Head) int64 {
	for i := len(h.Extents) - 1; i >= 0; i-- {
		if h.Extents[i].Kind == tier.KindData {
			return h.Extents[i].End
		}
	}
	if n := len(h.Pages); n > 0 {
		return h.Pages[n-1].End
	}
	return h.Start
}

// view returns a partition's head as it would be if its pending streams had been adopted.
func (r *reader) view(ctx context.Context, id frame.PartitionID) (h *tier.Head, names []string, note string, err error) {
	if h, err = r.archive.Load(ctx, id); err != nil || h.Tombstone || len(h.Pending) == 0 {
		return h, nil, "", err
	}
	h = h.Clone()
	for _, st := range h.Pending {
		stream := wal.StreamID{Broker: st.Broker, Incarnation: st.Incarnation}
		p, err := r.peek(ctx, stream)
		if err != nil {
			return nil, nil, "", err
		}
		es, err := p.stream.Entries(ctx, id)
		if err != nil {
			return nil, nil, "", err
		}
		adds := Stream{}
		for i := range es {
			e := &es[i]
			if e.Epoch < st.Epoch || e.End <= h.End {
				continue
			}
			if e.Start > h.End {
				note = fmt.Sprintf("offsets %d to %d are missing in WAL stream %v", h.End, e.Start-1, stream)
				break
			}
			c, _ := e.Cut(h.End, e.End)
			x := c.Extent()
			h.MaxTimestamp = max(h.MaxTimestamp, x.MaxTimestamp)
			x.RunningMax = h.MaxTimestamp
			h.Extents, h.End = append(h.Extents, x), x.End
			h.Bytes, h.Records, h.Objects = h.Bytes+x.Bytes, h.Records+x.Records, h.Objects+1
			adds.Bytes, adds.Records = adds.Bytes+x.Bytes, adds.Records+x.Records
		}
		if adds.Records > 0 {
			names = append(names, stream.String())
			r.mu.Lock()
			p.adds.Partitions, p.adds.Records, p.adds.Bytes = p.adds.Partitions+1, p.adds.Records+adds.Records, p.adds.Bytes+adds.Bytes
			r.mu.Unlock()
		}
	}
	return h, names, note, nil
}

// peek looks at a stream, once.
func (r *reader) peek(ctx context.Context, id wal.StreamID) (*peek, error) {
	r.mu.Lock()
	p := r.peeks[id]
	if p == nil {
		p = &peek{}
		r.peeks[id] = p
	}
	r.mu.Unlock()
	p.once.Do(func() { p.stream, p.err = wal.Peek(ctx, r.o.Bucket, bucket.Op{Class: bucket.ClassTool}, id) })
	return p, p.err
}

// streams lists all streams of the bucket, and those that heads name.
func (r *reader) streams(ctx context.Context) ([]Stream, error) {
	ids, err := wal.List(ctx, r.o.Bucket)
	if err != nil {
		return nil, err
	}
	for id := range r.peeks {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	out := make([]Stream, 0, len(ids))
	for _, id := range ids {
		s := Stream{}
		if p := r.peeks[id]; p != nil {
			s = p.adds
		}
		s.Stream = id.String()
		out = append(out, s)
	}
	return out, nil
}
