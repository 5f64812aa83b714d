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
