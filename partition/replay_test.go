package partition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
)

// What a crash would leave to be replayed stays bounded, though the index alone would keep all of it in memory.
func TestReplayIsBounded(t *testing.T) {
	w := newWorld(t)
	const most = 64 << 10
	w.tune = func(o *SetOptions) { o.RollInterval, o.MaxReplay = 5*time.Millisecond, most }
	w.open()
	p := w.topic("t", nil)
	var model []rec
	for i := range 100 {
		model = append(model, produce(t, p, batch.None, []string{strings.Repeat("v", 8<<10)}, []int64{int64(i)})...)
	}
	left := func() int64 { return int64(w.set.log.Watermarks().Synced) - int64(w.set.index.FlushedCheckpoint()) }
	eventually(t, func() bool { return left() < most }, func() string { return fmt.Sprint(left(), " bytes to be replayed") })
	require.Equal(t, model, readAll(t, p))
	w.reopen()
	require.Equal(t, model, readAll(t, w.await(p.ID())))
	w.close()
}
