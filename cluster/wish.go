package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierbroker/tierbroker/frame"
)

// MaxMoves bounds how many moves operators may wish for at a time.
const MaxMoves = 200_000

// maxWishText bounds the texts of a wish in bytes; longer ones are cut.
const maxWishText = 200

// wishesPerTxn keeps a transaction under the limit of an etcd with default settings
// (128 operations).
const wishesPerTxn = 100

// BrokerWish is what operators want of a broker. The controller acts on it and never
// changes it.
type BrokerWish struct {
	// Draining: the broker gets no partitions, and those it has are moved away.
	Draining bool `json:"draining,omitempty"`
	// Removed: it leaves the cluster for good. It is drained like a draining one, and
	// once it owns nothing its registration is refused.
	Removed bool   `json:"removed,omitempty"`
	Since   int64  `json:"since,omitempty"` // ms since 1970; set by SetBrokerWish when 0
	Why     string `json:"why,omitempty"`   // for people, at most 200 bytes
}

// Drains reports whether partitions are to leave the broker.
func (w BrokerWish) Drains() bool { return w.Draining || w.Removed }

// MoveWish asks for one partition at another broker. The controller carries it out
// and removes it when it is done or has become impossible.
type MoveWish struct {
	ID     frame.PartitionID `json:"-"`
	Target int32             `json:"target"`
	// Force takes the partition away from an owner that is dead or failed and did not
	// release it: what only that owner's disk holds is lost. With a living, serving
	// owner it is an ordinary move.
	Force bool `json:"force,omitempty"`
	// Keep: the automatic rebalance is not to move it away from there (Assignment.Placed).
	Keep     bool   `json:"keep,omitempty"`
	Since    int64  `json:"since,omitempty"` // ms since 1970; set by SetMoves when 0
	Goal     string `json:"goal,omitempty"`  // what the move serves, for people, at most 200 bytes
	Revision int64  `json:"-"`               // etcd revision of the wish; tells it from a later one of the partition
}

// SetBrokerWish says what operators want of a broker, whether it lives or not; the
// zero value takes the wish back.
func (c *Client) SetBrokerWish(ctx context.Context, broker int32, w BrokerWish) error {
	if broker < 0 {
		return fmt.Errorf("wish for broker %d: no such id", broker)
	}
	key := c.keys.brokerWish(broker)
	op := clientv3.OpDelete(key)
	if w.Drains() {
		if err := c.room(); err != nil {
			return fmt.Errorf("wish for broker %d: %w", broker, err)
		}
		w.Since, w.Why = defaultTo(w.Since, c.o.Now()), cutText(w.Why, maxWishText)
		value, err := encodeRecord(w)
		if err != nil {
			return err
		}
		op = clientv3.OpPut(key, value)
	}
	return c.putWishes(ctx, "set wish for broker", []clientv3.Op{op})
}

// removed returns ErrBrokerRemoved when operators have removed a broker that owns
// nothing any more. While it owns something it may come back: its disk may hold the
// only copy.
func (c *Client) removed(ctx context.Context, broker int32) error {
	key := c.keys.brokerWish(broker)
	r, err := c.get(ctx, "read wish for broker", key)
	if err != nil || len(r.Kvs) == 0 {
		return err
	}
	var w BrokerWish
	if err := decodeRecord(r.Kvs[0].Value, &w); err != nil {
		return &CorruptError{Key: key, Hint: err.Error()}
	}
	if !w.Removed {
		return nil
	}
	img, err := c.Wait(ctx, r.Kvs[0].ModRevision-1)
	if err != nil {
		return err
	}
	for _, a := range img.Assignments() {
		if a.Owner == broker {
			return nil
		}
	}
	return fmt.Errorf("register broker %d: %w", broker, ErrBrokerRemoved)
}

// CheckMove reports why a move can not be wished for: ErrInvalidMove with a text for
// people, nil when it can.
func (i *Image) CheckMove(w MoveWish) error {
	t := i.TopicByID(w.ID.Topic)
	b, alive := i.Broker(w.Target)
	wish, _ := i.BrokerWish(w.Target)
	switch {
	case t == nil || w.ID.Partition < 0 || w.ID.Partition >= t.Partitions:
		return fmt.Errorf("%w: there is no partition %s", ErrInvalidMove, w.ID)
	case t.Deleting:
		return fmt.Errorf("%w: topic %s is being deleted", ErrInvalidMove, t.Name)
	case !alive || !b.OwnsPartitions():
		return fmt.Errorf("%w: broker %d is not alive", ErrInvalidMove, w.Target)
	case b.Draining || wish.Drains():
		return fmt.Errorf("%w: broker %d is being drained", ErrInvalidMove, w.Target)
	}
	return nil
}

// SetMoves asks for moves; one replaces an earlier wish of the same partition. It
// checks all of them first (ErrInvalidMove) and may stop in the middle when etcd
// does not answer: repeat it. The moves go on without the caller.
func (c *Client) SetMoves(ctx context.Context, moves []MoveWish) error {
	img := c.Image()
	if len(img.Moves())+len(moves) > MaxMoves {
		return fmt.Errorf("%w: more than %d at a time", ErrInvalidMove, MaxMoves)
	}
	if err := c.room(); err != nil {
		return fmt.Errorf("set moves: %w", err)
	}
	ops := make([]clientv3.Op, 0, len(moves))
	for _, w := range moves {
		if err := img.CheckMove(w); err != nil {
			return err
		}
		w.Since, w.Goal = defaultTo(w.Since, c.o.Now()), cutText(w.Goal, maxWishText)
		value, err := encodeRecord(w)
		if err != nil {
			return err
		}
		ops = append(ops, clientv3.OpPut(c.keys.moveWish(w.ID), value))
	}
	return c.putWishes(ctx, "set moves", ops)
}

