package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// readyWait is how long the answer to a creation waits for the new partitions to take writes, so that what a client
// does next succeeds at once. The topic exists whether that works or not.
const readyWait = 5 * time.Second

// createTopics answers CreateTopics, versions 2 to 7.
func (b *Broker) createTopics(ctx context.Context, c *call, req *kmsg.CreateTopicsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	ctx, cancel := b.timeout(ctx, req.TimeoutMillis)
	defer cancel()
	count := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		count[req.Topics[i].Topic]++
	}
	resp.Topics = make([]kmsg.CreateTopicsResponseTopic, 0, len(req.Topics))
	room := b.o.MaxPartitions
	created := make([]*cluster.Topic, 0, len(req.Topics))
	for i := range req.Topics {
		in := &req.Topics[i]
		if count[in.Topic] == 0 {
			continue // a repeated name was answered once
		}
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic, out.NumPartitions, out.ReplicationFactor = in.Topic, -1, -1
		out.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
		var err error
		if count[in.Topic] > 1 {
			err = refuse(kerr.InvalidRequest, "Duplicate topic name.")
		} else {
			var t *cluster.Topic
			if t, err = b.createTopic(ctx, in, req.ValidateOnly, &room, &out); t != nil {
				created = append(created, t)
			}
		}
		count[in.Topic] = 0
		if err != nil {
			out.ErrorCode = b.fail(c, in.Topic, err)
			_, out.ErrorMessage = codeAndText(err)
		}
		resp.Topics = append(resp.Topics, out)
	}
	b.awaitReady(ctx, created)
	return resp
}

// createTopic checks and creates one topic and describes it in out; the topic is nil when nothing was created.
func (b *Broker) createTopic(ctx context.Context, in *kmsg.CreateTopicsRequestTopic, dry bool, room *int32, out *kmsg.CreateTopicsResponseTopic) (*cluster.Topic, error) {
	img := b.o.Cluster.Image()
	if err := checkNewName(img, in.Topic); err != nil {
		return nil, err
	}
	partitions, replicas, err := b.shape(img, in)
	if err != nil {
		return nil, err
	}
	if partitions > *room {
		return nil, refuse(kerr.InvalidPartitions, fmt.Sprintf("one request may create at most %d partitions", b.o.MaxPartitions))
	}
	configs := make(map[string]string, len(in.Configs))
	for _, cfg := range in.Configs {
		if cfg.Value == nil {
			return nil, refuse(kerr.InvalidConfig, "Null value not supported for topic configs: "+cfg.Name)
		}
		if _, again := configs[cfg.Name]; again {
			return nil, refuse(kerr.InvalidRequest, "Error due to duplicate config keys: "+cfg.Name)
		}
		configs[cfg.Name] = *cfg.Value
	}
	if _, err := cluster.ParseTopicConfig(configs, img.BrokerDefaults()); err != nil {
		return nil, err
	}
	var t *cluster.Topic
	if !dry {
		t, err = b.o.Admin.CreateTopic(ctx, cluster.TopicSpec{Name: in.Topic, Partitions: partitions, Configs: configs})
		if err != nil {
			return nil, err
		}
		out.TopicID = t.ID
		b.placeAt(ctx, t, in.ReplicaAssignment)
	}
	*room -= partitions
	out.NumPartitions, out.ReplicationFactor = partitions, replicas
	out.Configs = createdConfigs(img, b.o.ID, configs)
	return t, nil
}

func checkNewName(img *cluster.Image, name string) error {
	if err := cluster.ValidTopicName(name); err != nil {
		return refuse(kerr.InvalidTopicException, err.Error())
	}
	if internalName(name) {
		return refuse(kerr.InvalidTopicException, "Topic '"+name+"' is internal: the broker creates it when it is needed")
	}
	if t := img.TopicByName(name); t != nil {
		if t.Deleting {
			return refuse(kerr.TopicAlreadyExists, "Topic '"+name+"' is being deleted.")
		}
		return refuse(kerr.TopicAlreadyExists, "Topic '"+name+"' already exists.")
	}
	if collides(img, name) {
		return refuse(kerr.InvalidTopicException, "Topic '"+name+"' collides with an existing topic: names that differ in '.' and '_' only are not allowed.")
	}
	return nil
}

