package partition

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// A topic was object and isn't any more: what was acknowledged since, and is nowhere else, is kept when another broker was
// made the owner by force.
func TestForcedMoveAfterChangeOfClass(t *testing.T) {
	pl := newPlane(t, 2)
	n := pl.nodes[1]
	id := pl.topic("t", 1, objectTopic)
	p := pl.await(id, 1)
	produceSeq(t, p, 7, 0, "in the bucket")
	pl.alter(id, nil)
	eventually(t, func() bool { return !pl.assignment(id).Safe && p.Config().Durability != cluster.Object }, func() string { return "still safe" })
	n.set.reclasses(t)
	produceSeq(t, p, 7, 1, "only here")
	require.NoError(t, n.set.index.Flush())
	n.kill(1)
	pl.give(id, 2, true)
	pl.await(id, 2)
	n.open()
	eventually(t, func() bool { return n.set.Get(id) == nil }, func() string { return "the old owner keeps its remains" })
	files, err := n.set.log.Quarantined()
	require.NoError(t, err)
	require.Len(t, files, 1)
}

// A broker that doesn't know yet that its lease has ended goes by an old image: it deletes nothing of topics that it has never
// heard of.
func TestSweepWithAnOldImage(t *testing.T) {
	pl := newPlane(t, 3)
	zombie := pl.nodes[1]
	eventually(t, func() bool { return zombie.set.image.Load() != nil }, func() string { return "no image" })
	zombie.gone()
	pl.nodes[2].stop()
	pl.nodes[2].open()
	id := pl.topic("t", 2, objectTopic)
	r, _ := produceSeq(t, pl.await(id, 2), 7, 0, "a")
	pl.loseBroker(pl.nodes[2], 3, id)
	q := pl.await(id, 3)
	for range 3 {
		pl.now.Add(time.Hour.Milliseconds())
		zombie.set.sweepStreams(context.Background(), zombie.set.image.Load(), pl.now.Load())
	}
	require.Equal(t, []rec{r}, readAll(t, q))
}

// Records are deleted, and the head doesn't know yet when the partition moves: the start offset doesn't go back.
func TestMoveKeepsTheStart(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	for i := range int32(5) {
		produceSeq(t, p, 7, i, "v")
	}
	require.NoError(t, p.Roll(context.Background()))
	pl.nodes[1].store.SetPlan(func(c bucket.Call) bucket.Action {
		if putsHead(c) {
			return bucket.Action{Before: bucket.ErrUnavailable}
		}
		return bucket.Action{}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := p.DeleteRecords(ctx, 3)
	require.Error(t, err)
	require.Equal(t, int64(3), p.Offsets().Start, "consumers see the deletion")
	pl.nodes[1].store.SetPlan(nil)
	pl.target(id, 2)
	require.Equal(t, int64(3), pl.await(id, 2).Offsets().Start)
}

// What made a partition safe may be a roll, which leaves nothing to upload: the cluster is told all the same.
func TestSafeByRoll(t *testing.T) {
	pl := newPlane(t, 1)
	n := pl.nodes[1]
	n.retune(func(o *SetOptions) { o.StreamInterval = 500 * time.Millisecond })
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	produceSeq(t, p, 7, 0, "a")
	pl.alter(id, objectTopic)
	eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.object
	}, func() string { return "it does not become object" })
	n.set.reclasses(t)
	require.NoError(t, p.Roll(context.Background()))
	eventually(t, func() bool { return pl.assignment(id).Safe }, func() string { return "never safe" })
}

// A partition fails while it is handed over: the cluster hears of it, so that it is started again.
func TestFailsWhileDraining(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	produceSeq(t, p, 7, 0, "a")
	pl.nodes[1].store.SetPlan(func(c bucket.Call) bucket.Action {
		if putsHead(c) {
			return bucket.Action{Before: bucket.ErrUnavailable}
		}
		return bucket.Action{}
	})
	pl.warmTarget(id, 2)
	eventually(t, func() bool { return p.State() == Draining }, func() string { return "it does not drain" })
	p.fail("something is damaged", nil)
	eventually(t, func() bool { return pl.assignment(id).State == cluster.Failed }, func() string { return pl.assignment(id).State.String() })
}
