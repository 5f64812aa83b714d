package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// produceSeq appends one record with an idempotent producer and returns what the model has to hold.
func produceSeq(t testing.TB, p *Partition, pid int64, seq int32, value string) (rec, Ack) {
	t.Helper()
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: pid, ProducerEpoch: 0, FirstSequence: seq})
	b.Add(1_700_000_000_000, []byte("k"), []byte(value), nil)
	ack := appendBatch(t, p, b.Bytes())
	return rec{ack.BaseOffset, 1_700_000_000_000, value}, ack
}

// A partition goes to and fro between two brokers: its offsets go on, its records are the same wherever it is, retries
// are recognised, and the broker that let go keeps nothing.
func TestMoveToAndFro(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	var model []rec
	seq, at := int32(0), int32(1)
	for round := range 6 {
		p := pl.await(id, at)
		for range round { // also rounds in which nothing is written
			r, ack := produceSeq(t, p, 7, seq, fmt.Sprint("v", seq))
			require.False(t, ack.Duplicate)
			model = append(model, r)
			seq++
		}
		require.Equal(t, model, readAll(t, p))
		to := 3 - at
		pl.target(id, to)
		q := pl.await(id, to)
		require.Equal(t, model, readAll(t, q))
		if seq > 0 {
			_, ack := produceSeq(t, q, 7, seq-1, fmt.Sprint("v", seq-1))
			require.True(t, ack.Duplicate)
			require.Equal(t, model[len(model)-1].offset, ack.BaseOffset)
		}
		old := pl.nodes[at]
		eventually(t, func() bool { return old.set.Get(id) == nil || round == 0 }, func() string { return "remains are kept" })
		if round > 0 {
			_, ok, err := old.set.index.Last(id)
			require.NoError(t, err)
			require.False(t, ok, "index entries are left")
		}
		at = to
	}
	require.NotEmpty(t, model)
}

// An owner whose target is gone goes on.
func TestMoveToDeadTarget(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	pl.nodes[2].kill(1)
	pl.warmTarget(id, 2)
	eventually(t, func() bool { return pl.assignment(id).Target < 0 && p.State() == Writing }, func() string { return fmt.Sprintf("%+v", pl.assignment(id)) })
	r2, _ := produceSeq(t, p, 7, 1, "b")
	require.Equal(t, []rec{r, r2}, readAll(t, p))
}

// What an owner acknowledges after a move that came to nothing is where its successor looks, though everything was ready
// for the hand-over: the head named no stream any more.
func TestMoveToDeadTargetKeepsTheStream(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, map[string]string{cluster.DurabilityConfig: "object"})
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	pl.nodes[2].kill(1)
	pl.warmTarget(id, 2)
	eventually(t, func() bool { return pl.assignment(id).Target < 0 && p.State() == Writing }, func() string { return fmt.Sprintf("%+v", pl.assignment(id)) })
	r2, _ := produceSeq(t, p, 7, 1, "b")
	pl.nodes[1].kill(1)
	pl.nodes[1].wipe()
	pl.nodes[2].open()
	pl.give(id, 2, false)
	require.Equal(t, []rec{r, r2}, readAll(t, pl.await(id, 2)))
}

// A partition that drains, though the cluster knows of no move, finds its way back.
func TestDrainsForNobody(t *testing.T) {
	for name, settings := range map[string]map[string]string{"sync": nil, "object": objectTopic} {
		t.Run(name, func(t *testing.T) {
			pl := newPlane(t, 1)
			id := pl.topic("t", 1, settings)
			p := pl.await(id, 1)
			r, _ := produceSeq(t, p, 7, 0, "a")
			p.mu.Lock()
			p.state = Draining
			p.mu.Unlock()
			pl.nodes[1].set.kickReconcile()
			pl.await(id, 1)
			r2, _ := produceSeq(t, p, 7, 1, "b")
			require.Equal(t, []rec{r, r2}, readAll(t, p))
		})
	}
}

// A partition is given to a broker that dies before it has claimed the head, and comes back. Meanwhile its old owner wanted
// room on its disk, and must not have made that of what the bucket lacks.
func TestComesBackFromUnclaimed(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	set := pl.nodes[1].set
	var model []rec
	for set.log.Files()[0].Active {
		r, _ := produceSeq(t, p, 7, int32(len(model)), fmt.Sprint(len(model), strings.Repeat("x", 3000)))
		model = append(model, r)
	}
	pl.nodes[2].stop()
	pl.give(id, 2, false)
	eventually(t, func() bool { return p.State() == Closed }, func() string { return p.State().String() })
	set.pressure.budget.Store(1)
	for dropped := true; dropped; {
		var err error
		dropped, err = set.reclaimOldest(pl.now.Load())
		require.NoError(t, err)
	}
	pl.give(id, 1, false)
	require.Equal(t, model, readAll(t, pl.await(id, 1)))
}

