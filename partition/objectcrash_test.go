package partition

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// The new owner of a partition dies before, or just after, each call to the bucket of its take-over, and a third broker goes
// on. Whatever was acknowledged before is there, and the epochs of records stay what they were.
func TestCrashAtEveryCallOfTakeOver(t *testing.T) {
	for _, slow := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			for k := 1; ; k++ {
				done := false
				t.Run(fmt.Sprintf("slow %v, call %d, after %v", slow, k, after), func(t *testing.T) { done = crashTakeOver(t, k, after, slow) })
				if done || t.Failed() {
					break
				}
			}
		}
	}
}

// crashTakeOver reports whether the take-over had fewer than k calls. slow: the old owner still lives, and changes the head just
// before its successor does, which has to claim first then.
func crashTakeOver(t *testing.T, k int, after, slow bool) (done bool) {
	pl := newPlane(t, 3)
	id := pl.topic("t", 1, objectTopic)
	p := pl.await(id, 1)
	var model []rec
	for i := range int32(4) {
		r, _ := produceSeq(t, p, 7, i, fmt.Sprint("v", i))
		model = append(model, r)
	}
	if slow {
		pl.nodes[1].gone()
	} else {
		pl.nodes[1].kill(1)
		pl.nodes[1].wipe()
	}
	n, calls, crashed, interfered := pl.nodes[2], 0, make(chan struct{}), !slow
	n.store.SetPlan(func(c bucket.Call) bucket.Action {
		if !interfered && putsAnyHead(c) {
			interfered = true
			require.NoError(t, p.Roll(context.Background()))
		}
		if calls++; calls != k {
			return bucket.Action{}
		}
		close(crashed)
		if after {
			return bucket.Action{Crash: true, After: bucket.ErrCrashed}
		}
		return bucket.Action{Crash: true, Before: bucket.ErrCrashed}
	})
	pl.give(id, 2, false)
	eventually(t, func() bool {
		select {
		case <-crashed:
			return true
		default:
			done = pl.assignment(id).State.String() == "Writing"
			return done
		}
	}, func() string { return fmt.Sprintf("%+v", pl.assignment(id)) })
	n.kill(2)
	pl.give(id, 3, false)
	q := pl.await(id, 3)
	require.Equal(t, model, readAll(t, q))
	_, ack := produceSeq(t, q, 7, 3, "v3")
	require.True(t, ack.Duplicate)
	r, ack := produceSeq(t, q, 7, 4, "v4")
	require.Equal(t, int64(4), ack.BaseOffset)
	require.Equal(t, append(model, r), readAll(t, q))
	require.Equal(t, int32(0), q.EpochAt(3))
	require.Equal(t, q.Offsets().Epoch, q.EpochAt(4))
	epoch, end := q.EpochEnd(0)
	require.Equal(t, []int64{0, 4}, []int64{int64(epoch), end})
	n.open() // so that the cleanup finds it
	return done
}
