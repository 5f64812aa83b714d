package s3

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	firstHold = 100 * time.Millisecond
	longHold  = 20 * time.Second
	firstWait = 50 * time.Millisecond // between attempts of one request
	attempts  = 3                     // of a request that may be repeated, hold-offs not counted
)

// lane limits the requests of one class.
type lane struct {
	slots    chan struct{}
	deadline time.Duration

	mu    sync.Mutex
	until time.Time     // nobody sends before
	hold  time.Duration // length of the last hold-off; 0 after a success
}

func newLane(l Lane) *lane {
	return &lane{slots: make(chan struct{}, l.Concurrency), deadline: l.Deadline}
}

// enter waits for the end of a hold-off and for a slot. The caller must leave.
func (l *lane) enter(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := sleep(ctx, l.pause()); err != nil {
			return err
		}
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		if l.pause() <= 0 {
			return nil
		}
		<-l.slots // a hold-off began while we queued
	}
}

func (l *lane) leave() { <-l.slots }

// pause is how long to wait now: up to the end of the hold-off, and up to a quarter of it more, so that not all come at once.
func (l *lane) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := time.Until(l.until)
	if d <= 0 {
		return 0
	}
	return d + rand.N(l.hold/4+1)
}

// slowDown begins a hold-off or lengthens the next one. Answers to requests that were on their way before it count once.
func (l *lane) slowDown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.until) {
		return
	}
	l.hold = min(max(2*l.hold, firstHold), longHold)
	l.until = now.Add(l.hold/2 + rand.N(l.hold/2+1))
}

func (l *lane) ok() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.until) {
		l.hold = 0
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
