package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSetOptions: a shorter interval of the search for expired offsets counts from now on, not when the longer one ends.
func TestSetOptions(t *testing.T) {
	w := newWorld(Options{OffsetsRetentionCheck: 24 * time.Hour, OffsetsRetention: time.Minute})
	w.do(buildCommit(args{"offsets": "t:0:1"}, "g"))
	next := func() time.Duration {
		at, ok := w.m.NextDeadline()
		require.True(t, ok)
		return at.Sub(w.now)
	}
	require.Equal(t, 24*time.Hour, next())
	o := w.opts
	o.NewID = nil
	o.OffsetsRetentionCheck = 2 * time.Minute
	w.m.SetOptions(w.now, o)
	require.Equal(t, 2*time.Minute, next())
	require.NotNil(t, w.m.opts.NewID)
	w.now = w.now.Add(time.Minute)
	w.m.SetOptions(w.now, o)
	require.Equal(t, time.Minute, next(), "the same interval changes nothing")
	w.now = w.now.Add(time.Minute)
	require.Len(t, w.m.Tick(w.now).Records, 1)
	require.Equal(t, uint64(1), w.m.Stats().Expired)

	// Before Loaded there is nothing to search.
	m := New(w.opts)
	m.SetOptions(w.now, Options{OffsetsRetentionCheck: time.Second})
	_, ok := m.NextDeadline()
	require.False(t, ok)
}
