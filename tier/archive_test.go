package tier

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRollReadAndLookUp(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	require.Equal(t, int64(1), w.h.Version)
	require.Equal(t, int64(minHeadroom), w.h.Ceiling)
	for i := range 60 {
		w.write(1 + w.rng.IntN(20))
		w.roll()
		if i%7 == 0 {
			gap := w.next + 1 + w.rng.Int64N(5)
			h, err := w.a.CommitRoll(ctx(t), w.id, w.h, w.owner, []Extent{VoidExtent(w.next, gap, w.owner.Epoch)}, nil)
			require.NoError(t, err)
			w.h, w.next = h, gap
		}
	}
	require.NotEmpty(t, w.h.Pages)
	require.Positive(t, w.h.Pages[0].Level)
	w.checkHead(w.h)
	w.checkAll(w.h)
	w.checkTimes(w.h, 5)
	require.LessOrEqual(t, len(w.h.Extents), 12)
}
