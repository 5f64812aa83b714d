package cluster

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tierbroker/tierbroker/frame"
)

// ImageSpec describes an image that doesn't come from etcd: for simulations and tests of what follows an image. Topics'
// Config is computed from their Overrides.
type ImageSpec struct {
	Revision    int64
	ClusterID   string
	Topics      []*Topic
	Deleted     []*DeletedTopic
	Assignments map[frame.PartitionID]Assignment
	Brokers     []Broker
	Wishes      map[int32]BrokerWish
	Moves       []MoveWish
}

// Build makes the image by the same path that events from etcd take.
func (s ImageSpec) Build() (*Image, error) {
	k := schema{prefix: "/"}
	b := newBuilder(k.prefix, emptyImage(localLayers{}))
	put := func(key string, v any) error {
		value, err := encodeRecord(v)
		if err == nil {
			err = b.putKey(key[len(k.prefix):], &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), ModRevision: s.Revision})
		}
		if err != nil {
			return fmt.Errorf("image: %s: %w", key, err)
		}
		return nil
	}
	if err := put(k.meta(), Meta{ClusterID: s.ClusterID, Incarnation: "built", Schema: 1}); err != nil {
		return nil, err
	}
	for _, t := range s.Topics {
		if err := put(k.topic(t.ID), t.record()); err != nil {
			return nil, err
		}
	}
	for _, d := range s.Deleted {
		if err := put(k.deleted(d.ID), d); err != nil {
			return nil, err
		}
	}
	for id, w := range s.Wishes {
		if err := put(k.brokerWish(id), w); err != nil {
			return nil, err
		}
	}
	for _, w := range s.Moves {
		if err := put(k.moveWish(w.ID), w); err != nil {
			return nil, err
		}
	}
	for i := range s.Brokers {
		b.putBroker(s.Brokers[i])
	}
	list := make([]idEntry, 0, len(s.Assignments))
	for id, a := range s.Assignments {
		list = append(list, idEntry{id, entry{Assignment: a}})
	}
	sh := &shard{number: 1, revision: s.Revision}
	sh.rebuild(list)
	b.putShard(1, sh)
	return b.build(s.Revision), nil
}
