package broker

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// reassigning collects what one AlterPartitionReassignments asks for, so that it is one call for all partitions.
type reassigning struct {
	img    *cluster.Image
	moves  []cluster.MoveWish
	cancel []frame.PartitionID
	// asked finds the answers of moves and cancel.
	asked []reassigned
	seen  map[frame.PartitionID]bool
}

type reassigned struct{ topic, partition int }

// alterPartitionReassignments answers AlterPartitionReassignments, version 0: it writes or takes back wishes for moves, which the
// controller carries out. A partition has one owner, so of a list of replicas the first is the one to move to.
func (b *Broker) alterPartitionReassignments(ctx context.Context, c *call, req *kmsg.AlterPartitionAssignmentsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	ctx, cancel := b.timeout(ctx, req.TimeoutMillis)
	defer cancel()
	r := reassigning{img: b.o.Cluster.Image(), seen: map[frame.PartitionID]bool{}}
	for i := range req.Topics {
		in := &req.Topics[i]
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.AlterPartitionAssignmentsResponseTopicPartition, len(in.Partitions))
		t, unknown := findTopic(r.img, false, in.Topic, [16]byte{})
		for k := range in.Partitions {
			p := &out.Partitions[k]
			p.Default()
			p.Partition = in.Partitions[k].Partition
			var err error
			switch {
			case unknown != nil:
				err = unknown
			default:
				err = r.add(t, &in.Partitions[k], reassigned{i, k})
			}
			p.ErrorCode, p.ErrorMessage = codeAndText(err)
			b.failed(c, p.ErrorCode)
		}
		resp.Topics = append(resp.Topics, out)
	}
	err := b.o.Admin.CancelMoves(ctx, r.cancel)
	if err == nil {
		err = b.o.Admin.SetMoves(ctx, r.moves)
	}
	if err != nil {
		for _, at := range r.asked {
			p := &resp.Topics[at.topic].Partitions[at.partition]
			p.ErrorCode, p.ErrorMessage = codeAndText(err)
			b.fail(c, resp.Topics[at.topic].Topic, err)
		}
	}
	return resp
}

// add notes what is asked for one partition.
func (r *reassigning) add(t *cluster.Topic, in *kmsg.AlterPartitionAssignmentsRequestTopicPartition, at reassigned) error {
	if in.Partition < 0 || in.Partition >= t.Partitions {
		return kerr.UnknownTopicOrPartition
	}
	id := frame.PartitionID{Topic: t.ID, Partition: in.Partition}
	if r.seen[id] {
		return refuse(kerr.InvalidRequest, fmt.Sprintf("partition %d of %s is named more than once", in.Partition, t.Name))
	}
	r.seen[id] = true
	_, wished := r.img.Move(id)
	if in.Replicas == nil {
		if !wished {
			return kerr.NoReassignmentInProgress
		}
		r.cancel, r.asked = append(r.cancel, id), append(r.asked, at)
		return nil
	}
	if err := checkReplicas(r.img, in.Replicas); err != nil {
		return err
	}
	target := in.Replicas[0]
	a, placed := r.img.Assignment(id)
	here := placed && a.Owner == target
	if here && wished { // back to where it still is
		r.cancel, r.asked = append(r.cancel, id), append(r.asked, at)
		return nil
	}
	w := cluster.MoveWish{ID: id, Target: target, Keep: true, Goal: "asked for by a Kafka client"}
	if err := r.img.CheckMove(w); here && (err != nil || a.Placed) {
		return nil
	} else if err != nil {
		return err
	}
	r.moves, r.asked = append(r.moves, w), append(r.asked, at)
	return nil
}
