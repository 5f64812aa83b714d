package cluster

import (
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tierbroker/tierbroker/frame"
)

// BrokerWish returns what operators want of a broker; false when nothing.
func (i *Image) BrokerWish(broker int32) (BrokerWish, bool) {
	w, ok := i.wishes[broker]
	return w, ok
}

// BrokerWishes returns all wishes for brokers, also for such that do not live. The
// map is shared.
func (i *Image) BrokerWishes() map[int32]BrokerWish { return i.wishes }

// Moves returns the moves that operators wish for, sorted by partition. The slice is
// shared.
func (i *Image) Moves() []MoveWish { return i.moves.list() }

// Move returns the wish for one partition.
func (i *Image) Move(id frame.PartitionID) (MoveWish, bool) { return i.moves.byID.get(id) }

// put takes over a wish; key is what follows "operator/".
func (b *builder) putWish(key string, kv *mvccpb.KeyValue) error {
	if rest, ok := strings.CutPrefix(key, wishOfBroker); ok {
		id, err := parseInt32(rest)
		if err != nil {
			return err
		}
		var w BrokerWish
		if err := decodeRecord(kv.Value, &w); err != nil {
			return err
		}
		w.Why = cutText(w.Why, maxWishText)
		b.cloneWishes()
		b.next.wishes[id] = w
		return nil
	}
	rest, ok := strings.CutPrefix(key, wishOfMove)
	if !ok {
		return nil // of a later version
	}
	id, err := parsePartition(rest)
	if err != nil {
		return err
	}
	w := MoveWish{Target: NoBroker}
	if err := decodeRecord(kv.Value, &w); err != nil {
		return err
	}
	if w.Target < 0 {
		return fmt.Errorf("target %d", w.Target)
	}
	if _, had := b.moves.get(id); !had && b.moves.len() >= MaxMoves {
		return fmt.Errorf("more than %d moves", MaxMoves)
	}
	w.ID, w.Revision, w.Goal = id, kv.ModRevision, cutText(w.Goal, maxWishText)
	b.moves.set(id, w)
	return nil
}

func (b *builder) delWish(key string) {
	if rest, ok := strings.CutPrefix(key, wishOfBroker); ok {
		if id, err := parseInt32(rest); err == nil {
			b.cloneWishes()
			delete(b.next.wishes, id)
		}
		return
	}
	if rest, ok := strings.CutPrefix(key, wishOfMove); ok {
		if id, err := parsePartition(rest); err == nil {
			b.moves.del(id)
		}
	}
}

func (b *builder) cloneWishes() {
	if !b.ownWishes {
		b.ownWishes = true
		b.next.wishes = cloneMap(b.next.wishes)
	}
}

// parsePartition reads "<topic id>/<partition>".
func parsePartition(s string) (frame.PartitionID, error) {
	topic, number, ok := strings.Cut(s, "/")
	if !ok {
		return frame.PartitionID{}, fmt.Errorf("%.60q names no partition", s)
	}
	id, err := frame.ParseTopicID(topic)
	if err != nil {
		return frame.PartitionID{}, err
	}
	n, err := parseInt32(number)
	if err != nil {
		return frame.PartitionID{}, err
	}
	if n >= MaxPartitionsPerTopic {
		return frame.PartitionID{}, fmt.Errorf("partition %d", n)
	}
	return frame.PartitionID{Topic: id, Partition: n}, nil
}
