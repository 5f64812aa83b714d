package partition

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

var async = map[string]string{"tierbroker.durability": "async", "internal.segment.bytes": "6000"}

// bucketDown refuses every call.
func bucketDown(bucket.Call) bucket.Action { return bucket.Action{Before: bucket.ErrUnavailable} }

// loseTail makes the next fdatasync fail and returns when the partition has lost what consumers could see.
func (w *crashWorld) loseTail(t *testing.T, p *Partition, n int) (seen []rec) {
	t.Helper()
	w.files.SetPlan(func(c segment.Call) error {
		if c.Op == "sync" {
			return errDisk
		}
		return nil
	})
	for i := range n {
		v := fmt.Sprint("lost ", i)
		ack, err := tryAppend(p, oneRecord(v))
		if err != nil {
			break
		}
		seen = append(seen, rec{ack.BaseOffset, 1, v})
	}
	require.Len(t, seen, n)
	require.Error(t, w.set.log.Sync(context.Background()))
	eventually(t, func() bool { return p.State() == Recovering }, func() string { return fmt.Sprintf("%+v", p.Stats()) })
	w.files.SetPlan(nil)
	return seen
}

// An async partition loses records that consumers have seen. Until the bucket confirms the jump it takes no writes,
// whatever images come, also after the process has died meanwhile; then it goes on above everything it ever gave out.
func TestJumpAfterLostTail(t *testing.T) {
	for _, how := range []string{"goes on", "process dies", "machine dies"} {
		t.Run(how, func(t *testing.T) {
			w := newCrashWorld(t)
			quick := w.tune
			w.tune = func(o *SetOptions) {
				quick(o)
				o.RollInterval = 5 * time.Millisecond
				o.Log.SyncInterval = time.Hour // the sync that fails is the test's
			}
			w.open()
			p := w.topic("a", async)
			id := p.ID()
			for range 5 {
				require.NoError(t, w.send(p))
			}
			require.NoError(t, w.set.log.Sync(context.Background()))
			w.store.SetPlan(bucketDown)
			before := p.Offsets()
			seen := w.loseTail(t, p, 3)
			highest := seen[len(seen)-1].offset
			for range 3 {
				w.state.touch()
				_, err := p.Append(oneRecord("no"), AppendOptions{Epoch: -1, Now: w.now.Load()})
				require.Error(t, err)
			}
			if how != "goes on" {
				w.settle(t)
				w.crash(t, 7, how == "machine dies")
				w.store.SetPlan(bucketDown)
				w.open()
				w.idle(t, 20)
				require.NotEqual(t, Writing, w.set.Get(id).State(), "nobody knows yet how far the lost run was")
			}
			w.store.SetPlan(nil)
			w.state.touch()
			p = w.await(id)
			o := p.Offsets()
			require.Greater(t, o.End, highest)
			require.Equal(t, before.End, w.firstLoss(t, p, before), "what was safe is still there")
			var ack Ack
			eventually(t, func() (ok bool) {
				var err error
				ack, err = tryAppend(p, oneRecord("after")) // the log may still be opening its new segment
				return err == nil
			}, func() string { return "no append" })
			require.Greater(t, ack.BaseOffset, highest)
			// A consumer stands where the lost records were.
			got, err := fetch(p, highest, 1<<20)
			require.NoError(t, err)
			require.Equal(t, []rec{{ack.BaseOffset, 1, "after"}}, got)
			w.verify(t, p, "after the jump")
			w.reopen()
			w.verify(t, w.await(id), "after a restart")
			w.close()
		})
	}
}

// firstLoss returns the first offset below before.End that can't be read.
func (w *crashWorld) firstLoss(t *testing.T, p *Partition, before Offsets) int64 {
	t.Helper()
	at := before.Start
	for at < before.End {
		got, err := fetch(p, at, 1<<20)
		require.NoError(t, err)
		require.NotEmpty(t, got)
		if got[0].offset != at {
			return at
		}
		for _, r := range got {
			if r.offset < before.End {
				at = r.offset + 1
			}
		}
	}
	return at
}
