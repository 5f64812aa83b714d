package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tierbroker/tierbroker/frame"
)

// shardQueues merges the transitions that wait for the same shard into one
// transaction, so that a thousand callers cost a few requests and never fight
// each other.
type shardQueues struct {
	mu sync.Mutex
	m  map[uint32][]*moveCall // present while a goroutine works on the shard
}

// move changes one entry of a private copy of a shard.
type move interface {
	partition() frame.PartitionID
	apply(*entry) moveResult
}

type moveCall struct {
	moves    []move
	lost     []frame.PartitionID
	revision int64
	err      error
	done     chan struct{}
}

// Transition makes changes of state that owners ask for. Each is compared with
// owner, incarnation, epoch and state of the partition; those that lost are in
// the *FencedError, all others were made. A change that is made already counts as
// made, so a call may be repeated. Changes of one partition in one call are made
// in their order.
func (c *Client) Transition(ctx context.Context, ts []Transition) error {
	moves := make([]move, len(ts))
	for i := range ts {
		if err := ts[i].check(); err != nil {
			return err
		}
		moves[i] = &ts[i]
	}
	lost, err := c.move(ctx, moves)
	if err != nil {
		return err
	}
	return fenced(lost)
}

// MarkWarm says that a broker has loaded what it needs of partitions that move to
// it. Those whose owner, epoch or target is another by now are passed over.
func (c *Client) MarkWarm(ctx context.Context, target int32, ws []Warmed) error {
	moves := make([]move, len(ws))
	for i := range ws {
		moves[i] = warmMove{&ws[i], target}
	}
	_, err := c.move(ctx, moves)
	return err
}

// check refuses what no owner may ask for.
func (t *Transition) check() error {
	switch {
	case t.From == t.To && t.Safe != nil && (t.To == Recovering || t.To == Writing || t.To == Draining):
		return nil
	case !OwnerMay(t.From, t.To), t.HandOver != (t.To == Starting):
		return fmt.Errorf("transition of %s from %s to %s: not an owner's", t.ID, t.From, t.To)
	case t.HandOver && (t.NewOwner < 0 || t.NewIncarnation == "" || len(t.NewIncarnation) > maxIncarnation):
		return fmt.Errorf("hand-over of %s to broker %d, incarnation of %d bytes", t.ID, t.NewOwner, len(t.NewIncarnation))
	}
	return nil
}

// move makes changes of single partitions through the queues of their shards. It
// returns those that lost.
func (c *Client) move(ctx context.Context, moves []move) ([]frame.PartitionID, error) {
	img := c.Image()
	groups := map[uint32][]move{}
	var lost []frame.PartitionID
	for _, m := range moves {
		n, ok := img.shardOf(m.partition())
		if !ok {
			lost = append(lost, m.partition())
			continue
		}
		groups[n] = append(groups[n], m)
	}
	calls := make([]*moveCall, 0, len(groups))
	for n, moves := range groups {
		call := &moveCall{moves: moves, done: make(chan struct{})}
		calls = append(calls, call)
		if err := c.enqueue(n, call); err != nil {
			return nil, err
		}
	}
	var err error
	var revision int64
	for _, call := range calls {
		select {
		case <-call.done:
			lost, revision = append(lost, call.lost...), max(revision, call.revision)
			err = errors.Join(err, call.err)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: transition: %w", ErrUnavailable, ctx.Err())
		}
	}
	c.seen(ctx, revision)
	return lost, err
}

func fenced(lost []frame.PartitionID) error {
	if len(lost) == 0 {
		return nil
	}
	slices.SortFunc(lost, frame.PartitionID.Compare)
	return &FencedError{Lost: slices.Compact(lost)}
}

// enqueue adds a call to a shard's queue and starts a worker when none runs.
func (c *Client) enqueue(n uint32, call *moveCall) error {
	q := &c.moves
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.run.Err() != nil {
		return ErrClosed
	}
	if q.m == nil {
		q.m = map[uint32][]*moveCall{}
	}
	waiting, working := q.m[n]
	q.m[n] = append(waiting, call)
	if !working {
		c.wg.Add(1)
		go func() {
			defer c.wg.Done()
			c.drain(n)
		}()
	}
	return nil
}

