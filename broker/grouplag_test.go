package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
)

// lagging makes figures anew with each question.
func lagging(t *testing.T) *world {
	w, topic := grouped(t)
	w.b.groups.lag.every, w.b.groups.lag.budget = 0, 2
	for i, o := range []struct{ start, local, end int64 }{{0, 0, 100}, {20, 50, 100}, {0, 0, 0}} {
		p := w.part(topic, int32(i))
		p.set(func() { p.start, p.local, p.durable, p.next = o.start, o.local, o.end, o.end })
	}
	return w
}

func TestGroupLag(t *testing.T) {
	w := lagging(t)
	w.topic("u", 1)
	require.Zero(t, commit(w, "g", "t", 0, 90))
	require.Zero(t, commit(w, "g", "t", 1, 5))
	require.Zero(t, commit(w, "g", "t", 2, 3), "beyond the end, as after a loss")
	require.Eventually(t, func() bool { return commit(w, "g", "u", 0, 0) == 0 }, 10*time.Second, time.Millisecond, "the topic is new")
	require.Zero(t, commit(w, "g", "t", 7, 3), "no such partition here")
	require.Eventually(t, func() bool { return commit(w, "h", "t", 0, 100) == 0 }, 10*time.Second, time.Millisecond)
	lag := w.b.GroupLag()
	require.WithinDuration(t, time.Now(), lag.At, time.Minute)
	require.Equal(t, []PairLag{
		{Group: "g", Topic: "t", Records: 10 + 80, Cold: 30, Lost: 15}, {Group: "g", Topic: "u"}, {Group: "h", Topic: "t"},
	}, lag.Pairs)
	require.Equal(t, 1, lag.Unknown)
	require.Zero(t, lag.Unlisted)

	// Fewer may be shown: the first by name, the others in sum.
	require.Zero(t, w.set(cluster.GroupLagSeries, "1"))
	require.Zero(t, commit(w, "h", "t", 0, 99))
	require.Eventually(t, func() bool { lag = w.b.GroupLag(); return len(lag.Pairs) == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, "g", lag.Pairs[0].Group)
	require.Equal(t, 2, lag.Unlisted)
	require.EqualValues(t, 1, lag.UnlistedRecords)
	require.Zero(t, w.set(cluster.GroupLagSeries, "0"))
	require.Eventually(t, func() bool { lag = w.b.GroupLag(); return len(lag.Pairs)+lag.Unlisted == 0 }, 10*time.Second, time.Millisecond)
}

// Whatever names clients choose, what is shown stays bounded, valid and the same each time.
func TestGroupLagOfHostileNames(t *testing.T) {
	w := lagging(t)
	require.Zero(t, w.set(cluster.GroupLagSeries, "50"))
	names := []string{"\xff\xfe", strings.Repeat("n", 300)}
	for i := range 200 {
		names = append(names, fmt.Sprintf("many-%03d", i))
	}
	for _, name := range names {
		require.Eventually(t, func() bool { return commit(w, name, "t", 0, 99) == 0 }, 10*time.Second, time.Millisecond)
	}
	var lag GroupLag
	require.Eventually(t, func() bool { lag = w.b.GroupLag(); return len(lag.Pairs) == 50 && lag.Unlisted > 100 }, 10*time.Second, time.Millisecond)
	require.Equal(t, len(names)+1-50, lag.Unlisted, "one more group was made by the setup")
	require.EqualValues(t, len(names)-49, lag.UnlistedRecords, "each is one record behind")
	require.Equal(t, "g", lag.Pairs[0].Group)
	require.Equal(t, "many-048", lag.Pairs[49].Group)
}
