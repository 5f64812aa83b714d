package controller

import (
	"context"
	"errors"

	"github.com/tierbroker/tierbroker/cluster"
)

// autoEvery is the least time between two looks at the balance, in ms: a look costs
// more than a plan.
const autoEvery = 10_000

// autoClock says when to look at the balance: some time after the image has changed,
// or when PlanAuto asked for it.
type autoClock struct {
	at, last int64
	revision int64
}

func (a *autoClock) due(img *cluster.Image, now int64) bool {
	if img.Revision() != a.revision {
		a.revision = img.Revision()
		a.at = min(a.at, max(a.last+autoEvery, now))
	}
	if a.last > now { // the clock went back
		a.last, a.at = now, min(a.at, now+autoEvery)
	}
	return now >= a.at
}

// rebalance makes the moves of an automatic rebalance when one is due.
func (c *Controller) rebalance(ctx context.Context, term *cluster.Term, img *cluster.Image, clock *autoClock, now int64) (made bool, err error) {
	clock.last = now
	var r Rebalance
	if r, clock.at = PlanAuto(img, now); len(r.Moves) == 0 {
		return false, nil
	}
	wishes := r.Wishes()
	for i := range wishes {
		wishes[i].Since, wishes[i].Goal = now, "automatic "+wishes[i].Goal
	}
	err = term.SetMoves(ctx, wishes)
	switch {
	case errors.Is(err, cluster.ErrNotLeader) || ctx.Err() != nil:
		return false, err
	case err != nil:
		c.stats.failed.Add(1)
		c.o.OnEvent(Event{Kind: PlanFailed, Err: err})
		clock.at = now + autoEvery
		return false, nil
	}
	c.stats.rebalances.Add(1)
	c.o.OnEvent(Event{Kind: Rebalanced, Rebalance: &r})
	return true, nil
}
