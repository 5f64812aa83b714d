package load

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/bench/compare/report"
)

// measured runs a job against a broker in memory, under a clock that only goes on when everybody waits.
func measured(t *testing.T, b *memory, j Job) (o Outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, j.check())
		require.NoError(t, b.CreateTopic(t.Context(), j.Topic))
		var marks []Mark
		var err error
		o, err = newRun(j, b).measure(t.Context(), func(m Mark) { marks = append(marks, m) })
		require.NoError(t, err)
		require.Equal(t, []Mark{Begin, End}, marks)
	})
	return o
}

func quantiles(t *testing.T, d *Distribution) (map[float64]float64, int64) {
	t.Helper()
	list, n, err := d.Quantiles()
	require.NoError(t, err)
	m := map[float64]float64{}
	for _, q := range list {
		m[q.Quantile] = q.MS
	}
	return m, n
}

// A broker that stands still for half a second of two: a quarter of what was due waited, the first of it for the whole time. Whoever counts
// from when he could send sees one slow record of two thousand.
func TestOpenLoopCountsAStall(t *testing.T) {
	b := &memory{stallAt: 1500 * time.Millisecond, stallFor: 500 * time.Millisecond}
	o := measured(t, b, Job{
		Topic:   Topic{Name: "t", Partitions: 4},
		Produce: &Produce{Producers: 1, Record: 64, Rate: 1000},
		Consume: &Consume{FanOut: 2, Consumers: 2},
		Warm:    time.Second, Run: 2 * time.Second,
	})
	for name, d := range map[string]*Distribution{"ack": o.Ack, "end to end": o.EndToEnd} {
		q, n := quantiles(t, d)
		require.Equal(t, map[string]int64{"ack": 2000, "end to end": 4000}[name], n, name)
		require.Less(t, q[0.5], 1.0, name)
		require.InDelta(t, 300, q[0.9], 5, name)
		require.InDelta(t, 480, q[0.99], 5, name)
		require.InDelta(t, 500, q[1], 2, name)
	}
	require.Zero(t, o.Unfinished)
	require.InDelta(t, 2, o.Seconds, 0.01)
}

func TestOpenLoopKeepsItsRate(t *testing.T) {
	b := &memory{}
	o := measured(t, b, Job{
		Topic:   Topic{Name: "t", Partitions: 3},
		Produce: &Produce{Producers: 4, Record: 100, Rate: 400},
		Warm:    time.Second, Run: 10 * time.Second,
	})
	require.InDelta(t, 4000, o.Produced.Records, 8)
	require.InDelta(t, 40_000/1e6, o.MBps(o.Produced), 0.001*4)
	for p, log := range b.logs {
		require.Greater(t, len(log), 1000, "partition %d", p)
	}
	// Producers take turns: nobody sends at the moment of another.
	for i := 1; i < len(b.dues); i++ {
		require.InDelta(t, 2.5e6, b.dues[i]-b.dues[i-1], 1e4)
	}
}

// What is never acknowledged is the slowest of all, not left out.
func TestOpenLoopCountsWhatIsLost(t *testing.T) {
	o := measured(t, &memory{loseAfter: 600}, Job{
		Topic:   Topic{Name: "t", Partitions: 1},
		Produce: &Produce{Producers: 1, Record: 8, Rate: 1000},
		Run:     time.Second,
	})
	require.EqualValues(t, 400, o.Unfinished)
	q, n := quantiles(t, o.Ack)
	require.EqualValues(t, 1000, n)
	require.Less(t, q[0.5], 1.0)
	require.GreaterOrEqual(t, q[0.75], float64(drainFor.Milliseconds()))
}

func TestClosedLoopOfBytesIsExact(t *testing.T) {
	b := &memory{}
	o := measured(t, b, Job{
		Topic:   Topic{Name: "t", Partitions: 5},
		Produce: &Produce{Producers: 3, Record: 100, Run: 4, Bytes: 100_000},
	})
	require.Equal(t, Total{Records: 1000, Bytes: 100_000}, o.Produced)
	sum := 0
	for p, log := range b.logs {
		require.NotEmpty(t, log, "partition %d", p)
		sum += len(log)
	}
	require.Equal(t, 1000, sum)
}

func TestConsumersEndWithTheLastRecordOfEachReading(t *testing.T) {
	b := &memory{}
	synctest.Test(t, func(t *testing.T) {
		topic := Topic{Name: "t", Partitions: 4}
		require.NoError(t, b.CreateTopic(t.Context(), topic))
		for i := range 1000 {
			b.take(int32(i%4), make([]byte, 50))
		}
		j := Job{Topic: topic, Consume: &Consume{FanOut: 3, Consumers: 2, Options: ConsumerOptions{FromStart: true}, Records: 1000}}
		require.NoError(t, j.check())
		o, err := newRun(j, b).measure(t.Context(), func(Mark) {})
		require.NoError(t, err)
		require.Equal(t, Total{Records: 3000, Bytes: 150_000}, o.Consumed)
		require.Nil(t, o.EndToEnd, "nobody stamped these records")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		j.Consume.Records = 1001
		_, err = newRun(j, b).measure(ctx, func(Mark) {})
		require.ErrorIs(t, err, context.DeadlineExceeded, "one record is missing")
	})
}

func TestMergeAddsUp(t *testing.T) {
	a, b := NewRecorder(), NewRecorder()
	a.Record(time.Millisecond, 900)
	b.Record(100*time.Millisecond, 99)
	b.Record(time.Hour, 1) // beyond what histograms hold
	da, err := a.Distribution()
	require.NoError(t, err)
	db, err := b.Distribution()
	require.NoError(t, err)
	sum, err := Merge(da, nil, db)
	require.NoError(t, err)
	q, n := quantiles(t, sum)
	require.EqualValues(t, 1000, n)
	require.InEpsilon(t, 1, q[0.9], 0.002)
	require.InEpsilon(t, 100, q[0.99], 0.002)
	require.InEpsilon(t, float64(highest)/1000, q[1], 0.002)

	none, err := Merge(nil, nil)
	require.NoError(t, err)
	require.Nil(t, none)
	list, n, err := none.Quantiles()
	require.NoError(t, err)
	require.Equal(t, []report.Quantile(nil), list)
	require.Zero(t, n)
}
