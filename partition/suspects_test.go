package partition

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// The start offset of an object partition is seen when the head has it: it does not go back when the disk is lost meanwhile.
func TestDeleteRecordsOfObjectSurvivesTheDisk(t *testing.T) {
	for _, swapped := range []bool{false, true} {
		t.Run(fmt.Sprint("swapped ", swapped), func(t *testing.T) {
			pl := newPlane(t, 2)
			n := pl.nodes[1]
			id := pl.topic("t", 1, objectTopic)
			p := pl.await(id, 1)
			for i := range int32(4) {
				produceSeq(t, p, 7, i, "v")
			}
			require.NoError(t, p.Roll(context.Background()))
			held, release := n.holdFirst(putsAnyHead)
			defer release()
			done := make(chan error, 1)
			go func() {
				_, err := p.DeleteRecords(context.Background(), 3)
				done <- err
			}()
			<-held
			seen := p.Offsets().Start
			if swapped {
				release()
				require.NoError(t, <-done)
				seen = p.Offsets().Start
				require.Equal(t, int64(3), seen)
			}
			pl.loseBroker(n, 2, id)
			q := pl.await(id, 2)
			require.GreaterOrEqual(t, q.Offsets().Start, seen)
			require.Len(t, readAll(t, q), 4-int(q.Offsets().Start))
		})
	}
}

// A partition whose start the head doesn't know isn't safe, whatever class its topic has become.
func TestNotSafeBeforeTheHeadHasTheStart(t *testing.T) {
	pl := newPlane(t, 2)
	n := pl.nodes[1]
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	for i := range int32(4) {
		produceSeq(t, p, 7, i, "v")
	}
	require.NoError(t, p.Roll(context.Background()))
	n.store.SetPlan(func(c bucket.Call) bucket.Action {
		if putsAnyHead(c) {
			return bucket.Action{Before: bucket.ErrUnavailable}
		}
		return bucket.Action{}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := p.DeleteRecords(ctx, 3)
	require.Error(t, err)
	require.Equal(t, int64(3), p.Offsets().Start, "sync: it is noted on the disk")
	pl.alter(id, objectTopic)
	eventually(t, func() bool { return p.Config().Durability == cluster.Object }, func() string { return "settings are not taken" })
	n.store.SetPlan(nil)
	object := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.object
	}
	eventually(t, object, func() string { return "it does not become object" })
	n.set.reclasses(t)
	require.False(t, pl.assignment(id).Safe, "the head lacks the start")
	require.NoError(t, p.Maintain(context.Background(), pl.now.Load()))
	eventually(t, func() bool { return pl.assignment(id).Safe || p.State() == Failed }, func() string { return "never safe" })
	seen := p.Offsets().Start
	pl.loseBroker(n, 2, id)
	require.GreaterOrEqual(t, pl.await(id, 2).Offsets().Start, seen)
}

// A sweep that goes by an old image asks etcd before it ends a run's stream.
func TestSweepWithAnOldImageSealsNobody(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprint("cut off ", cut), func(t *testing.T) {
			pl := newPlane(t, 2)
			sweeper := pl.nodes[1]
			eventually(t, func() bool { return sweeper.set.image.Load() != nil }, func() string { return "no image" })
			old := sweeper.set.image.Load()
			pl.nodes[2].stop()
			if cut {
				sweeper.gone()
			}
			pl.nodes[2].open() // a run that the old image doesn't know
			id := pl.topic("t", 2, objectTopic)
			p := pl.await(id, 2)
			produceSeq(t, p, 7, 0, "a")
			for range 3 {
				pl.now.Add(time.Hour.Milliseconds())
				sweeper.set.sweepStreams(context.Background(), old, pl.now.Load())
			}
			produceSeq(t, p, 7, 1, "b")
			require.NoError(t, pl.nodes[2].set.Err())
		})
	}
}

