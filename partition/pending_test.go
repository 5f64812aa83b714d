package partition

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// realPending is what of the partition waits for a roll, counted one by one.
func (p *Partition) realPending(t *testing.T) (sum int64) {
	o := p.Offsets()
	require.NoError(t, p.scanLocal(o.Tiered, o.Durable, func(e *index.Entry) bool { sum += int64(e.Length); return true }))
	return sum
}

// A swap whose outcome stays unknown until its deadline took effect after all.
func TestPendingAfterSwapInDoubt(t *testing.T) {
	w := newWorld(t)
	store := bucket.NewFault(w.bucket, nil)
	w.bucket = store
	w.tune = func(o *SetOptions) { o.BucketCallTimeout = 300 * time.Millisecond }
	w.open()
	p := w.topic("s", nil)
	put := func() { produce(t, p, batch.None, []string{strings.Repeat("v", 4000)}, []int64{w.now.Load()}) }
	put()
	require.NoError(t, p.Roll(context.Background()))
	put()
	var down atomic.Bool
	store.SetPlan(func(c bucket.Call) bucket.Action {
		switch {
		case down.Load():
			return bucket.Action{Before: bucket.ErrUnavailable}
		case putsAnyHead(c):
			down.Store(true)
			return bucket.Action{After: bucket.ErrUnavailable}
		}
		return bucket.Action{}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	require.Error(t, p.Roll(ctx))
	store.SetPlan(nil)
	put()
	put()
	require.NoError(t, p.lockSwap(context.Background()))
	eventually(t, func() bool { return p.rollTo(context.Background(), 3) == nil }, func() string { return "it does not roll" })
	p.unlockSwap()
	require.EqualValues(t, 3, p.Offsets().Tiered)
	require.EqualValues(t, p.realPending(t), p.Stats().PendingBytes)
	w.close()
}
