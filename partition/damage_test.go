package partition

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// TestDamageIsNotRolled flips bits of a batch in the log file, in its header and in its records: whatever the size of
// the batch, the roll fails, the partition says where the damage is, and nothing of it gets into the bucket.
func TestDamageIsNotRolled(t *testing.T) {
	for _, c := range []struct {
		name      string
		value, at int // size of the record, place of the flipped bit
	}{
		{"epoch", 100, 15}, {"checksum", 100, 17}, {"count", 100, 60}, {"record", 100, 90},
		{"epoch, large", 20_000, 15}, {"checksum, large", 20_000, 17}, {"max timestamp, large", 20_000, 42}, {"record, large", 20_000, 19_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.open()
			p := w.topic("t", nil)
			for range 3 {
				produce(t, p, batch.None, []string{string(make([]byte, c.value))}, []int64{w.now.Load()})
			}
			e, ok, err := p.firstEntry(1)
			require.NoError(t, err)
			require.True(t, ok)
			base, _, ok := w.set.log.FileBase(e.Position)
			require.True(t, ok)
			flip(t, w.dir, int64(e.Position-base)+int64(e.HeaderLen)+int64(c.at))

			require.ErrorIs(t, p.Roll(t.Context()), ErrCorrupt)
			require.Equal(t, Failed, p.State())
			require.Contains(t, p.Stats().Reason, "offset 1")
			page, err := w.bucket.List(t.Context(), bucket.Op{}, "data/", "", 10)
			require.NoError(t, err)
			require.Empty(t, page.Items)
			w.close()
		})
	}
}

// flip changes a bit in the only log file.
func flip(t *testing.T, dir string, at int64) {
	files, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	require.NoError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 4
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// TestRollBySizeLeavesTheRest rolls full objects only: what is behind them waits until there is enough, or until it is old.
func TestRollBySizeLeavesTheRest(t *testing.T) {
	w := newWorld(t)
	w.open()
	p := w.topic("t", map[string]string{"internal.segment.bytes": "20000"})
	for range 10 {
		produce(t, p, batch.None, []string{string(make([]byte, 4000))}, []int64{w.now.Load()})
	}
	// Four batches to an object; two are less than half of one, whenever the roll looks.
	eventually(t, func() bool { return p.Offsets().Tiered >= 8 && p.Stats().PendingBytes < 20_000 }, func() string { return "not rolled" })
	require.EqualValues(t, 8, p.Offsets().Tiered)
	require.Equal(t, 2, p.Stats().Extents)
	w.now.Add(2 * time.Hour.Milliseconds())
	w.set.rollDue(w.now.Load())
	eventually(t, func() bool { return p.Offsets().Tiered == 10 }, func() string { return "the rest was not rolled" })
	w.close()
}
