package partition

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProgressWakesWhomItConcerns has many wait at rising positions, some of whom give up, and moves the marks.
func TestProgressWakesWhomItConcerns(t *testing.T) {
	g := newProgress(0)
	gone, leave := context.WithCancel(t.Context())
	const n = 30
	var got [n]chan error
	for i := range n {
		got[i] = make(chan error, 1)
		ctx := t.Context()
		if i%3 == 2 {
			ctx = gone
		}
		go func() {
			got[i] <- g.wait(ctx, &Ack{end: uint64(i + 1), gen: 1, onWrite: i%3 == 1}, time.Now().Add(time.Hour))
		}()
	}
	left := func(want int) {
		t.Helper()
		n := 0
		eventually(t, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			n = len(g.waiting)
			return n == want
		}, func() string { return fmt.Sprintf("%d wait, not %d", n, want) })
	}
	left(n)

	require.ErrorIs(t, g.wait(t.Context(), &Ack{end: 5, gen: 1}, time.Now().Add(-time.Second)), context.DeadlineExceeded)
	left(n)
	g.advance(20, 10)
	left(n - 10 - 4)
	for i := range 20 {
		if i < 10 || i%3 == 1 {
			require.NoError(t, <-got[i], i)
		}
	}
	leave()
	left(n - 10 - 4 - 7)
	require.ErrorIs(t, <-got[29], context.Canceled)

	lost := errors.New("lost")
	g.failed(failure{before: 2, at: 25, err: lost})
	require.ErrorIs(t, <-got[27], lost)
	left(6) // 12, 15, 18, 21, 24 and 22
	g.end(ErrClosing)
	require.ErrorIs(t, <-got[24], ErrClosing)
	left(0)
	require.NoError(t, g.wait(t.Context(), &Ack{end: 10, gen: 1}, time.Time{}))
	require.ErrorIs(t, g.wait(t.Context(), &Ack{end: 11, gen: 3}, time.Time{}), ErrClosing)
}
