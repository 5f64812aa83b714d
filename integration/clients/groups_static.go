package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// staticTries is how often a static member may be late: on a busy machine a JVM can take longer to start than a session lasts.
const staticTries = 3

// static has a static member go and come back: it gets what it had, and nobody else is disturbed.
func static(ctx context.Context, r *groupRun) error {
	err := r.step(ctx, fmt.Sprintf("%d static members join", r.members), func() error {
		for i := range r.members {
			if err := r.join(r.program, r.protocol(), fmt.Sprintf("instance-%d", i), 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		inTime, err := comeBack(ctx, r)
		if err != nil {
			return err
		}
		if inTime {
			break
		}
		if try == staticTries {
			return fmt.Errorf("%d times a member took longer than its session to come back: the machine is too busy", try)
		}
	}
	return r.step(ctx, "1 crashes for good", func() error { r.crash(1); return nil })
}

// comeBack has the oldest member go and come back. It tells whether that took less than a session, without which
// nothing can be said.
func comeBack(ctx context.Context, r *groupRun) (inTime bool, err error) {
	r.mu.Lock()
	before, had, instance := len(r.events), maps.Clone(r.owned[r.living[0].id]), r.living[0].instance
	r.mu.Unlock()
	// A member of the newer protocol that has not said that it will be back still holds its instance id.
	what := "1 crashes and comes back"
	goes := func() error { r.crash(1); return nil }
	if r.protocol() == "consumer" {
		what, goes = "1 says that it will be back and comes back", func() error { return r.leave(1) }
	}
	begun := time.Now()
	err = r.step(ctx, what, func() error { return errors.Join(goes(), r.join(r.program, r.protocol(), instance, 1)) })
	if err != nil || time.Since(begun) > memberSession-time.Second {
		return false, err
	}
	r.out.check(r.label("it has what it had, nobody was disturbed"), func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		back := r.living[len(r.living)-1]
		for p := range had {
			if !r.owned[back.id][p] {
				return fmt.Errorf("it had partition %d and no longer has it", p)
			}
		}
		for _, e := range r.events[before:] {
			moves := e.What == "assigned" || e.What == "revoked" || e.What == "lost"
			if moves && e.who != back.id && len(e.Partitions) > 0 && slices.ContainsFunc(r.living, func(m *member) bool { return m.id == e.who }) {
				return fmt.Errorf("%s: %s %v", e.who, e.What, e.Partitions)
			}
		}
		return nil
	})
	return true, nil
}