// CancelMoves takes wishes back; those of partitions that have none are fine. A move
// under way stops unless its owner drains already.
func (c *Client) CancelMoves(ctx context.Context, ids []frame.PartitionID) error {
	ops := make([]clientv3.Op, len(ids))
	for i, id := range ids {
		ops[i] = clientv3.OpDelete(c.keys.moveWish(id))
	}
	return c.putWishes(ctx, "cancel moves", ops)
}

// putWishes makes changes that may be repeated and in parts.
func (c *Client) putWishes(ctx context.Context, verb string, ops []clientv3.Op) error {
	revision := int64(0)
	for part := range slices.Chunk(ops, wishesPerTxn) {
		r, err := c.retryTxn(ctx, verb, nil, part, nil)
		if err != nil {
			return err
		}
		if wrote(r) {
			revision = r.Header.Revision
		}
	}
	c.seen(ctx, revision)
	return nil
}

// wrote reports whether a transaction has made a revision: one that deletes nothing
// has not, and an image that stands for it may never come.
func wrote(r *clientv3.TxnResponse) bool {
	return slices.ContainsFunc(r.Responses, func(x *etcdserverpb.ResponseOp) bool {
		return x.GetResponsePut() != nil || x.GetResponseDeleteRange().GetDeleted() > 0
	})
}

// EndMoves removes wishes that are done or impossible. A wish that was replaced or
// taken back meanwhile is left alone. ErrNotLeader: the term has ended.
func (t *Term) EndMoves(ctx context.Context, moves []MoveWish) error {
	return t.inChunks(ctx, moves, t.endMoves)
}

// SetMoves asks for moves in the name of the controller. A partition that operators
// wish to be moved keeps their wish. ErrNotLeader: the term has ended.
func (t *Term) SetMoves(ctx context.Context, moves []MoveWish) error {
	return t.inChunks(ctx, moves, t.setMoves)
}

// inChunks makes changes of wishes in portions that fit into transactions, and
// returns when the image has them.
func (t *Term) inChunks(ctx context.Context, moves []MoveWish, change func(context.Context, []MoveWish) (int64, error)) error {
	if err := t.barrier(ctx); err != nil {
		return err
	}
	revision := int64(0)
	for _, part := range chunksOf(moves) {
		rev, err := change(ctx, part)
		if err != nil {
			t.dirty.Store(true)
			return err
		}
		revision = max(revision, rev)
	}
	_, err := t.c.Wait(ctx, revision-1)
	return err
}

func (t *Term) setMoves(ctx context.Context, moves []MoveWish) (revision int64, err error) {
	cmps := []clientv3.Cmp{t.guard()}
	var then []clientv3.Op
	for _, w := range moves {
		key := t.c.keys.moveWish(w.ID)
		w.Since, w.Goal = defaultTo(w.Since, t.c.o.Now()), cutText(w.Goal, maxWishText)
		value, err := encodeRecord(w)
		if err != nil {
			return 0, err
		}
		cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		then = append(then, clientv3.OpPut(key, value))
	}
	return t.tryMoves(ctx, "set moves", cmps, then, moves, t.setMoves)
}

// endMoves tries all in one transaction, and one by one when any of them has changed.
func (t *Term) endMoves(ctx context.Context, moves []MoveWish) (revision int64, err error) {
	cmps := []clientv3.Cmp{t.guard()}
	var then []clientv3.Op
	for _, w := range moves {
		key := t.c.keys.moveWish(w.ID)
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(key), "=", w.Revision))
		then = append(then, clientv3.OpDelete(key))
	}
	return t.tryMoves(ctx, "end moves", cmps, then, moves, t.endMoves)
}

// tryMoves runs a transaction over several wishes, and each alone when it loses.
func (t *Term) tryMoves(ctx context.Context, verb string, cmps []clientv3.Cmp, then []clientv3.Op, moves []MoveWish,
	alone func(context.Context, []MoveWish) (int64, error)) (revision int64, err error) {
	r, err := t.c.retryTxn(ctx, verb, cmps, then, []clientv3.Op{clientv3.OpGet(t.key)})
	switch {
	case err != nil:
		return 0, err
	case r.Succeeded:
		return r.Header.Revision, nil
	case len(r.Responses[0].GetResponseRange().Kvs) == 0:
		return 0, ErrNotLeader
	case len(moves) == 1:
		return 0, nil // changed meanwhile, or removed by an attempt whose answer was lost
	}
	for i := range moves {
		rev, err := alone(ctx, moves[i:i+1])
		if err != nil {
			return revision, err
		}
		revision = max(revision, rev)
	}
	return revision, nil
}

func chunksOf(moves []MoveWish) [][]MoveWish {
	return slices.Collect(slices.Chunk(moves, wishesPerTxn))
}

func cutText(s string, most int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
