package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// make writes changes; made tells whether any were due.
func (c *Controller) make(ctx context.Context, term *cluster.Term, img *cluster.Image, changes []Change) (made bool, err error) {
	for _, step := range []func(context.Context, *cluster.Term, *cluster.Image, []Change) (bool, error){c.assign, c.endWishes, c.freeNames} {
		did, err := step(ctx, term, img, changes)
		made = made || did
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// assign writes the changes of assignments.
func (c *Controller) assign(ctx context.Context, term *cluster.Term, img *cluster.Image, changes []Change) (made bool, err error) {
	var assign []cluster.Change
	var done []Change
	for i := range changes {
		if changes[i].assigns() {
			assign = append(assign, changes[i].Change)
			done = append(done, changes[i])
		}
	}
	if len(assign) == 0 {
		return false, nil
	}
	err = term.Apply(ctx, assign)
	var fenced *cluster.FencedError
	if err != nil && !errors.As(err, &fenced) {
		return false, err
	}
	if fenced != nil {
		// Those that lost were planned on an old image; the next plan sees why.
		c.stats.lost.Add(int64(len(fenced.Lost)))
		done = slices.DeleteFunc(done, func(x Change) bool {
			_, lost := slices.BinarySearchFunc(fenced.Lost, x.ID, frame.PartitionID.Compare)
			return lost
		})
	}
	c.did(done)
	if fenced != nil {
		return true, c.newer(ctx, img)
	}
	return true, nil
}

func (c *Controller) endWishes(ctx context.Context, term *cluster.Term, _ *cluster.Image, changes []Change) (made bool, err error) {
	var wishes []cluster.MoveWish
	var done []Change
	for i := range changes {
		if changes[i].Kind == EndWish {
			wishes = append(wishes, changes[i].Wish)
			done = append(done, changes[i])
		}
	}
	if len(wishes) == 0 {
		return false, nil
	}
	if err := term.EndMoves(ctx, wishes); err != nil {
		return false, err
	}
	c.did(done)
	return true, nil
}

func (c *Controller) freeNames(ctx context.Context, term *cluster.Term, img *cluster.Image, changes []Change) (made bool, err error) {
	for i := range changes {
		if changes[i].Kind != FreeName {
			continue
		}
		made = true
		err := term.FreeName(ctx, changes[i].ID.Topic)
		if errors.Is(err, cluster.ErrConflict) {
			if err := c.newer(ctx, img); err != nil {
				return made, err
			}
			continue
		}
		if err != nil {
			return made, err
		}
		c.did(changes[i : i+1])
	}
	return made, nil
}

// did counts and tells changes that were made.
func (c *Controller) did(changes []Change) {
	if len(changes) == 0 {
		return
	}
	for i := range changes {
		c.stats.changes[changes[i].Kind].Add(1)
	}
	c.o.OnEvent(Event{Kind: Changed, Changes: changes})
}

// newer waits for an image after one that a change was lost on: whoever won has
// written it. It does not wait long, since the winner may have been read here too.
func (c *Controller) newer(ctx context.Context, img *cluster.Image) error {
	wctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := c.o.Client.Wait(wctx, img.Revision()); err != nil && ctx.Err() == nil && wctx.Err() == nil {
		return err
	}
	return ctx.Err()
}
