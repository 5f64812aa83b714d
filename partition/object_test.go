package partition

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

var objectTopic = map[string]string{"tierbroker.durability": "object"}

// An object partition survives its broker and that broker's disk: what was acknowledged is served by another one, at its
// offsets, retries are recognised, and writing goes on without a gap.
func TestObjectSurvivesItsBroker(t *testing.T) {
	pl := newPlane(t, 3)
	id := pl.topic("t", 1, objectTopic)
	var model []rec
	seq, at := int32(0), int32(1)
	for round := range 7 {
		p := pl.await(id, at)
		require.Equal(t, model, readAll(t, p))
		require.True(t, pl.assignment(id).Safe)
		if seq > 0 {
			_, ack := produceSeq(t, p, 7, seq-1, fmt.Sprint("v", seq-1))
			require.True(t, ack.Duplicate)
			require.Equal(t, model[len(model)-1].offset, ack.BaseOffset)
		}
		for range 3 * round {
			r, ack := produceSeq(t, p, 7, seq, fmt.Sprint("v", seq))
			require.False(t, ack.Duplicate)
			require.Equal(t, int64(seq), ack.BaseOffset)
			model = append(model, r)
			seq++
		}
		if round == 3 {
			require.NoError(t, p.Roll(context.Background()))
		}
		old := pl.nodes[at]
		old.kill(int64(round))
		old.wipe()
		at = at%3 + 1
		pl.give(id, at, false)
		old.open()
	}
	require.NotEmpty(t, model)
}

// The same broker comes back with its disk: what it had not told the bucket yet is not lost, and nothing is seen twice.
func TestObjectRestart(t *testing.T) {
	pl := newPlane(t, 1)
	id := pl.topic("t", 1, objectTopic)
	var model []rec
	for round := range 5 {
		p := pl.await(id, 1)
		for i := range 4 {
			r, _ := produceSeq(t, p, 7, int32(4*round+i), fmt.Sprint(round, "-", i))
			model = append(model, r)
		}
		require.Equal(t, model, readAll(t, p))
		pl.nodes[1].kill(int64(round))
		pl.nodes[1].open()
	}
	require.Equal(t, model, readAll(t, pl.await(id, 1)))
}

// Nothing is acknowledged, and nothing seen, before it is in the bucket.
func TestObjectWaitsForTheBucket(t *testing.T) {
	pl := newPlane(t, 2)
	n := pl.nodes[1]
	id := pl.topic("t", 1, objectTopic)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	hold := make(chan struct{})
	n.store.SetPlan(func(c bucket.Call) bucket.Action {
		if strings.HasPrefix(c.Key, "wal/") {
			return bucket.Action{Hold: hold}
		}
		return bucket.Action{}
	})
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: 7, ProducerEpoch: 0, FirstSequence: 1})
	b.Add(1_700_000_000_000, []byte("k"), []byte("b"), nil)
	ack, err := p.Append(b.Bytes(), AppendOptions{Epoch: -1, Now: pl.now.Load()})
	require.NoError(t, err)
	require.NoError(t, ack.Written())
	require.ErrorIs(t, ack.DurableBy(context.Background(), time.Now().Add(50*time.Millisecond)), context.DeadlineExceeded)
	require.Equal(t, int64(1), p.Offsets().Durable)
	// A retry waits for its original.
	retry := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: 7, ProducerEpoch: 0, FirstSequence: 1})
	retry.Add(1_700_000_000_000, []byte("k"), []byte("b"), nil)
	again, err := p.Append(retry.Bytes(), AppendOptions{Epoch: -1, Now: pl.now.Load()})
	require.NoError(t, err)
	require.True(t, again.Duplicate)
	require.ErrorIs(t, again.DurableBy(context.Background(), time.Now().Add(50*time.Millisecond)), context.DeadlineExceeded)
	close(hold)
	require.NoError(t, ack.Durable(context.Background()))
	require.NoError(t, again.Durable(context.Background()))
	require.Equal(t, []rec{r, {1, 1_700_000_000_000, "b"}}, readAll(t, p))
}

