package partition

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/segment"
)

// cutCase is a broker that was killed, and whose newest log file somebody then damaged, before the index was flushed.
type cutCase struct {
	*crashWorld
	quiet, busy *Partition // quiet lies below the damage, as far as there is anything of it
	ends        map[*Partition]int64
	file        string
	places      []int64 // of the busy partition's batches in the file
}

func newCutCase(t *testing.T) *cutCase {
	c := &cutCase{crashWorld: newCrashWorld(t), ends: map[*Partition]int64{}}
	c.tune = func(o *SetOptions) { o.Log.MinFree = 0; o.DiskBudget = 64 << 20 }
	c.open()
	c.quiet, c.busy = c.topic("quiet", nil), c.topic("busy", nil)
	produce(t, c.quiet, batch.None, []string{"one", "two"}, []int64{1, 2})
	for i := range int64(6) {
		produce(t, c.busy, batch.None, []string{"value"}, []int64{i})
		e, ok, err := c.busy.firstEntry(i)
		require.NoError(t, err)
		require.True(t, ok)
		base, _, ok := c.set.log.FileBase(e.Position)
		require.True(t, ok)
		c.places = append(c.places, int64(e.Position-base))
	}
	for _, p := range []*Partition{c.quiet, c.busy} {
		c.ends[p] = p.Offsets().Durable
	}
	c.crash(t, 1, false)
	files, err := filepath.Glob(filepath.Join(c.dir, "log", "*.log"))
	require.NoError(t, err)
	c.file = files[len(files)-1]
	return c
}

// verify holds what is there against what was acknowledged: n batches of the busy partition are left, nothing else is
// told, and no offset is given out again.
func (c *cutCase) verify(t *testing.T, n int, when string) {
	t.Helper()
	for old, end := range c.ends {
		p := c.await(old.ID())
		left := int64(2)
		if old == c.busy {
			left = int64(n)
		}
		next := produce(t, p, batch.None, []string{"new"}, []int64{10})[0].offset
		require.GreaterOrEqual(t, next, end, "%s: an offset that was acknowledged is given out again (%s)", p.Topic(), when)
		all := readAll(t, p)
		require.Len(t, all, int(left)+1, when)
		require.Equal(t, "new", all[len(all)-1].value)
	}
}

var cuts = map[string]struct {
	left   int
	damage func(t *testing.T, c *cutCase)
}{
	"cut between frames": {3, func(t *testing.T, c *cutCase) { require.NoError(t, os.Truncate(c.file, c.places[3])) }},
	"cut in a frame":     {3, func(t *testing.T, c *cutCase) { require.NoError(t, os.Truncate(c.file, c.places[3]+5)) }},
	"cut behind all":     {6, func(t *testing.T, c *cutCase) { require.NoError(t, os.Truncate(c.file, c.places[5]+400)) }},
}

// A log whose newest file was cut, or zeroed, or taken away, after the broker was killed: what is left is served, the
// damage is told, and offsets that were acknowledged are not given out again; of a partition without damage, too, since
// nobody knows whose records are missing.
func TestCutLogIsTold(t *testing.T) {
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			c := newCutCase(t)
			cut.damage(t, c)
			s := c.open()
			require.NotEmpty(t, s.Recovered().Corrupt)
			c.verify(t, cut.left, name)
			c.reopen()
			require.Empty(t, c.set.Recovered().Corrupt)
			c.close()
		})
	}
	for name, damage := range map[string]func(t *testing.T, c *cutCase){
		"cut to nothing":    func(t *testing.T, c *cutCase) { require.NoError(t, os.Truncate(c.file, 0)) },
		"cut in its header": func(t *testing.T, c *cutCase) { require.NoError(t, os.Truncate(c.file, 50)) },
		"taken away":        func(t *testing.T, c *cutCase) { require.NoError(t, os.Remove(c.file)) },
		"header and frames zeroed": func(t *testing.T, c *cutCase) {
			overwrite(t, c.file, 0, make([]byte, c.places[5]+1000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCutCase(t)
			damage(t, c)
			s := c.open()
			require.NotEmpty(t, s.Recovered().Corrupt)
			for old, end := range c.ends {
				p := c.await(old.ID())
				next := produce(t, p, batch.None, []string{"new"}, []int64{10})[0].offset
				require.GreaterOrEqual(t, next, end)
			}
			c.close()
		})
	}
}

func overwrite(t *testing.T, name string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// The start that finds the cut dies at every call: what it has found is not forgotten.
func TestCrashWhileCutLogIsOpened(t *testing.T) {
	for k := 1; ; k++ {
		c := newCutCase(t)
		cuts["cut between frames"].damage(t, c)
		c.files.SetPlan(segment.FailAt(k, segment.ErrCrash))
		if _, err := c.tryOpen(); err != nil {
			c.set = nil
		}
		reached := c.files.Crashed()
		c.crash(t, int64(k), k%2 == 0)
		c.open()
		c.verify(t, 3, "crash at a call of the start")
		c.close()
		if !reached {
			t.Logf("%d calls", k-1)
			return
		}
	}
}
