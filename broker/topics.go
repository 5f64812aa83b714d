package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
)

// findTopic returns the topic that a request means: by name, or by id where the version uses ids. A topic that is
// being deleted is already gone for clients.
func findTopic(img *cluster.Image, byID bool, name string, id frame.TopicID) (*cluster.Topic, *kerr.Error) {
	if byID {
		if t := img.TopicByID(id); t != nil && !t.Deleting {
			return t, nil
		}
		return nil, kerr.UnknownTopicID
	}
	if t := img.TopicByName(name); t != nil && !t.Deleting {
		return t, nil
	}
	return nil, kerr.UnknownTopicOrPartition
}

// find returns a partition of a topic if it is on this broker.
func (b *Broker) find(t *cluster.Topic, index int32) (Partition, *kerr.Error) {
	if index < 0 || index >= t.Partitions {
		return nil, kerr.UnknownTopicOrPartition
	}
	p := b.o.Partitions.Get(frame.PartitionID{Topic: t.ID, Partition: index})
	if p == nil {
		return nil, kerr.NotLeaderForPartition
	}
	return p, nil
}

// leader returns who answers for a partition now, -1 while nobody does: clients wait and ask again instead of
// talking to an owner that would refuse them.
func leader(img *cluster.Image, id frame.PartitionID) (broker, epoch int32) {
	a, ok := img.Assignment(id)
	if !ok {
		return cluster.NoBroker, cluster.NoEpoch
	}
	if a.State != cluster.Writing && a.State != cluster.Draining {
		return cluster.NoBroker, a.Epoch
	}
	if o, ok := img.Broker(a.Owner); !ok || o.Incarnation != a.OwnerIncarnation {
		return cluster.NoBroker, a.Epoch
	}
	return a.Owner, a.Epoch
}

// misdirected tells the codes with which a client is told to go elsewhere.
func misdirected(code int16) bool {
	return code == kerr.NotLeaderForPartition.Code || code == kerr.FencedLeaderEpoch.Code
}

// hints collects what KIP-951 adds to answers for misdirected clients: the current leader and its address.
type hints struct {
	img       *cluster.Image
	listener  string
	endpoints []kafka.NodeEndpoint
}

// leader returns the hint for a partition, nil when nobody leads it.
func (h *hints) leader(b *Broker, id frame.PartitionID) *kafka.Leader {
	owner, epoch := leader(h.img, id)
	if owner == cluster.NoBroker {
		return nil
	}
	for i := range h.endpoints {
		if h.endpoints[i].ID == owner {
			return &kafka.Leader{ID: owner, Epoch: epoch}
		}
	}
	o, ok := h.img.Broker(owner)
	if !ok {
		return nil
	}
	at := b.address(&o, h.listener)
	h.endpoints = append(h.endpoints, kafka.NodeEndpoint{ID: owner, Host: at.Host, Port: at.Port, Rack: rack(&o)})
	return &kafka.Leader{ID: owner, Epoch: epoch}
}

// address returns where clients of a listener reach a broker, exactly as the operator wrote it.
func (b *Broker) address(o *cluster.Broker, listener string) Endpoint {
	if o.ID == b.o.ID {
		if e, ok := b.o.Advertised[listener]; ok {
			return e
		}
	}
	for i := range o.Listeners {
		if o.Listeners[i].Name == listener {
			return Endpoint{Host: o.Listeners[i].Host, Port: o.Listeners[i].Port}
		}
	}
	return Endpoint{Host: o.Host, Port: o.Port}
}

// rack is null when not set: an empty rack would be a rack of its own.
func rack(o *cluster.Broker) *string {
	if o.Rack == "" {
		return nil
	}
	r := o.Rack
	return &r
}

// listener returns the name of the listener a request came in on.
func (c *call) listener() string {
	if c.Conn == nil {
		return ""
	}
	return c.Conn.Listener()
}

func ptr[T any](v T) *T { return &v }
