package controller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tierbroker/tierbroker/cluster"
)

// Options of a Controller.
type Options struct {
	Client *cluster.Client
	// Session is the lease the candidacy is bound to.
	Session *cluster.Session
	Broker  int32         // id of this node, shown as the controller
	Now     func() int64  // ms since 1970; nil: the system's clock
	OnEvent func(e Event) // called in order from Run's goroutine; nil: nobody listens
	// Loads returns what brokers have reported; nil: counts of partitions are evened out only.
	Loads func() Loads
	// Catalog keeps topics and settings in the bucket current; nil: not kept.
	Catalog Catalog
}

// Catalog is what the controller needs of the bucket's copy of the cluster. Run
// keeps the copy current; it is called for each term, and returns nil when its
// context ends.
type Catalog interface {
	Run(ctx context.Context) error
}

// Controller is elected and makes what Plan returns.
type Controller struct {
	o       Options
	leading atomic.Bool
	stats   counters
}

// New returns a controller; Run makes it stand for election.
func New(o Options) (*Controller, error) {
	if o.Client == nil || o.Session == nil {
		return nil, errors.New("controller: Client and Session must be set")
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	if o.Loads == nil {
		o.Loads = func() Loads { return nil }
	}
	return &Controller{o: o}, nil
}

// Leading reports whether this node is the controller as far as it knows.
func (c *Controller) Leading() bool { return c.leading.Load() }

// Run stands for election, leads when elected, and stands again when a term was
// lost, until ctx ends (nil) or the session does (cluster.ErrSessionLost).
func (c *Controller) Run(ctx context.Context) error {
	for {
		term, err := c.o.Client.Campaign(ctx, c.o.Session, c.o.Broker)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, cluster.ErrUnavailable):
			if pause(ctx, time.Second) != nil {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		c.leading.Store(true)
		c.stats.terms.Add(1)
		c.o.OnEvent(Event{Kind: Elected})
		err = c.lead(ctx, term)
		c.leading.Store(false)
		c.o.OnEvent(Event{Kind: Deposed, Err: err})
		if ctx.Err() != nil {
			return c.resign(ctx, term)
		}
		select {
		case <-term.Done():
			return cluster.ErrSessionLost
		default:
		}
	}
}

// resign lets another candidate lead at once.
func (c *Controller) resign(ctx context.Context, term *cluster.Term) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := term.Resign(ctx); err != nil && !errors.Is(err, cluster.ErrUnavailable) {
		return fmt.Errorf("resign as controller: %w", err)
	}
	return nil // without etcd the lease ends by itself
}

// lead makes plans until the term or ctx ends.
func (c *Controller) lead(ctx context.Context, term *cluster.Term) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		defer cancel()
		select {
		case <-term.Done():
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-stopped }()
	if c.o.Catalog != nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			// The catalog retries by itself; what it returns here is final.
			if err := c.o.Catalog.Run(ctx); err != nil && ctx.Err() == nil {
				c.o.OnEvent(Event{Kind: CatalogFail, Err: err})
			}
		}()
		defer func() { cancel(); <-done }()
	}
	return c.loop(ctx, term)
}

// loop is: look, plan, make, wait for the next image or the next due time.
func (c *Controller) loop(ctx context.Context, term *cluster.Term) error {
	const least, most = 50 * time.Millisecond, 5 * time.Second
	failing := least
	var seen *cluster.Image
	auto := autoClock{at: NeverDue}
	for {
		img := c.o.Client.Image()
		if !term.Holds(img) {
			return cluster.ErrNotLeader
		}
		c.observe(seen, img)
		seen = img
		now := c.o.Now()
		began := time.Now()
		changes, next := planAt(img, c.o.Loads(), now)
		c.stats.planned(time.Since(began))
		made, err := c.make(ctx, term, img, changes)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, cluster.ErrNotLeader):
			return err
		case err != nil:
			c.stats.failed.Add(1)
			c.o.OnEvent(Event{Kind: PlanFailed, Err: err})
			if err := pause(ctx, failing); err != nil {
				return err
			}
			failing = min(2*failing, most)
			continue
		}
		failing = least
		if made {
			continue // what was made is in the image: plan again before sleeping
		}
		if auto.due(img, now) {
			if made, err = c.rebalance(ctx, term, img, &auto, now); err != nil {
				return err
			}
			if made {
				continue
			}
		}
		next = min(next, auto.at)
		if err := c.wait(ctx, img, now, next); err != nil {
			return err
		}
	}
}

// wait returns when there is a newer image or the next change is due.
func (c *Controller) wait(ctx context.Context, img *cluster.Image, now, next int64) error {
	wctx := ctx
	if next != NeverDue {
		due := time.Duration(min(next-now, retryMost)) * time.Millisecond
		var cancel context.CancelFunc
		wctx, cancel = context.WithTimeout(ctx, due+time.Millisecond)
		defer cancel()
	}
	_, err := c.o.Client.Wait(wctx, img.Revision())
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