// A zombie: the owner is paused while another one takes over, and comes back. Nothing it does is acknowledged or seen.
func TestObjectZombie(t *testing.T) {
	pl := newPlane(t, 2)
	zombie := pl.nodes[1]
	id := pl.topic("t", 1, objectTopic)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	zombie.gone() // its lease ends, and it sees nothing of the world
	pl.give(id, 2, false)
	q := pl.await(id, 2)
	r2, _ := produceSeq(t, q, 8, 0, "b")
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: 7, ProducerEpoch: 0, FirstSequence: 1})
	b.Add(1_700_000_000_000, []byte("k"), []byte("zombie"), nil)
	ack, err := p.Append(b.Bytes(), AppendOptions{Epoch: -1, Now: pl.now.Load()})
	require.NoError(t, err)
	require.ErrorIs(t, ack.Durable(context.Background()), ErrNotOwner)
	require.ErrorIs(t, zombie.set.Err(), ErrFencedRun)
	require.Equal(t, []rec{r, r2}, readAll(t, q))
	require.Equal(t, Failed, p.State())
}

// A topic becomes object while it is written to, and ceases to be: the controller is told it is safe only when all of it is in
// the bucket, and that it isn't before anything is acknowledged on less.
func TestChangeOfClass(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	require.False(t, pl.assignment(id).Safe)
	var model []rec
	seq := int32(0)
	send := func(n int) {
		for range n {
			r, _ := produceSeq(t, p, 7, seq, fmt.Sprint("v", seq))
			model = append(model, r)
			seq++
		}
	}
	send(5)
	_, ack := produceSeq(t, p, 7, seq-1, fmt.Sprint("v", seq-1))
	require.True(t, ack.RestsOnLease())
	pl.alter(id, objectTopic)
	eventually(t, func() bool { return pl.assignment(id).Safe }, func() string { return "never safe" })
	send(5)
	_, ack = produceSeq(t, p, 7, seq-1, fmt.Sprint("v", seq-1))
	require.False(t, ack.RestsOnLease())
	pl.nodes[1].kill(1)
	pl.nodes[1].wipe()
	pl.give(id, 2, false)
	p = pl.await(id, 2)
	require.Equal(t, model, readAll(t, p))
	send(5)
	pl.alter(id, nil)
	eventually(t, func() bool { return !pl.assignment(id).Safe }, func() string { return "still safe" })
	send(5)
	pl.nodes[1].open()
	pl.target(id, 1)
	p = pl.await(id, 1)
	send(5)
	require.Equal(t, model, readAll(t, p))
}

// A planned move of an object partition leaves no stream behind that its new owner would have to end.
func TestMoveOfObject(t *testing.T) {
	pl := newPlane(t, 2)
	id := pl.topic("t", 1, objectTopic)
	other := pl.topic("u", 1, objectTopic)
	p := pl.await(id, 1)
	var model []rec
	for i := range 10 {
		r, _ := produceSeq(t, p, 7, int32(i), fmt.Sprint(i))
		model = append(model, r)
	}
	pl.target(id, 2)
	q := pl.await(id, 2)
	require.Equal(t, model, readAll(t, q))
	produceSeq(t, pl.await(other, 1), 7, 0, "the first broker's stream goes on")
	h, err := pl.nodes[2].arch.Load(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, []string{pl.nodes[2].incarnation}, streams(h))
	// And back.
	pl.target(id, 1)
	require.Equal(t, model, readAll(t, pl.await(id, 1)))
	produceSeq(t, pl.await(id, 1), 7, 10, "10")
}

func streams(h *tier.Head) []string {
	var out []string
	for _, s := range h.Pending {
		out = append(out, s.Incarnation)
	}
	return out
}