// collides tells whether a topic exists whose name differs in '.' and '_' only; Kafka refuses that because such names
// become one in metrics.
func collides(img *cluster.Image, name string) bool {
	if !strings.ContainsAny(name, "._") {
		return false
	}
	folded := strings.ReplaceAll(name, ".", "_")
	for _, t := range img.Topics() {
		if t.Name != name && len(t.Name) == len(name) && strings.ReplaceAll(t.Name, ".", "_") == folded {
			return true
		}
	}
	return false
}

// shape returns the number of partitions and the replication factor that a client asks for. The factor is checked as
// Kafka checks it, accepted, and not stored: a partition has one owner, and its copies are the bucket's business.
func (b *Broker) shape(img *cluster.Image, in *kmsg.CreateTopicsRequestTopic) (int32, int16, error) {
	if len(in.ReplicaAssignment) > 0 {
		return assigned(img, in)
	}
	defaults := cluster.ParseBrokerSettings(img.BrokerDefaults())
	partitions, replicas := in.NumPartitions, in.ReplicationFactor
	switch {
	case partitions == -1:
		partitions = defaults.NumPartitions
	case partitions <= 0:
		return 0, 0, refuse(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	alive := max(len(img.Brokers()), 1) // this broker answers, whatever has become of its lease
	switch {
	case replicas == -1:
		replicas = int16(min(int(max(defaults.ReplicationFactor, 1)), alive))
	case replicas <= 0:
		return 0, 0, refuse(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case int(replicas) > alive:
		return 0, 0, refuse(kerr.InvalidReplicationFactor, fmt.Sprintf("Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered.", replicas, replicas, alive))
	}
	return partitions, replicas, nil
}

// placeAt asks the controller for the owners that a manual assignment names. They are wishes: a broker that dies before it has
// its partition does not keep it, and a topic whose wishes can't be written exists all the same.
func (b *Broker) placeAt(ctx context.Context, t *cluster.Topic, list []kmsg.CreateTopicsRequestTopicReplicaAssignment) {
	moves := make([]cluster.MoveWish, 0, len(list))
	for i := range list {
		moves = append(moves, cluster.MoveWish{ID: frame.PartitionID{Topic: t.ID, Partition: list[i].Partition}, Target: list[i].Replicas[0], Keep: true, Goal: goalAssigned})
	}
	b.wishPlaces(ctx, t, moves)
}

// goalAssigned is why a partition is moved to where a client wanted it when it was created.
const goalAssigned = "assigned at its creation"

func (b *Broker) wishPlaces(ctx context.Context, t *cluster.Topic, moves []cluster.MoveWish) {
	if len(moves) == 0 {
		return
	}
	if err := b.o.Admin.SetMoves(ctx, moves); err != nil {
		b.log.Warn("the controller places new partitions: those who assigned them could not be heard", zap.String("topic", t.Name), zap.Error(err))
	}
}

// assigned checks a manual assignment by Kafka's rules. It says how many partitions there are; the first replica of each is
// wished for as its owner.
func assigned(img *cluster.Image, in *kmsg.CreateTopicsRequestTopic) (int32, int16, error) {
	if in.NumPartitions != -1 {
		return 0, 0, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	if in.ReplicationFactor != -1 {
		return 0, 0, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	n := len(in.ReplicaAssignment)
	seen := make([]bool, n)
	replicas := len(in.ReplicaAssignment[0].Replicas)
	for i := range in.ReplicaAssignment {
		a := &in.ReplicaAssignment[i]
		switch {
		case a.Partition < 0 || int(a.Partition) >= n:
			return 0, 0, refuse(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		case seen[a.Partition]:
			return 0, 0, refuse(kerr.InvalidReplicaAssignment, fmt.Sprintf("Found multiple manual partition assignments for partition %d", a.Partition))
		case len(a.Replicas) != replicas:
			return 0, 0, refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment has partitions with different replication factors.")
		}
		seen[a.Partition] = true
		if err := checkReplicas(img, a.Replicas); err != nil {
			return 0, 0, err
		}
	}
	return int32(n), int16(min(replicas, 1<<15-1)), nil
}

func checkReplicas(img *cluster.Image, replicas []int32) error {
	if len(replicas) == 0 {
		return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	if len(replicas) > len(img.Brokers()) {
		return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment has more replicas than there are brokers.")
	}
	for i, id := range replicas {
		if slices.Contains(replicas[:i], id) {
			return refuse(kerr.InvalidReplicaAssignment, fmt.Sprintf("The manual partition assignment includes the broker %d more than once.", id))
		}
		if _, ok := img.Broker(id); !ok {
			return refuse(kerr.InvalidReplicaAssignment, fmt.Sprintf("The manual partition assignment includes broker %d, but no such broker is registered.", id))
		}
	}
	return nil
}

// createdConfigs lists the settings of a new topic with their sources. The list is never null: the Java admin client
// fails on null unless a config error goes with it.
func createdConfigs(img *cluster.Image, broker int32, overrides map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	l := img.ConfigLayers(broker, nil)
	l.Topic = overrides
	values := cluster.DescribeTopicConfig(l)
	out := make([]kmsg.CreateTopicsResponseTopicConfig, 0, len(values))
	for i := range values {
		v := kmsg.NewCreateTopicsResponseTopicConfig()
		v.Name, v.Value, v.Source, v.ReadOnly = values[i].Def.Name, ptr(values[i].Value), int8(values[i].Source), values[i].Def.ReadOnly
		out = append(out, v)
	}
	return out
}

// awaitReady waits until the partitions of new topics take writes.
func (b *Broker) awaitReady(ctx context.Context, topics []*cluster.Topic) {
	if len(topics) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	todo := topics
	var next int32 // partition of todo[0] that is looked at next
	if !b.awaitImage(ctx, func(img *cluster.Image) bool {
		for len(todo) > 0 {
			t := todo[0]
			for ; next < t.Partitions; next++ {
				owner, _ := leader(img, frame.PartitionID{Topic: t.ID, Partition: next})
				gone := img.TopicByID(t.ID) == nil && img.Revision() > t.Revision
				if owner == cluster.NoBroker && !gone {
					return false
				}
			}
			todo, next = todo[1:], 0
		}
		return true
	}) {
		return
	}
	for _, t := range topics {
		for i := range t.Partitions {
			if !b.awaitWriting(ctx, frame.PartitionID{Topic: t.ID, Partition: i}) {
				return
			}
		}
	}
}

// awaitWriting waits until a partition that the cluster's state gives to this broker takes writes here: a partition
// learns that its transition is committed a moment later than the image does. False when the time is over before.
func (b *Broker) awaitWriting(ctx context.Context, id frame.PartitionID) bool {
	const pause = time.Millisecond // nothing tells of it, and it takes no longer than that
	var t *time.Timer
	for {
		if owner, _ := leader(b.o.Cluster.Image(), id); owner != b.o.ID {
			return true // somewhere else, or gone
		}
		if p := b.o.Partitions.Get(id); p != nil {
			if _, ok := p.Writing(); ok {
				return true
			}
		}
		if t == nil {
			t = time.NewTimer(pause)
			defer t.Stop()
		} else {
			t.Reset(pause)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return false
		}
	}
}

// awaitImage waits for an image of the cluster for which ok holds; false when the time is over before.
func (b *Broker) awaitImage(ctx context.Context, ok func(*cluster.Image) bool) bool {
	img := b.o.Cluster.Image()
	for !ok(img) {
		next, err := b.o.Cluster.Wait(ctx, img.Revision())
		if err != nil {
			return false
		}
		img = next
	}
	return true
}
