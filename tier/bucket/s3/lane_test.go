package s3

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLaneLimitsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(Lane{Concurrency: 2, Deadline: time.Second})
		require.NoError(t, l.enter(t.Context()))
		require.NoError(t, l.enter(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, l.enter(ctx), context.DeadlineExceeded)
		go func() {
			require.NoError(t, sleep(t.Context(), time.Hour))
			l.leave()
		}()
		require.NoError(t, l.enter(t.Context()))
		cancel()
		require.ErrorIs(t, l.enter(ctx), context.DeadlineExceeded, "not even when there is room")
	})
}

// TestHoldOff: pauses double up to a limit; answers to what was on its way count once; a success ends it.
func TestHoldOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(Lane{Concurrency: 8, Deadline: time.Second})
		want := firstHold
		for range 12 {
			for range 5 {
				l.slowDown()
			}
			require.Equal(t, want, l.hold)
			start := time.Now()
			require.NoError(t, l.enter(t.Context()))
			waited := time.Since(start)
			require.GreaterOrEqual(t, waited, want/2)
			require.LessOrEqual(t, waited, want+want/4)
			l.leave()
			want = min(2*want, longHold)
		}
		l.ok()
		l.slowDown()
		require.Equal(t, firstHold, l.hold)
		l.ok()
		require.Equal(t, firstHold, l.hold, "a success of what was on its way does not end the hold-off")
	})
}

// TestHoldOffCatchesTheQueue: who waited for a slot when the hold-off began waits for its end too.
func TestHoldOffCatchesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(Lane{Concurrency: 1, Deadline: time.Second})
		require.NoError(t, l.enter(t.Context()))
		start := time.Now()
		done := make(chan time.Duration)
		go func() {
			require.NoError(t, l.enter(t.Context()))
			done <- time.Since(start)
		}()
		synctest.Wait()
		l.slowDown()
		l.leave()
		require.GreaterOrEqual(t, <-done, firstHold/2)
	})
}
