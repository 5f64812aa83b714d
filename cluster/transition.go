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

type moveCall struct {
	moves    []Transition
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
	img := c.Image()
	groups := map[uint32][]Transition{}
	var lost []frame.PartitionID
	for _, t := range ts {
		if !OwnerMay(t.From, t.To) {
			return fmt.Errorf("transition of %s from %s to %s: not an owner's", t.ID, t.From, t.To)
		}
		n, ok := img.shardOf(t.ID)
		if !ok {
			lost = append(lost, t.ID)
			continue
		}
		groups[n] = append(groups[n], t)
	}
	calls := make([]*moveCall, 0, len(groups))
	for n, moves := range groups {
		call := &moveCall{moves: moves, done: make(chan struct{})}
		calls = append(calls, call)
		if err := c.enqueue(n, call); err != nil {
			return err
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
			return fmt.Errorf("%w: transition: %w", ErrUnavailable, ctx.Err())
		}
	}
	c.seen(ctx, revision)
	if err != nil {
		return err
	}
	return fenced(lost)
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
				switch applyMove(s, &call.moves[i]) {
				case moveMade:
					changed++
				case moveLost:
					call.lost = append(call.lost, call.moves[i].ID)
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

// applyMove makes one transition in a private copy of a shard.
func applyMove(s *shard, t *Transition) moveResult {
	e := s.find(t.ID)
	if e == nil || e.Epoch != t.Epoch {
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
		return moveKnown
	}
	if e.State != t.From {
		return moveLost
	}
	e.State = t.To
	switch t.To {
	case Writing:
		e.Failures, e.FailedAt, e.Reason = 0, 0, ""
	case Failed:
		e.Failures, e.FailedAt = min(e.Failures, 1<<30)+1, max(t.At, 0)
		e.Reason = cutReason(t.Reason)
	case Unassigned:
		e.Owner, e.OwnerIncarnation = NoBroker, ""
	case Starting, Recovering, Draining, Deleted:
	}
	return moveMade
}

func cutReason(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > MaxReason {
		s = strings.ToValidUTF8(s[:MaxReason], "")
	}
	return s
}