// drain works on one shard until nobody waits for it.
func (c *Client) drain(n uint32) {
	q := &c.moves
	for {
		q.mu.Lock()
		calls := q.m[n]
		if len(calls) == 0 {
			delete(q.m, n)
			q.mu.Unlock()
			return
		}
		q.m[n] = nil
		q.mu.Unlock()
		c.moveShard(n, calls)
	}
}

func (c *Client) moveShard(n uint32, calls []*moveCall) {
	// The calls' contexts differ; each caller stops waiting by its own, and the
	// work is bounded by the client's.
	revision, _, err := c.editShard(c.run, n, nil, func(s *shard) (changed int, lost []frame.PartitionID) {
		for _, call := range calls {
			call.lost = nil // this may be the second attempt
			for i := range call.moves {
				e, r := s.find(call.moves[i].partition()), moveLost
				if e != nil {
					r = call.moves[i].apply(e)
				}
				switch r {
				case moveMade:
					changed++
				case moveLost:
					call.lost = append(call.lost, call.moves[i].partition())
				case moveKnown:
				}
			}
			lost = append(lost, call.lost...)
		}
		return changed, lost
	})
	for _, call := range calls {
		call.revision, call.err = revision, err
		close(call.done)
	}
}

type moveResult uint8

const (
	moveMade  moveResult = iota
	moveKnown            // it was made already
	moveLost
)

func (t *Transition) partition() frame.PartitionID { return t.ID }

// apply makes one transition.
func (t *Transition) apply(e *entry) moveResult {
	if t.HandOver && e.Epoch == t.Epoch+1 && e.Owner == t.NewOwner && e.OwnerIncarnation == t.NewIncarnation {
		return moveKnown // the new owner may be further on already
	}
	if e.Epoch != t.Epoch {
		return moveLost
	}
	released := t.To == Unassigned && e.State == Unassigned && e.Owner == NoBroker
	if released {
		return moveKnown
	}
	if e.Owner != t.Owner || e.OwnerIncarnation != t.OwnerIncarnation {
		return moveLost
	}
	if e.State == t.To {
		if t.Safe == nil || *t.Safe == e.Safe {
			return moveKnown
		}
		e.Safe = *t.Safe // the state was reached by an attempt whose answer was lost, or is kept
		return moveMade
	}
	if e.State != t.From || t.HandOver && e.Target != t.NewOwner {
		return moveLost
	}
	t.enter(e)
	return moveMade
}

// enter changes the state of an entry that is what the transition expects.
func (t *Transition) enter(e *entry) {
	e.State = t.To
	if t.Safe != nil {
		e.Safe = *t.Safe
	}
	switch t.To {
	case Writing:
		e.Failures, e.FailedAt, e.Reason, e.Jump = 0, 0, "", false
	case Failed:
		e.Failures, e.FailedAt = min(e.Failures, 1<<30)+1, max(t.At, 0)
		e.Reason = cutReason(t.Reason)
	case Unassigned:
		e.Owner, e.OwnerIncarnation = NoBroker, ""
		e.Warm = false
	case Starting:
		e.Owner, e.OwnerIncarnation, e.Epoch = t.NewOwner, t.NewIncarnation, t.Epoch+1
		e.Target, e.TargetSince, e.Warm = NoBroker, 0, false
		e.Unready, e.UnreadyAt, e.Placed = 0, 0, false
	case Recovering, Draining, Deleted:
	}
}

// warmMove sets Warm for a target.
type warmMove struct {
	*Warmed
	target int32
}

func (w warmMove) partition() frame.PartitionID { return w.ID }

func (w warmMove) apply(e *entry) moveResult {
	switch {
	case e.Epoch != w.Epoch, e.Owner != w.Owner, e.OwnerIncarnation != w.OwnerIncarnation, e.Target != w.target, w.target == NoBroker:
		return moveLost
	case e.Warm:
		return moveKnown
	}
	e.Warm = true
	return moveMade
}

func cutReason(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > MaxReason {
		s = strings.ToValidUTF8(s[:MaxReason], "")
	}
	return s
}
