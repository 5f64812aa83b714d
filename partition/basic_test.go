package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
)

func removeAll(t testing.TB, dir string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(dir))
}

func TestWriteRollEvictRestart(t *testing.T) {
	w := newWorld(t)
	w.open()
	p := w.topic("logs", nil)
	var model []rec
	add := func(n int) {
		for i := range n {
			ts := w.now.Add(1)
			model = append(model, produce(t, p, batch.Codec(i%5), []string{fmt.Sprint("a", len(model)), "b"}, []int64{ts, ts + 1})...)
		}
	}
	add(20)
	require.Equal(t, model, readAll(t, p))
	ctx := context.Background()
	require.NoError(t, p.Roll(ctx))
	o := p.Offsets()
	require.Equal(t, o.Durable, o.Tiered)
	add(10)
	require.Equal(t, model, readAll(t, p))
	require.NoError(t, p.Evict(ctx))
	require.Equal(t, Cold, p.Locate(0))
	require.Equal(t, model, readAll(t, p))
	for _, wipe := range []bool{false, true} {
		w.close()
		if wipe {
			w.removeIndex()
		}
		w.open()
		p = w.await(p.ID())
		require.Equal(t, model, readAll(t, p), "index removed: %v", wipe)
		add(5)
		require.Equal(t, model, readAll(t, p))
	}
	w.close()
}

// The boundary between hot and cold: every offset, every timestamp one millisecond around, after roll, evict, deletion in
// the middle of a batch, restart and loss of the index, must answer as a plain slice does.
func TestBoundaryModel(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { boundaryRun(t, seed) })
	}
}

type boundary struct {
	w     *world
	p     *Partition
	rnd   *rand.Rand
	all   []rec
	start int64
}

func boundaryRun(t *testing.T, seed uint64) {
	w := newWorld(t)
	w.tune = func(o *SetOptions) { o.SwapDelay = time.Duration(seed%2) * time.Hour }
	w.open()
	p := w.topic("b", map[string]string{"internal.segment.bytes": "700"})
	m := &boundary{w: w, p: p, rnd: rand.New(rand.NewPCG(seed, 1))}
	for step := range 24 {
		what := m.step(t)
		m.check(t, fmt.Sprintf("seed %d step %d after %s", seed, step, what))
	}
	w.close()
}

func (m *boundary) step(t *testing.T) string {
	ctx := context.Background()
	switch m.rnd.IntN(8) {
	case 0:
		require.NoError(t, m.p.Roll(ctx))
		return "roll"
	case 1:
		require.NoError(t, m.p.Evict(ctx))
		return "evict"
	case 2:
		o := m.p.Offsets()
		to := o.Start + m.rnd.Int64N(o.Durable-o.Start+1)
		start, err := m.p.DeleteRecords(ctx, to)
		require.NoError(t, err)
		require.Equal(t, max(to, m.start), start)
		m.start = start
		return fmt.Sprint("delete before ", to)
	case 3:
		m.w.close()
		wipe := m.rnd.IntN(2) == 0
		if wipe {
			m.w.removeIndex()
		}
		m.w.open()
		m.p = m.w.await(m.p.ID())
		return fmt.Sprint("restart, index removed: ", wipe)
	}
	for range 1 + m.rnd.IntN(4) {
		var values []string
		var ts []int64
		for i := range 1 + m.rnd.IntN(4) {
			values = append(values, fmt.Sprint(len(m.all)+i, "-", m.rnd.Uint64()))
			ts = append(ts, m.w.now.Add(int64(m.rnd.IntN(7)))-int64(m.rnd.IntN(12)))
		}
		m.all = append(m.all, produce(t, m.p, batch.Codec(m.rnd.IntN(5)), values, ts)...)
	}
	return "produce"
}

func (m *boundary) check(t *testing.T, when string) {
	t.Helper()
	o := m.p.Offsets()
	require.Equal(t, m.start, o.Start, when)
	require.EqualValues(t, len(m.all), o.Durable, when)
	live := m.all[m.start:]
	for off := m.start - 1; off <= o.Durable+1; off++ {
		m.checkOffset(t, off, o, when)
	}
	for _, r := range live {
		for _, ts := range []int64{r.ts - 1, r.ts, r.ts + 1} {
			m.checkTime(t, live, ts, when)
		}
	}
	best := notFound
	for _, r := range live {
		if r.ts > best.Timestamp {
			best = TimeResult{Offset: r.offset, Timestamp: r.ts, Found: true}
		}
	}
	got, err := m.p.MaxTimestamp(context.Background())
	require.NoError(t, err, when)
	require.Equal(t, best.Offset, got.Offset, "max timestamp %s", when)
}

func (m *boundary) checkOffset(t *testing.T, off int64, o Offsets, when string) {
	t.Helper()
	got, err := fetch(m.p, off, 1+m.rnd.IntN(3000))
	if off < o.Start || off > o.Durable {
		require.ErrorIs(t, err, ErrOffsetOutOfRange, "offset %d %s", off, when)
		return
	}
	require.NoError(t, err, "offset %d %s %+v", off, when, o)
	if off == o.Durable {
		require.Empty(t, got, when)
		return
	}
	require.NotEmpty(t, got, "offset %d %s", off, when)
	require.Equal(t, m.all[off:off+int64(len(got))], got, "offset %d %s", off, when)
}

func (m *boundary) checkTime(t *testing.T, live []rec, ts int64, when string) {
	t.Helper()
	want := notFound
	for _, r := range live {
		if r.ts >= ts {
			want = TimeResult{Offset: r.offset, Timestamp: r.ts, Found: true}
			break
		}
	}
	got, err := m.p.OffsetForTime(context.Background(), ts)
	require.NoError(t, err, when)
	require.Equal(t, want.Offset, got.Offset, "time %d %s %+v", ts, when, m.p.Offsets())
	require.Equal(t, want.Timestamp, got.Timestamp, when)
}
