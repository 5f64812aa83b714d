package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/group"
	"github.com/tierbroker/tierbroker/journal"
)

// offsetsTopic holds the state of consumer groups: a group's shard is the partition that its name hashes to, and the
// owner of the partition is the group's coordinator.
const offsetsTopic = "__consumer_offsets"

// offsetsConfigs are the settings of offsetsTopic. The journal bounds its size, not a cleaner; the policy is the one that
// tools expect to see. A group of many members is one record.
var offsetsConfigs = map[string]string{
	"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600", "max.message.bytes": "67108864",
}

func (b *Broker) offsetsConfigs() map[string]string {
	c := maps.Clone(offsetsConfigs)
	if b.o.InternalDurability != "" {
		c[cluster.DurabilityConfig] = b.o.InternalDurability
	}
	return c
}

// coordinator is this broker's part in the coordination of groups: a journal over the partitions of offsetsTopic that
// it owns. There is no journal while the topic doesn't exist.
type coordinator struct {
	b      *Broker
	create chan struct{} // a semaphore: one creation of the topic at a time
	topics atomic.Pointer[topicView]
	// options are the settings of groups as the image in topics, or a later one, has them.
	options atomic.Pointer[group.Options]

	lag *lagKeeper

	mu      sync.Mutex
	topic   frame.TopicID // that journal was made for
	journal *journal.Journal[*groupShard]
	closed  bool

	pastMu sync.Mutex
	past   GroupStats // totals of machines that were thrown away
}

func newCoordinator(b *Broker) *coordinator {
	g := &coordinator{b: b, create: make(chan struct{}, 1)}
	img := b.o.Cluster.Image()
	g.topics.Store(&topicView{img})
	g.options.Store(ptr(groupOptions(img.BrokerDefaults())))
	g.lag = newLagKeeper(g)
	return g
}

// follow keeps the shards in step with the cluster's state until the broker closes.
func (g *coordinator) follow() {
	var prev *cluster.Image
	img := g.b.o.Cluster.Image()
	for {
		g.see(prev, img)
		next, err := g.b.o.Cluster.Wait(g.b.ctx, img.Revision())
		if err != nil {
			if g.b.ctx.Err() == nil {
				g.b.log.Warn("group coordination no longer follows the cluster's state", zap.Error(err))
			}
			return
		}
		prev, img = img, next
	}
}

// see takes a new image: shards come and go, topics change.
func (g *coordinator) see(prev, img *cluster.Image) {
	var changed bool
	var gone []string
	if prev != nil {
		for id := range img.ChangedTopics(prev) {
			changed = true
			if old := prev.TopicByID(id); old != nil && !old.Deleting && !live(img, id) {
				gone = append(gone, old.Name)
			}
		}
	}
	view := &topicView{img}
	if changed || prev == nil {
		g.topics.Store(view)
	}
	altered := prev != nil && !maps.Equal(prev.BrokerDefaults(), img.BrokerDefaults())
	if altered || prev == nil {
		g.options.Store(ptr(groupOptions(img.BrokerDefaults())))
	}
	j := g.open(img)
	if j == nil {
		return
	}
	j.Sync()
	if !changed && !altered {
		return
	}
	j.Each(func(_ int32, s *groupShard, now time.Time) journal.Step {
		if altered {
			s.m.SetOptions(now, *g.options.Load())
		}
		if changed {
			s.m.SetTopics(view)
		}
		if len(gone) == 0 {
			return journal.Step{}
		}
		return s.step(s.m.TopicsDeleted(now, gone))
	})
}

func live(img *cluster.Image, id frame.TopicID) bool {
	t := img.TopicByID(id)
	return t != nil && !t.Deleting
}

// open returns the journal of the topic as it is in the image, nil when there is no topic.
func (g *coordinator) open(img *cluster.Image) *journal.Journal[*groupShard] {
	t := img.TopicByName(offsetsTopic)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	if g.journal != nil && (t == nil || t.ID != g.topic) {
		g.journal.Close()
		g.journal = nil
	}
	if t == nil {
		return nil
	}
	if g.journal == nil {
		g.topic = t.ID
		g.journal = journal.New(journal.Options[*groupShard]{
			Shards: t.Partitions, New: g.newShard, Now: g.b.o.Now, OnEvent: g.event,
			Partition: func(shard int32) journal.Partition {
				if p := g.b.o.Partitions.Get(frame.PartitionID{Topic: t.ID, Partition: shard}); p != nil {
					return p
				}
				return nil
			},
		})
	}
	return g.journal
}

