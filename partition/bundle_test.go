package partition

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
)

// A sync partition that is too quiet to be rolled goes into a bundle after segment.ms. When its broker's disk is lost and
// an operator forces it away, what the bundle has is there.
func TestBundle(t *testing.T) {
	pl := newPlane(t, 2)
	n := pl.nodes[1]
	id := pl.topic("t", 1, map[string]string{"segment.ms": "60000"})
	p := pl.await(id, 1)
	var model []rec
	for i := range int32(5) {
		r, _ := produceSeq(t, p, 7, i, fmt.Sprint("v", i))
		model = append(model, r)
	}
	n.set.rollDue(pl.now.Load())
	_, begun := n.set.Stream()
	require.False(t, begun, "not due yet")
	pl.now.Add(60_000)
	n.set.rollDue(pl.now.Load())
	bundled := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.uploaded == 5
	}
	eventually(t, bundled, func() string { return "no bundle" })
	require.False(t, pl.assignment(id).Safe, "a bundle promises nothing")
	produceSeq(t, p, 7, 5, "later")
	// Once is enough.
	puts := n.set.stream.writer.Next()
	n.set.rollDue(pl.now.Load())
	require.Equal(t, puts, n.set.stream.writer.Next())
	n.kill(1)
	n.wipe()
	pl.give(id, 2, true)
	q := pl.await(id, 2)
	void, err := q.Read(context.Background(), ReadRequest{Offset: 5, MaxBytes: 1 << 20})
	require.NoError(t, err)
	require.Equal(t, q.Offsets().Durable, void.Next, "a reader of the end gets over the void")
	h, err := batch.ParseHeader(void.Slices[0])
	require.NoError(t, err)
	require.Equal(t, []int64{5, void.Next - 1, 0}, []int64{h.BaseOffset, h.LastOffset(), int64(h.RecordCount)})
	void.Release()
	got, err := fetch(q, 0, 1<<20)
	require.NoError(t, err)
	require.Equal(t, model, got)
	_, ack := produceSeq(t, q, 7, 4, "v4")
	require.True(t, ack.Duplicate)
	r, _ := produceSeq(t, q, 7, 5, "later")
	require.GreaterOrEqual(t, r.offset, int64(firstCeiling))
	require.Equal(t, append(model, r), readAll(t, q))
}

// A broker that comes back with its disk needs no bucket to serve what it has bundled, and leaves the earlier run's stream
// when it has rolled.
func TestBundleAndRestart(t *testing.T) {
	pl := newPlane(t, 1)
	n := pl.nodes[1]
	id := pl.topic("t", 1, map[string]string{"segment.ms": "60000"})
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "v")
	pl.now.Add(60_000)
	n.set.rollDue(pl.now.Load())
	eventually(t, func() bool { s, ok := n.set.Stream(); return ok && s.Acked > 1 }, func() string { return "no bundle" })
	run := n.incarnation
	n.kill(1)
	n.open()
	p = pl.await(id, 1)
	require.Equal(t, []rec{r}, readAll(t, p))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	h, err := n.arch.Load(ctx, id)
	require.NoError(t, err)
	require.Equal(t, []string{run}, streams(h))
	require.NoError(t, p.Roll(ctx))
	h, err = n.arch.Load(ctx, id)
	require.NoError(t, err)
	require.Empty(t, streams(h))
}
