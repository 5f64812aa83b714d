package broker

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// controllerFor is the node that clients take for the controller, to send changes to. Every broker carries them out, and a
// controller that isn't a broker has no address for clients: the living broker of the lowest id stands for it.
func controllerFor(img *cluster.Image) int32 {
	id := img.ControllerID()
	if _, ok := img.Broker(id); ok || len(img.Brokers()) == 0 {
		return id
	}
	return img.Brokers()[0].ID
}

// metadata answers Metadata, versions 0 to 13. Null topics mean all of them and an empty list none; in version 0 an
// empty list means all.
func (b *Broker) metadata(ctx context.Context, c *call, req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	b.awaitOwn(ctx, req)
	img := b.o.Cluster.Image()
	for _, o := range img.Brokers() {
		at := b.address(&o, c.listener())
		n := kmsg.NewMetadataResponseBroker()
		n.NodeID, n.Host, n.Port, n.Rack = o.ID, at.Host, at.Port, rack(&o)
		resp.Brokers = append(resp.Brokers, n)
	}
	resp.ClusterID, resp.ControllerID = ptr(img.ClusterID()), controllerFor(img)
	resp.AuthorizedOperations = notAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	all := req.Topics == nil || c.Version == 0 && len(req.Topics) == 0
	if all {
		for _, t := range img.Topics() {
			if !t.Deleting {
				resp.Topics = append(resp.Topics, b.describeTopic(img, t))
			}
		}
	} else {
		resp.Topics = b.metadataTopics(c, img, req)
	}
	ops := int32(notAsked)
	if req.IncludeTopicAuthorizedOperations {
		ops = topicOperations
	}
	for i := range resp.Topics {
		resp.Topics[i].AuthorizedOperations = ops
		if resp.Topics[i].ErrorCode != 0 {
			resp.Topics[i].AuthorizedOperations = notAsked
			b.failed(c, resp.Topics[i].ErrorCode)
		}
	}
	return resp
}

// takingWindow is how long after its start a broker lets questions for its partitions wait until it has taken them.
const takingWindow = 30 * time.Second

// awaitOwn waits, for ownerWait at most, until this broker serves the partitions of the topics asked for that are its own. After
// a restart clients are back within a moment, and some that hear of no leader don't ask again for five seconds. It is done once
// for a topic: what comes later, by a failover or a move, comes piece by piece, and clients are told of each piece at once.
func (b *Broker) awaitOwn(ctx context.Context, req *kmsg.MetadataRequest) {
	if len(req.Topics) == 0 || b.o.Now().Sub(b.began) > takingWindow {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ownerWait)
	defer cancel()
	b.awaitImage(ctx, func(img *cluster.Image) bool {
		for i := range req.Topics {
			in := &req.Topics[i]
			name := ""
			if in.Topic != nil {
				name = *in.Topic
			}
			t, _ := findTopic(img, in.TopicID != [16]byte{}, name, in.TopicID)
			if t == nil {
				continue
			}
			if _, done := b.taken.Load(t.ID); done {
				continue
			}
			if b.taking(img, t) {
				return false
			}
			b.taken.Store(t.ID, nil)
		}
		return true
	})
}

// taking says whether a topic has partitions of this broker that it doesn't serve yet.
func (b *Broker) taking(img *cluster.Image, t *cluster.Topic) bool {
	for i := range t.Partitions {
		id := frame.PartitionID{Topic: t.ID, Partition: i}
		if at, _ := leader(img, id); at != cluster.NoBroker {
			continue
		}
		a, ok := img.Assignment(id)
		if ok && a.Owner == b.o.ID && a.State != cluster.Unassigned && a.State != cluster.Failed && a.State != cluster.Deleted {
			return true
		}
	}
	return false
}

// metadataTopics answers for the topics asked for, each once.
func (b *Broker) metadataTopics(c *call, img *cluster.Image, req *kmsg.MetadataRequest) []kmsg.MetadataResponseTopic {
	out := make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
	names := make(map[string]struct{}, len(req.Topics))
	ids := make(map[frame.TopicID]struct{})
	create := c.Version < 4 || req.AllowAutoTopicCreation
	for i := range req.Topics {
		in := &req.Topics[i]
		byID := in.TopicID != [16]byte{}
		switch {
		case c.Version < 12 && (byID || in.Topic == nil), in.Topic == nil && !byID:
			out = append(out, absentTopic(kerr.InvalidRequest, in))
		case byID:
			if _, again := ids[in.TopicID]; again {
				continue
			}
			ids[in.TopicID] = struct{}{}
			t, unknown := findTopic(img, true, "", in.TopicID)
			if unknown != nil {
				out = append(out, absentTopic(unknown, &kmsg.MetadataRequestTopic{TopicID: in.TopicID}))
				continue
			}
			out = append(out, b.describeTopic(img, t))
		default:
			if _, again := names[*in.Topic]; again {
				continue
			}
			names[*in.Topic] = struct{}{}
			if t, _ := findTopic(img, false, *in.Topic, in.TopicID); t != nil {
				out = append(out, b.describeTopic(img, t))
				continue
			}
			out = append(out, absentTopic(b.missing(img, *in.Topic, create), in))
		}
	}
	return out
}

