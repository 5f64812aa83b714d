package partition

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
)

// The last batches of a partition are damaged in the log, after they were acknowledged, and no later ones tell that they
// are missing. Their offsets are not given out again, whether the frame still says whose it is or not.
func TestDamagedTailIsNotReused(t *testing.T) {
	for name, at := range map[string]int64{"payload": 70, "frame header": -50} {
		t.Run(name, func(t *testing.T) {
			w := newCrashWorld(t)
			w.tune = nil
			w.open()
			p := w.topic("t", nil)
			for i := range int64(3) {
				produce(t, p, batch.None, []string{"kept"}, []int64{i})
			}
			last := produce(t, p, batch.None, []string{"damaged"}, []int64{9})[0].offset
			other := w.topic("other", nil)
			produce(t, other, batch.None, []string{"later"}, []int64{1}) // says that all before it is synced
			produce(t, other, batch.None, []string{"later"}, []int64{1})
			e, ok, err := p.firstEntry(last)
			require.NoError(t, err)
			require.True(t, ok)
			base, _, ok := w.set.log.FileBase(e.Position)
			require.True(t, ok)
			w.crash(t, 1, false)
			flip(t, w.dir, int64(e.Position-base)+int64(e.HeaderLen)+at)
			s := w.open()
			require.NotEmpty(t, s.Recovered().Corrupt)
			p = w.await(p.ID())
			next := produce(t, p, batch.None, []string{"new"}, []int64{10})[0].offset
			require.Greater(t, next, last)
			all := readAll(t, p)
			require.Len(t, all, 4)
			require.Equal(t, "new", all[3].value)
			all = readAll(t, w.await(other.ID()))
			require.Len(t, all, 2)
			w.close()
		})
	}
}