// current returns the journal, nil while there is none.
func (g *coordinator) current() *journal.Journal[*groupShard] {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.journal
}

func (g *coordinator) close() {
	g.mu.Lock()
	j := g.journal
	g.closed = true
	g.mu.Unlock()
	if j != nil {
		j.Close()
	}
}

// event tells the operator what the journal has to say.
func (g *coordinator) event(e journal.Event) {
	fields := []zap.Field{zap.String("topic", offsetsTopic), zap.Int32("partition", e.Shard), zap.Int32("epoch", e.Epoch)}
	log := g.b.log
	switch e.Kind {
	case journal.Loaded, journal.Snapshot, journal.Trimmed:
		what := map[journal.Kind]string{journal.Loaded: "groups loaded", journal.Snapshot: "snapshot of groups written",
			journal.Trimmed: "records before the snapshot of groups removed"}[e.Kind]
		log.Debug(what, append(fields, zap.Int64("records", e.Records), zap.Int64("bytes", e.Bytes), zap.Duration("took", e.Took))...)
	case journal.Lost:
		if errors.Is(e.Err, journal.ErrNotCoordinator) || errors.Is(e.Err, journal.ErrClosed) {
			log.Debug("groups given up", append(fields, zap.Error(e.Err))...)
			return
		}
		log.Warn("groups are loaded again: what they were told isn't stored", append(fields, zap.Error(e.Err))...)
	case journal.Damaged:
		log.Error("records of groups are missing: offsets may be older than what was committed", append(fields, zap.Error(e.Err))...)
	default:
		log.Warn("group coordination has a problem and tries again", append(fields, zap.Error(e.Err))...)
	}
}

// shardOf is Kafka's hash of a group's name: that of a Java string, whose letters are UTF-16.
func shardOf(name string, shards int32) int32 {
	h := int32(0)
	for _, u := range utf16.Encode([]rune(name)) {
		h = 31*h + int32(u)
	}
	return (h & 0x7fffffff) % shards
}

// ownerWait is how long the search for a coordinator waits for its partition to be taken, as after a restart: some
// clients don't ask twice.
const ownerWait = 2 * time.Second

// locate returns the coordinator of a group, and creates the topic when this is the first group of all.
func (g *coordinator) locate(ctx context.Context, name string) (cluster.Broker, error) {
	img := g.b.o.Cluster.Image()
	t := img.TopicByName(offsetsTopic)
	if t == nil {
		var err error
		if t, err = g.createTopic(ctx); err != nil {
			return cluster.Broker{}, refuse(kerr.CoordinatorNotAvailable, fmt.Sprintf("the topic %s can't be created: %v", offsetsTopic, err))
		}
	}
	if t.Deleting || t.Partitions <= 0 {
		return cluster.Broker{}, kerr.CoordinatorNotAvailable
	}
	id := frame.PartitionID{Topic: t.ID, Partition: shardOf(name, t.Partitions)}
	ctx, cancel := context.WithTimeout(ctx, ownerWait)
	defer cancel()
	var at cluster.Broker
	if g.b.awaitImage(ctx, func(img *cluster.Image) (ok bool) {
		owner, _ := leader(img, id)
		at, ok = img.Broker(owner)
		return ok
	}) {
		return at, nil
	}
	return cluster.Broker{}, kerr.CoordinatorNotAvailable
}

// createTopic creates offsetsTopic and waits until its partitions take writes.
func (g *coordinator) createTopic(ctx context.Context) (*cluster.Topic, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*readyWait)
	defer cancel()
	select {
	case g.create <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-g.create }()
	img := g.b.o.Cluster.Image()
	if t := img.TopicByName(offsetsTopic); t != nil {
		return t, nil
	}
	n := setting(img.BrokerDefaults(), "offsets.topic.num.partitions")
	t, err := g.b.o.Admin.CreateTopic(ctx, cluster.TopicSpec{Name: offsetsTopic, Partitions: int32(min(n, cluster.MaxPartitionsPerTopic)), Configs: g.b.offsetsConfigs(), Internal: true})
	if errors.Is(err, cluster.ErrTopicExists) {
		if t := g.b.o.Cluster.Image().TopicByName(offsetsTopic); t != nil {
			return t, nil
		}
	}
	if err != nil {
		return nil, err
	}
	g.b.awaitReady(ctx, []*cluster.Topic{t})
	return t, nil
}
