package load

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"
)

// consumers makes the consumers, so that they stand at their places, and returns what each does.
func (r *run) consumers(ctx context.Context) ([]func(context.Context) error, error) {
	var work []func(context.Context) error
	c := r.Consume
	for range c.FanOut {
		reading := newReading(c.Records)
		for i := range min(c.Consumers, r.Topic.Partitions) {
			o := c.Options
			o.Partitions = share(i, c.Consumers, r.Topic.Partitions)
			one, err := r.driver.Consumer(r.Topic, o)
			if err != nil {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, errors.Join(context.Cause(ctx), one.Close())
			}
			work = append(work, func(ctx context.Context) error { return errors.Join(r.read(ctx, one, reading), one.Close()) })
		}
	}
	return work, nil
}

// reading is one pass of some consumers over the whole topic.
type reading struct {
	left     atomic.Int64 // records until it is done; far below zero when it never is
	counted  bool
	complete chan struct{}
}

func newReading(records int64) *reading {
	g := &reading{complete: make(chan struct{}), counted: records > 0}
	g.left.Store(records)
	return g
}

// took counts records and ends the reading with the last one.
func (g *reading) took(n int64) {
	if g.counted && n > 0 {
		if left := g.left.Add(-n); left <= 0 && left+n > 0 {
			close(g.complete)
		}
	}
}

func (r *run) read(ctx context.Context, c Consumer, g *reading) error {
	poll, cancel := context.WithCancelCause(ctx)
	defer cancel(errOver)
	go func() {
		select {
		case <-g.complete:
			cancel(errOver)
		case <-poll.Done():
		}
	}()
	var bytes int64
	each := func(_ int32, _ int64, value []byte) {
		bytes += int64(len(value))
		if len(value) < stampBytes {
			return
		}
		// A record that was due in the window counts whenever it comes.
		due := int64(binary.LittleEndian.Uint64(value))
		if due != 0 && r.inWindow(due) {
			r.endToEnd.Record(time.Duration(r.clock.now()-due), 1)
			r.arrived.Add(1)
		}
	}
	for poll.Err() == nil {
		bytes = 0
		n, err := c.Poll(poll, each)
		if err != nil {
			if poll.Err() != nil {
				return nil
			}
			return err
		}
		r.consumed.add(int64(n), bytes)
		g.took(int64(n))
	}
	return nil
}