func absentTopic(e *kerr.Error, in *kmsg.MetadataRequestTopic) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.ErrorCode, t.Topic, t.TopicID = e.Code, in.Topic, in.TopicID
	if t.Topic != nil {
		t.IsInternal = internalName(*t.Topic)
	}
	return t
}

// missing says what a client hears of a topic that doesn't exist, and creates it if that is allowed. The creation
// isn't waited for: LEADER_NOT_AVAILABLE makes every client ask again after a moment, as it does with Kafka.
func (b *Broker) missing(img *cluster.Image, name string, create bool) *kerr.Error {
	if cluster.ValidTopicName(name) != nil {
		return kerr.InvalidTopicException
	}
	if !create || internalName(name) || !cluster.ParseBrokerSettings(img.BrokerDefaults()).AutoCreateTopics {
		return kerr.UnknownTopicOrPartition
	}
	if collides(img, name) {
		return kerr.InvalidTopicException
	}
	return b.autoCreate(img, name)
}

// internalName tells Kafka's own topics: nobody creates them by asking for them.
func internalName(name string) bool {
	return name == "__consumer_offsets" || name == "__transaction_state" || name == "__share_group_state"
}

// describeTopic gives a topic's answer with all its partitions.
func (b *Broker) describeTopic(img *cluster.Image, t *cluster.Topic) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID, out.IsInternal = ptr(t.Name), t.ID, t.Internal
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, t.Partitions)
	ids := make([]int32, t.Partitions) // one allocation for all replica lists
	for i := range out.Partitions {
		p := &out.Partitions[i]
		p.Default()
		p.Partition = int32(i)
		v := viewPartition(img, frame.PartitionID{Topic: t.ID, Partition: int32(i)}, ids[i:i:i+1])
		p.ErrorCode, p.Leader, p.LeaderEpoch = v.err, v.leader, v.epoch
		p.Replicas, p.ISR, p.OfflineReplicas = v.replicas, v.isr, v.offline
	}
	return out
}

// partitionView is how Kafka's replication model sees a partition: its owner is the only replica, since copies are
// the bucket's business.
type partitionView struct {
	err                    int16
	leader, epoch          int32
	replicas, isr, offline []int32
}

var none = []int32{}

func viewPartition(img *cluster.Image, id frame.PartitionID, buf []int32) partitionView {
	v := partitionView{replicas: none, isr: none, offline: none}
	v.leader, v.epoch = leader(img, id)
	if v.leader == cluster.NoBroker {
		v.err = kerr.LeaderNotAvailable.Code
	}
	a, ok := img.Assignment(id)
	if !ok || a.Owner == cluster.NoBroker {
		return v
	}
	v.replicas = append(buf, a.Owner)
	if _, alive := img.Broker(a.Owner); alive && a.State != cluster.Failed {
		v.isr = v.replicas
	} else {
		v.offline = v.replicas
	}
	return v
}

// Bounds of auto-creation: how many topics are being created at one time, and how long one may take.
const (
	maxCreations    = 64
	creationTimeout = 30 * time.Second
)

// creations are the topics being auto-created, so that a crowd of clients creates a topic once.
type creations struct {
	mu    sync.Mutex
	names map[string]struct{}
}

func (c *creations) init() { c.names = map[string]struct{}{} }

// begin says whether the caller creates the topic; full says that too many are being created.
func (c *creations) begin(name string) (mine, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, other := c.names[name]; other {
		return false, false
	}
	if len(c.names) >= maxCreations {
		return false, true
	}
	c.names[name] = struct{}{}
	return true, false
}

func (c *creations) end(name string) {
	c.mu.Lock()
	delete(c.names, name)
	c.mu.Unlock()
}

func (b *Broker) autoCreate(img *cluster.Image, name string) *kerr.Error {
	mine, full := b.creating.begin(name)
	switch {
	case full, b.ctx.Err() != nil:
		return kerr.UnknownTopicOrPartition
	case !mine:
		return kerr.LeaderNotAvailable
	}
	spec := cluster.TopicSpec{Name: name, Partitions: cluster.ParseBrokerSettings(img.BrokerDefaults()).NumPartitions}
	b.tasks.Go(func() {
		defer b.creating.end(name)
		ctx, cancel := context.WithTimeout(b.ctx, creationTimeout)
		defer cancel()
		if _, err := b.o.Admin.CreateTopic(ctx, spec); err != nil && code(err) != kerr.TopicAlreadyExists.Code {
			b.log.Warn("topic was not auto-created", zap.String("topic", name), zap.Error(err))
		}
	})
	return kerr.LeaderNotAvailable
}
