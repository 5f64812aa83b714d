package group

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTour: groups that stay are visited once, whatever comes and goes between the parts of a tour.
func TestTour(t *testing.T) {
	w := newWorld(Options{})
	commit := func(g string) { w.do(buildCommit(args{"offsets": "t:0:1,t:1:2,u:0:3"}, g)) }
	for i := range 100 {
		commit(fmt.Sprintf("stays-%d", i))
		commit(fmt.Sprintf("goes-%d", i))
	}
	for round := range uint64(3) {
		tour := Tour{Number: round + 1}
		seen := map[string]int{}
		gone := 0
		for more := true; more; {
			n := 0
			more = w.m.Visit(&tour, 10, func(c Committed) { n++; seen[fmt.Sprintf("%s/%s/%d", c.Group, c.Topic, c.Partition)]++ })
			require.LessOrEqual(t, n, 10+3)
			if g := w.m.groups[fmt.Sprintf("goes-%d", gone)]; g != nil {
				w.m.dropOffsets(g)
			}
			commit(fmt.Sprintf("comes-%d-%d", round, gone))
			gone++
		}
		for i := range 100 {
			for _, o := range []string{"t/0", "t/1", "u/0"} {
				require.Equal(t, 1, seen[fmt.Sprintf("stays-%d/%s", i, o)])
			}
		}
		for o, n := range seen {
			require.Equal(t, 1, n, o)
		}
		for i := range min(gone, 100) {
			commit(fmt.Sprintf("goes-%d", i))
		}
		require.Len(t, w.m.list, len(w.m.groups))
	}
}
