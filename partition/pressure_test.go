package partition

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
)

// Every start begins a new log file, far ahead in the position space. What counts against the disk budget is bytes.
func TestRestartsDoNotUseUpTheBudget(t *testing.T) {
	w := newWorld(t)
	w.tune = func(o *SetOptions) { o.DiskBudget = 1 << 20 } // four files
	w.open()
	p := w.topic("b", nil)
	for i := range 10 {
		produce(t, p, batch.None, []string{"v"}, []int64{int64(i)})
		w.reopen()
		p = w.await(p.ID())
		require.Less(t, w.set.LogBytes(), int64(256<<10), "after %d starts", i+2)
		require.Zero(t, w.set.throttle())
	}
	w.close()
}

// A budget that was too small because the disk was full at the start is raised: writes are accepted again at once.
func TestBudgetIsRaised(t *testing.T) {
	w := newWorld(t)
	w.open()
	p := w.topic("t", nil)
	require.NoError(t, func() error { _, err := tryAppend(p, oneRecord("fits")); return err }())
	w.set.SetDiskBudget(1)
	_, err := tryAppend(p, oneRecord("does not"))
	require.ErrorIs(t, err, ErrStorage)
	require.EqualValues(t, 1, w.set.DiskBudget())
	w.set.SetDiskBudget(1 << 30)
	_, err = tryAppend(p, oneRecord("fits again"))
	require.NoError(t, err)
	w.close()
}
