package partition

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

// ledger is what clients were told: the value at each offset. No offset may ever have another one.
type ledger map[int64]string

func (l ledger) note(t testing.TB, offset int64, v string) {
	t.Helper()
	if old, ok := l[offset]; ok {
		require.Equal(t, old, v, "offset %d has two contents", offset)
	}
	l[offset] = v
}

func (l ledger) highest() int64 {
	top := int64(-1)
	for o := range l {
		top = max(top, o)
	}
	return top
}

// rebootCase writes to an async topic, takes the power away, and goes on; the ledger must hold.
type rebootCase struct {
	name    string
	before  func(*crashWorld, *Partition, *testing.T) // between creation and the batches that are lost
	after   func(*crashWorld, *Partition, *testing.T) // behind them
	restart bool                                      // once more before the bucket answers
}

func TestPowerLossOfAsync(t *testing.T) {
	ctx := context.Background()
	cases := []rebootCase{
		{name: "all of it is lost"},
		{name: "restart in the middle of the jump", restart: true},
		{name: "index was flushed", before: func(w *crashWorld, p *Partition, t *testing.T) {
			require.NoError(t, w.set.index.Flush())
		}},
		{name: "index is flushed behind it", after: func(w *crashWorld, p *Partition, t *testing.T) {
			w.set.markDirty(p)
			w.idle(t, 2)
			require.NoError(t, w.set.index.Flush())
		}},
		{name: "everything before was deleted", before: func(w *crashWorld, p *Partition, t *testing.T) {
			require.NoError(t, w.send(p))
			require.NoError(t, w.set.log.Sync(ctx))
			_, err := p.DeleteRecords(ctx, -1)
			require.NoError(t, err)
			require.NoError(t, w.set.index.Flush())
		}},
		{name: "some was rolled before it was synced", after: func(w *crashWorld, p *Partition, t *testing.T) {
			require.NoError(t, p.Roll(ctx))
		}},
		{name: "deleted behind it", after: func(w *crashWorld, p *Partition, t *testing.T) {
			_, err := p.DeleteRecords(ctx, p.Offsets().Durable-1)
			require.NoError(t, err)
		}},
		{name: "was sync until now", before: func(w *crashWorld, p *Partition, t *testing.T) {
			w.alter(t, p, map[string]string{"tierbroker.durability": "sync"})
			require.NoError(t, w.send(p))
			require.NoError(t, w.set.index.Flush())
			w.alter(t, p, async)
		}},
		{name: "is sync from now on", after: func(w *crashWorld, p *Partition, t *testing.T) {
			w.alter(t, p, map[string]string{"tierbroker.durability": "sync"})
			require.NoError(t, w.set.index.Flush())
		}},
	}
	for _, c := range cases {
		for seed := range int64(4) {
			t.Run(fmt.Sprint(c.name, " ", seed), func(t *testing.T) { c.run(t, seed) })
		}
	}
}

func (c *rebootCase) run(t *testing.T, seed int64) {
	w := newCrashWorld(t)
	quick := w.tune
	w.tune = func(o *SetOptions) { quick(o); o.Log.SyncInterval = time.Hour; o.RollInterval = 5 * time.Millisecond }
	w.open()
	p := w.topic("a", async)
	id := p.ID()
	if c.before != nil {
		c.before(w, p, t)
	}
	told := ledger{}
	put := func(n int) {
		for i := range n {
			v := fmt.Sprintf("%s %d %d", w.state.incarnation, i, len(told))
			ack, err := tryAppend(p, oneRecord(v))
			require.NoError(t, err)
			told.note(t, ack.BaseOffset, v)
		}
	}
	put(8)
	if c.after != nil {
		c.after(w, p, t)
	}
	high := told.highest()
	w.crash(t, seed, true)
	if c.restart {
		w.store.SetPlan(bucketDown)
		w.open()
		w.idle(t, 10)
		w.crash(t, seed, false)
		w.store.SetPlan(nil)
	}
	w.open()
	p = w.await(id)
	put(5)
	require.Equal(t, 13, len(told), "new records got new offsets")
	require.Greater(t, told.highest(), high)
	for _, r := range readAll(t, p) {
		if v, ok := told[r.offset]; ok {
			require.Equal(t, v, r.value)
		}
	}
	w.close()
}

// loss returns the first loss that was told.
func (w *world) loss() *Loss {
	for {
		select {
		case e := <-w.events:
			if e.Loss != nil {
				return e.Loss
			}
		case <-time.After(20 * time.Second):
			w.t.Fatal("no loss was told")
		}
	}
}

// The disk is lost and replaced: what was on it and not in the bucket is gone, and its offsets are not given out again.
// A topic that is made while its broker is down begins at 0 all the same.
func TestLostDisk(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newWorld(t)
		w.open()
		p := w.topic("s", nil)
		id := p.ID()
		told := ledger{}
		put := func(v string) int64 {
			ack := appendBatch(t, w.set.Get(id), oneRecord(v))
			told.note(t, ack.BaseOffset, v)
			return ack.BaseOffset
		}
		put("rolled")
		rolledAt := w.now.Load()
		require.NoError(t, p.Roll(context.Background()))
		w.now.Add(1000)
		put("lost 1")
		high := put("lost 2")
		w.close()
		removeAll(t, w.dir)
		w.open()
		if late {
			w.reopen() // the directory isn't new any more
		}
		p = w.await(id)
		loss := w.loss()
		require.Equal(t, Loss{Start: 0, End: 1, Next: loss.Next, Newest: rolledAt}, *loss)
		require.Greater(t, loss.Next, high)
		require.Equal(t, loss.Next, put("after"))
		got := readAll(t, p)
		require.Equal(t, "rolled", got[0].value)
		require.Equal(t, "after", got[1].value)

		w.close()
		w.set = nil
		cfg, err := cluster.ParseTopicConfig(nil, nil)
		require.NoError(t, err)
		fresh := w.state.add(1, "made-meanwhile", cfg, nil)
		w.open()
		require.Zero(t, appendBatch(t, w.await(fresh), oneRecord("x")).BaseOffset)
		w.close()
	}
}

// A broker with an empty directory is killed before the first image reached it. A topic that was made meanwhile has lost
// nothing and begins at offset 0; one that was there before the directory was may have, and jumps.
func TestKilledBeforeTheFirstImage(t *testing.T) {
	for _, settled := range []bool{false, true} {
		w := newCrashWorld(t)
		w.state.hold = true
		old := w.state.create(t, "old", nil)
		w.state.restart()
		before := w.state.image(t)
		w.open()
		if settled {
			require.NoError(t, w.set.Settle(before))
		}
		w.state.incarnation = "dies soon"
		young := w.state.create(t, "young", nil)
		w.crash(t, 3, false)
		w.state.hold = false
		w.open()
		for id, begins := range map[frame.PartitionID]int64{old: firstCeiling, young: 0} {
			if id == young && !settled {
				begins = firstCeiling // nobody knows better
			}
			p := w.await(id)
			require.Equal(t, begins, produce(t, p, batch.None, []string{"x"}, []int64{1})[0].offset, "%s, settled %v", p.Topic(), settled)
		}
		w.close()
	}
}
