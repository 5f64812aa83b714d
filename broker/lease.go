package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
)

// A broker whose lease may have ended may no longer own its partitions: an operator can have forced them to another broker,
// which goes on without what this one has. So nothing is confirmed then that rests on the lease alone: writes of sync and
// async topics, whatever acks they ask for, and what coordinators answer. The check comes last, when the answer is known and
// durable: what passes it was safe before the lease could end. Writes of object topics need no lease: an object that a
// successor has not sealed off is part of the partition. Reads go on; they may be old, never different.
//
// Clients get errors that make them ask for the leader, or the coordinator, and try again. When etcd answers in time after
// all, the lease goes on and so does everything else.

// restsOnLease tells whether a topic's writes are safe only as long as this broker's lease lives.
func restsOnLease(t *cluster.Topic) bool { return t.Config.Durability != cluster.Object }

// leaseDoubt is nil as long as this broker's lease lives for certain, and what a coordinator answers otherwise.
func (b *Broker) leaseDoubt() error {
	if b.o.LeaseValid() {
		return nil
	}
	return kerr.NotCoordinator
}

// doubted takes confirmations back that rest on a lease that may have ended.
func (r *produceCall) doubted() {
	if len(r.appends) == 0 || r.b.o.LeaseValid() {
		return
	}
	for i := range r.appends {
		a := &r.appends[i]
		out := &r.resp.Topics[a.topic]
		if out.Partitions[a.part].Error != 0 {
			continue
		}
		if !a.ack.RestsOnLease() {
			continue // whatever the topic's settings say by now
		}
		in := &r.req.Topics[a.topic]
		t, _ := findTopic(r.hints.img, r.c.Version >= 13, in.Name, in.ID)
		r.refuse(t, a.topic, a.part, kerr.NotLeaderForPartition)
		a.bytes = 0
	}
}

// aliveOnly tells whether a request only says that a member lives: groups hear it also in doubt, so that their members
// are still theirs when the doubt is over, and nobody is answered.
func aliveOnly(req kmsg.Request) bool {
	switch r := req.(type) {
	case *kmsg.HeartbeatRequest:
		return true
	case *kmsg.ConsumerGroupHeartbeatRequest:
		return r.MemberEpoch > 0
	}
	return false
}