// What a merge has made superfluous stays for the sweep's delay: a reader may hold the head from before.
func TestStreamObjectsOutliveTheirLastReader(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, objectTopic)
	r, _ := produceSeq(t, pl.await(id, 1), 7, 0, "a")
	pl.loseBroker(pl.nodes[1], 2, id)
	p := pl.await(id, 2)
	require.Equal(t, []rec{r}, readAll(t, p))
	objects := func() (n int) {
		return pl.walObjects(t, 1)
	}
	n := pl.nodes[2]
	sweep := func() { n.set.sweepStreams(context.Background(), n.set.image.Load(), pl.now.Load()) }
	delay := n.set.o.SweepDelay.Milliseconds()
	before := objects()
	pl.now.Add(delay)
	sweep()
	require.Equal(t, before, objects())
	require.NoError(t, p.Maintain(context.Background(), pl.now.Load())) // merges
	pl.now.Add(delay)
	sweep()
	require.Equal(t, before-1, objects(), "the opening object held nothing; the other one isn't needed any more, but somebody may still read it")
	require.Equal(t, []rec{r}, readAll(t, p))
	pl.now.Add(delay)
	sweep()
	require.Equal(t, before-2, objects())
	require.Equal(t, []rec{r}, readAll(t, p))
}

// walObjects counts what is left of the streams of a broker.
func (pl *plane) walObjects(t *testing.T, broker int32) (n int) {
	t.Helper()
	list, err := pl.bucket.List(context.Background(), streamOp, "wal/", "", bucket.MaxList)
	require.NoError(t, err)
	for _, i := range list.Items {
		var hash, incarnation string
		var b int32
		if _, err := fmt.Sscanf(i.Key, "wal/%4s/%d/%s", &hash, &b, &incarnation); err == nil && b == broker {
			n++
		}
	}
	return n
}

// What goes into the stream after it was durable is not counted twice among what waits for the bucket.
func TestPendingIsCountedOnce(t *testing.T) {
	pl := newPlane(t, 1)
	id := pl.topic("t", 1, map[string]string{"segment.ms": "60000"})
	p := pl.await(id, 1)
	produceSeq(t, p, 7, 0, "a")
	pending := p.Stats().PendingBytes
	require.Positive(t, pending)
	pl.now.Add(60_000)
	require.NoError(t, p.lockSwap(context.Background()))
	require.NoError(t, p.bundle(context.Background(), pl.now.Load()))
	p.unlockSwap()
	uploaded := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.uploaded == p.stored
	}
	eventually(t, uploaded, func() string { return "not uploaded" })
	require.Equal(t, pending, p.Stats().PendingBytes)
	pl.alter(id, objectTopic)
	eventually(t, func() bool { return pl.assignment(id).Safe }, func() string { return "never safe" })
	require.Equal(t, pending, p.Stats().PendingBytes)
	produceSeq(t, p, 7, 1, "a")
	require.Equal(t, 2*pending, p.Stats().PendingBytes)
}

// A topic becomes async while its partition is prepared: the index says so, whatever comes first.
func TestAsyncWhileItStarts(t *testing.T) {
	w := newWorld(t)
	w.open()
	p := w.topic("t", nil)
	require.NoError(t, w.set.secureAsync([]*Partition{p})) // the settings are about to be taken
	require.NoError(t, p.enterClass(cluster.Assignment{}, false))
	p.mu.Lock()
	require.True(t, p.async)
	p.mu.Unlock()
	w.alter(t, p, map[string]string{"tierbroker.durability": "async"})
	p.mu.Lock()
	require.True(t, p.async && p.asyncSaved)
	p.mu.Unlock()
	w.close()
}

// A partition with a large backlog becomes object: what is too much for the stream is rolled, and others needn't wait for it.
func TestLargeBacklogIsRolledNotStreamed(t *testing.T) {
	pl := newPlane(t, 2)
	n := pl.nodes[1]
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	var model []rec
	value := strings.Repeat("v", 200<<10)
	for i := range int32(maxClassBacklog/len(value) + 3) {
		r, _ := produceSeq(t, p, 7, i, value)
		model = append(model, r)
	}
	require.Zero(t, p.Offsets().Tiered)
	pl.alter(id, objectTopic)
	eventually(t, func() bool { return pl.assignment(id).Safe }, func() string { return "never safe" })
	require.Equal(t, p.Offsets().Durable, p.Offsets().Tiered)
	if s, ok := n.set.Stream(); ok {
		require.Zero(t, s.NeededBytes)
	}
	r, _ := produceSeq(t, p, 7, int32(len(model)), "small")
	model = append(model, r)
	pl.loseBroker(n, 2, id)
	require.Equal(t, model, readAll(t, pl.await(id, 2)))
}