// A partition is forced away from a dead broker with sync records that nobody else has. The new owner goes on at the
// ceiling; what the old one had is quarantined when it comes back, and reported.
func TestForcedMoveQuarantines(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "in the bucket")
	require.NoError(t, p.Roll(context.Background()))
	produceSeq(t, p, 7, 1, "only here")
	pl.nodes[1].kill(1)
	pl.give(id, 2, true)
	q := pl.await(id, 2)
	require.False(t, pl.assignment(id).Jump)
	r2, ack := produceSeq(t, q, 7, 1, "only here, again")
	require.False(t, ack.Duplicate, "the record was lost, so its retry is stored")
	require.GreaterOrEqual(t, r2.offset, int64(firstCeiling))
	require.Equal(t, []rec{r, r2}, readAll(t, q))
	pl.nodes[1].open()
	eventually(t, func() bool { return pl.nodes[1].set.Get(id) == nil }, func() string { return "the old owner keeps its remains" })
	files, err := pl.nodes[1].set.log.Quarantined()
	require.NoError(t, err)
	require.Len(t, files, 1)
	pl.target(id, 1)
	require.Equal(t, []rec{r, r2}, readAll(t, pl.await(id, 1)))
}

// A broker comes back to a partition that another one had meanwhile, before it could see that: what is local isn't
// taken for a beginning of the archive.
func TestComesBackAfterOvertaken(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	require.NoError(t, p.Roll(context.Background()))
	produceSeq(t, p, 7, 1, "lost")
	pl.nodes[1].kill(1)
	pl.give(id, 2, true)
	q := pl.await(id, 2)
	r2, _ := produceSeq(t, q, 7, 1, "b")
	require.NoError(t, q.Roll(context.Background()))
	pl.nodes[2].stop()
	pl.give(id, 1, false)
	pl.nodes[1].open()
	p = pl.await(id, 1)
	require.Equal(t, []rec{r, r2}, readAll(t, p))
	_, ack := produceSeq(t, p, 7, 1, "b")
	require.True(t, ack.Duplicate)
	require.Equal(t, r2.offset, ack.BaseOffset)
}

// A bucket that takes no tail makes the owner give the move up and serve on, for a while at least; when the bucket takes
// data again, the move is made.
func TestMoveWhileTheBucketIsDown(t *testing.T) {
	pl := newPlane(t, 2)
	n := pl.nodes[1]
	n.kill(1)
	n.tune = func(o *SetOptions) { o.DrainPatience = 60 * time.Millisecond }
	n.open()
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	n.store.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Before: bucket.ErrUnavailable} })
	pl.keepTarget = true
	pl.target(id, 2)
	eventually(t, func() bool { return p.State() == Draining }, func() string { return "never drains" })
	eventually(t, func() bool { return p.State() == Writing }, func() string { return "never gives up" })
	r2, _ := produceSeq(t, p, 7, 1, "b")
	require.Equal(t, int32(2), pl.assignment(id).Target)
	n.store.SetPlan(nil)
	require.Equal(t, []rec{r, r2}, readAll(t, pl.await(id, 2)))
}

// An owner doesn't drain for a target that can't read the head, unless it is about to stop itself.
func TestMoveToTargetThatIsNotReady(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	n := pl.nodes[2]
	n.store.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Before: bucket.ErrUnavailable} })
	pl.target(id, 2)
	eventually(t, func() bool {
		n.eventsMu.Lock()
		defer n.eventsMu.Unlock()
		return slices.ContainsFunc(n.events, func(e Event) bool { return e.Level == Warn && errors.Is(e.Err, bucket.ErrUnavailable) })
	}, func() string { return "the target does not say that it can't be made ready" })
	require.Equal(t, Writing, p.State())
	require.False(t, pl.assignment(id).Warm)
	r2, _ := produceSeq(t, p, 7, 1, "b")
	pl.nodes[1].set.LeaveBy(time.Now())
	eventually(t, func() bool { return pl.assignment(id).Owner == 2 }, func() string { return "does not hand over before it stops" })
	n.store.SetPlan(nil)
	require.Equal(t, []rec{r, r2}, readAll(t, pl.await(id, 2)))
}

// What an owner has to roll, and whoever works on the head, is not what a move's gap consists of: writes go on meanwhile.
func TestMoveRollsALargeTailFirst(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	var model []rec
	const count = 12
	for seq := range int32(count) {
		r, _ := produceSeq(t, p, 7, seq, strings.Repeat("x", lightTail/10))
		model = append(model, r)
	}
	goOn, held := make(chan struct{}), make(chan struct{}, 100)
	pl.nodes[1].store.SetPlan(func(c bucket.Call) bucket.Action {
		if c.Verb != "put" {
			return bucket.Action{}
		}
		held <- struct{}{}
		return bucket.Action{Hold: goOn}
	})
	pl.target(id, 2)
	<-held
	eventually(t, func() bool { return pl.assignment(id).Warm }, func() string { return "the target is not warm" })
	pl.nodes[1].set.kickReconcile()
	r, _ := produceSeq(t, p, 7, count, "while it is rolled")
	require.Equal(t, Writing, p.State())
	require.Equal(t, cluster.Writing, pl.assignment(id).State)
	close(goOn)
	require.Equal(t, append(model, r), readAll(t, pl.await(id, 2)))
}

func TestMoveWaitsForWhoWorksOnTheHead(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	require.NoError(t, p.lockSwap(context.Background())) // a merge
	pl.target(id, 2)
	eventually(t, func() bool {
		pl.nodes[1].set.jobs.mu.Lock()
		defer pl.nodes[1].set.jobs.mu.Unlock()
		return pl.assignment(id).Warm && pl.nodes[1].set.jobs.busy[p]
	}, func() string { return "nobody waits for the merge" })
	r2, _ := produceSeq(t, p, 7, 1, "b")
	require.Equal(t, Writing, p.State())
	p.unlockSwap()
	require.Equal(t, []rec{r, r2}, readAll(t, pl.await(id, 2)))
}
