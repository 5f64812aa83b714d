package cache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVerifiedHoldsForTheSameMemory: a note is found by who reads the same chunks later, and by nobody once one of them was fetched
// again.
func TestVerifiedHoldsForTheSameMemory(t *testing.T) {
	const chunk, sum = 16 * kib, 7
	w := newWorld(t, Options{Bytes: 1 << 20})
	w.object("o", 5*chunk)
	w.object("p", 5*chunk)
	look := func(key string, f func(Slices)) {
		s, err := w.read(t.Context(), key, 0, 5*chunk)
		require.NoError(t, err)
		defer s.Release()
		f(s)
	}
	check := func(key string, off, n int64, sum uint32) (ok bool) {
		look(key, func(s Slices) { ok = s.Verified(off, n, sum) })
		return ok
	}
	for _, c := range []struct {
		name   string
		off, n int64
		in     []int64 // chunks
	}{
		{"inside a chunk", chunk + 5, 100, []int64{1}},
		{"a whole chunk", 2 * chunk, chunk, []int64{2}},
		{"across two", chunk - 10, 20, []int64{0, 1}},
		{"to the end", 3*chunk + 1, 2*chunk - 1, []int64{3, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, idx := range c.in {
				require.False(t, check("o", c.off, c.n, sum))
				look("o", func(s Slices) { s.SetVerified(c.off, c.n, sum) })
				require.True(t, check("o", c.off, c.n, sum))
				require.False(t, check("o", c.off, c.n, sum+1))
				require.False(t, check("o", c.off, c.n-1, sum))
				require.False(t, check("o", c.off+1, c.n, sum))
				require.False(t, check("p", c.off, c.n, sum), "another object")
				w.c.mu.Lock()
				w.c.forget(w.c.objects["o"].chunks[idx])
				w.c.mu.Unlock()
			}
			require.False(t, check("o", c.off, c.n, sum))
		})
	}
}

// TestVerifiedIsBounded: notes beyond the limit, over many chunks, and about bytes that were not read are not kept, and do no harm.
func TestVerifiedIsBounded(t *testing.T) {
	const chunk = 16 * kib
	w := newWorld(t, Options{Bytes: 1 << 20})
	w.object("o", 5*chunk)
	s, err := w.read(t.Context(), "o", chunk, 3*chunk)
	require.NoError(t, err)
	for _, x := range [][2]int64{{chunk, 3 * chunk}, {0, 10}, {4 * chunk, 10}, {4*chunk - 5, 10}, {chunk, 0}, {-1, 5}, {chunk, -1}} {
		s.SetVerified(x[0], x[1], 1)
		require.False(t, s.Verified(x[0], x[1], 1), "%v", x)
	}
	kept := 0
	for i := range int64(10 * maxNotes) {
		s.SetVerified(chunk+i, 1, 1)
		if s.Verified(chunk+i, 1, 1) {
			kept++
		}
	}
	require.Equal(t, maxNotes, kept)
	s.Release()
	var none Slices
	none.SetVerified(0, 1, 1)
	require.False(t, none.Verified(0, 1, 1))
}
