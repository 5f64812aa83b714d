package partition

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

func TestUnlistedDue(t *testing.T) {
	const delay = 20 * time.Second
	some := make([]tier.Extent, 2)
	for name, c := range map[string]struct {
		u   unlisted
		now int64
		due bool
	}{
		"nothing":                   {unlisted{every: 1000}, 1 << 40, false},
		"the first ever":            {unlisted{exts: some, since: 1000, last: 1000}, 2000, false},
		"the first ever, alone":     {unlisted{exts: some, since: 1000, last: 1000}, 2250, true},
		"the next one comes soon":   {unlisted{exts: some, since: 1000, last: 5000, every: 4000}, 9000, false},
		"the next one stays out":    {unlisted{exts: some, since: 1000, last: 5000, every: 4000}, 13000, true},
		"fills slowly":              {unlisted{exts: some, since: 1000, last: 1000, every: 10000}, 1001, true},
		"waited for long":           {unlisted{exts: some, since: 1000, last: 20000, every: 5000}, 21000, true},
		"many":                      {unlisted{exts: make([]tier.Extent, maxUnlisted), since: 1000, last: 1000, every: 1}, 1000, true},
		"the clock was set back":    {unlisted{exts: some, since: 1000, last: 2000, every: 1000}, 500, true},
		"the delay is not in force": {unlisted{exts: some, since: 1000, last: 1000, every: 1}, 1000, false},
	} {
		require.Equal(t, c.due, c.u.due(c.now, delay), name)
		require.Equal(t, len(c.u.exts) > 0, c.u.due(c.now, 0), "%s, without a delay", name)
	}
}

// swapWorld counts what is put into the bucket.
type swapWorld struct {
	*world
	heads, objects atomic.Int64
	p              *Partition
	model          []rec
}

func newSwapWorld(t *testing.T) *swapWorld {
	w := &swapWorld{world: newWorld(t)}
	w.bucket = bucket.NewTrace(w.bucket, func(line string) {
		switch {
		case strings.HasPrefix(line, "put head/"):
			w.heads.Add(1)
		case strings.HasPrefix(line, "put data/"):
			w.objects.Add(1)
		}
	})
	w.tune = func(o *SetOptions) { o.SwapDelay = 20 * time.Second }
	w.open()
	w.p = w.topic("s", map[string]string{"internal.segment.bytes": "4000"})
	return w
}

// fill writes n times what makes an object, every apart, and waits until each is in the bucket.
func (w *swapWorld) fill(n int, every time.Duration) {
	w.t.Helper()
	for range n {
		w.now.Add(every.Milliseconds())
		want := w.objects.Load() + 1
		w.model = append(w.model, produce(w.t, w.p, batch.None, []string{strings.Repeat("v", 4000)}, []int64{w.now.Load()})...)
		w.settle(func() bool { return w.objects.Load() == want })
	}
}

// settle waits until the roll workers have nothing to do and ok holds.
func (w *swapWorld) settle(ok func() bool) {
	w.t.Helper()
	eventually(w.t, func() bool {
		w.set.rollDue(w.now.Load())
		w.p.mu.Lock()
		defer w.p.mu.Unlock()
		return ok() && !w.p.queuedRoll && !w.p.due(w.now.Load(), w.set.o.RollMinBytes, w.set.o.RollMaxAge)
	}, func() string { return w.p.Stats().State.String() })
}

func (w *swapWorld) check(t *testing.T) {
	t.Helper()
	require.ElementsMatch(t, w.model, readAll(t, w.p))
}

// A busy partition swaps its head once for many objects; one that falls silent lists what it has a moment later.
func TestBusyPartitionSharesSwaps(t *testing.T) {
	w := newSwapWorld(t)
	w.fill(1, time.Second)
	before := w.heads.Load()
	w.fill(2*maxUnlisted, time.Second)
	require.EqualValues(t, 2, w.heads.Load()-before)
	w.check(t)
	w.fill(3, time.Second)
	require.EqualValues(t, 2, w.heads.Load()-before)
	require.Less(t, w.p.Offsets().Tiered, w.p.Offsets().Durable)
	w.now.Add(2000)
	w.settle(func() bool { return w.heads.Load()-before == 3 })
	require.Equal(t, w.p.Offsets().Durable, w.p.Offsets().Tiered)
	require.NoError(t, w.p.Evict(context.Background()))
	w.check(t)
	w.close()
}

// One that fills an object in more than half of the delay has nothing to wait for.
func TestSlowPartitionSwapsAtOnce(t *testing.T) {
	w := newSwapWorld(t)
	w.fill(1, time.Minute)
	before := w.heads.Load()
	w.fill(4, 15*time.Second)
	require.EqualValues(t, 4, w.heads.Load()-before)
	w.close()
}

// What a crash leaves unlisted is uploaded again by the next run, and swept.
func TestUnlistedAfterRestart(t *testing.T) {
	w := newSwapWorld(t)
	w.fill(4, time.Second)
	require.Zero(t, w.p.Offsets().Tiered)
	w.reopen()
	w.p = w.await(w.p.ID())
	w.check(t)
	require.NoError(t, w.p.Roll(context.Background()))
	require.EqualValues(t, 4, w.p.Offsets().Tiered)
	require.NoError(t, w.p.Evict(context.Background()))
	w.check(t)
	w.close()
}

// DeleteRecords may cut what is unlisted anywhere.
func TestDeleteRecordsInUnlisted(t *testing.T) {
	for before := int64(0); before <= 6; before++ {
		w := newSwapWorld(t)
		w.fill(5, time.Second)
		w.model = append(w.model, produce(t, w.p, batch.None, []string{"last"}, []int64{w.now.Load()})...)
		start, err := w.p.DeleteRecords(context.Background(), before)
		require.NoError(t, err)
		require.Equal(t, before, start)
		w.model = w.model[before:]
		w.check(t)
		require.NoError(t, w.p.Roll(context.Background()))
		require.NoError(t, w.p.Evict(context.Background()))
		w.check(t)
		w.close()
	}
}

// A full object and what it has around the batches are a whole number of chunks.
func TestObjectFitsIntoItsChunks(t *testing.T) {
	require.EqualValues(t, minObjectBytes, objectBytes(1))
	require.EqualValues(t, 64<<20-256<<10, objectBytes(64<<20))
}

// A batch that doesn't fit behind a small one doesn't make the workers look at the same two again and again.
func TestLargeBatchBehindASmallOne(t *testing.T) {
	w := newSwapWorld(t)
	w.fill(1, time.Second)
	objects := w.objects.Load()
	for _, n := range []int{1000, 3900} {
		w.model = append(w.model, produce(w.t, w.p, batch.None, []string{strings.Repeat("v", n)}, []int64{w.now.Load()})...)
	}
	w.settle(func() bool { return w.objects.Load() == objects+2 })
	w.check(t)
	w.close()
}
