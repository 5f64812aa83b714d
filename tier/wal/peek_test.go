package wal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// A look at a stream shows what a seal would find, and writes nothing: the writer goes on.
func TestPeek(t *testing.T) {
	mem := bucket.NewMemory()
	s, err := Peek(ctx(t), mem, tailOp, stream)
	require.NoError(t, err, "a stream without objects")
	ids, err := s.Partitions(ctx(t))
	require.NoError(t, err)
	require.Empty(t, ids)

	w := open(t, options(mem))
	want := map[frame.PartitionID][][]byte{}
	write := func(from, to int) {
		for i := from; i < to; i++ {
			b := makeBatch(t, partition(int32(i%3)), 4, int64(i/3*2), 2, 100)
			want[b.id] = append(want[b.id], b.b)
			require.NoError(t, wait(t, put(t, w, b)))
		}
	}
	look := func() {
		f := bucket.NewFault(mem, func(c bucket.Call) bucket.Action {
			require.False(t, c.Writes())
			return bucket.Action{}
		})
		s, err := Peek(ctx(t), f, tailOp, stream)
		require.NoError(t, err)
		require.Empty(t, s.Missing)
		for id, batches := range want {
			require.Equal(t, batches, contents(t, mem, s, id))
		}
	}
	write(0, 30)
	look()
	write(30, 45)
	look()
	w.SetFloor(20)
	write(45, 48)
	_, err = w.Sweep(ctx(t), 1)
	require.NoError(t, err)
	s, err = Peek(ctx(t), mem, tailOp, stream)
	require.NoError(t, err)
	require.EqualValues(t, 20, s.Floor)
	require.EqualValues(t, w.Next(), s.End)
	require.Empty(t, s.Missing)
	sealed, err := Seal(ctx(t), mem, tailOp, stream, "life-2")
	require.NoError(t, err)
	s, err = Peek(ctx(t), mem, tailOp, stream)
	require.NoError(t, err)
	require.Equal(t, []uint64{sealed.Floor, sealed.End}, []uint64{s.Floor, s.End})
	for id := range want {
		require.Equal(t, contents(t, mem, sealed, id), contents(t, mem, s, id))
	}
}
