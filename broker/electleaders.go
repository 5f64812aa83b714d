package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// Kinds of elections.
const (
	electPreferred = 0
	electUnclean   = 1
)

// electLeaders answers ElectLeaders, versions 0 to 2. There is nothing to elect: a partition has one owner, and another one takes
// over by itself where nothing can be lost. So the answer says how things stand. An unclean election would give up
// acknowledged records without telling which: that is tierctl's force-move, which does tell.
func (b *Broker) electLeaders(_ context.Context, c *call, req *kmsg.ElectLeadersRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	if req.ElectionType != electPreferred && req.ElectionType != electUnclean {
		resp.ErrorCode = b.failed(c, kerr.InvalidRequest.Code)
		return resp
	}
	img := b.o.Cluster.Image()
	if req.Topics == nil {
		for _, t := range img.Topics() {
			if t.Deleting {
				continue
			}
			out := kmsg.NewElectLeadersResponseTopic()
			out.Topic = t.Name
			for n := range t.Partitions {
				// As with Kafka, only those are listed that an election could concern.
				if err := elect(img, t, n, req.ElectionType); err != kerr.ElectionNotNeeded {
					out.Partitions = append(out.Partitions, b.elected(c, n, err))
				}
			}
			if len(out.Partitions) > 0 {
				resp.Topics = append(resp.Topics, out)
			}
		}
		return resp
	}
	for i := range req.Topics {
		in := &req.Topics[i]
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = in.Topic
		t, unknown := findTopic(img, false, in.Topic, [16]byte{})
		for _, n := range in.Partitions {
			var err error
			if unknown != nil {
				err = unknown
			} else {
				err = elect(img, t, n, req.ElectionType)
			}
			out.Partitions = append(out.Partitions, b.elected(c, n, err))
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (b *Broker) elected(c *call, n int32, err error) kmsg.ElectLeadersResponseTopicPartition {
	p := kmsg.NewElectLeadersResponseTopicPartition()
	p.Partition = n
	p.ErrorCode, p.ErrorMessage = codeAndText(err)
	b.failed(c, p.ErrorCode)
	return p
}

// elect says why there is no election for a partition.
func elect(img *cluster.Image, t *cluster.Topic, n int32, kind int8) error {
	if n < 0 || n >= t.Partitions {
		return kerr.UnknownTopicOrPartition
	}
	id := frame.PartitionID{Topic: t.ID, Partition: n}
	if at, _ := leader(img, id); at != cluster.NoBroker {
		return kerr.ElectionNotNeeded
	}
	code := kerr.PreferredLeaderNotAvailable
	if kind == electUnclean {
		code = kerr.EligibleLeadersNotAvailable
	}
	a, placed := img.Assignment(id)
	o, alive := img.Broker(a.Owner)
	switch {
	case !placed || a.Owner == cluster.NoBroker:
		return refuse(code, "The controller has not placed the partition yet.")
	case alive && a.State == cluster.Failed:
		return refuse(code, fmt.Sprintf("The partition failed at broker %d, which tries again: %s", a.Owner, a.Reason))
	case alive && o.Incarnation == a.OwnerIncarnation:
		return refuse(code, fmt.Sprintf("Broker %d is taking the partition over.", a.Owner))
	case a.Safe, alive:
		return refuse(code, fmt.Sprintf("Broker %d does not serve the partition any more; a broker takes it over by itself.", a.Owner))
	}
	return refuse(code, fmt.Sprintf("Broker %d is dead and its disk may hold the only copy of acknowledged records: start it again. "+
		"If it is lost, \"tierctl partition force-move\" tells what would be lost.", a.Owner))
}
