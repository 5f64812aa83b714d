package wal

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

func problems(t *testing.T, b bucket.Bucket, opts VerifyOptions) (bad, notes []tier.Problem) {
	require.NoError(t, Verify(ctx(t), b, tailOp, stream, opts, func(p tier.Problem) {
		if p.Note {
			notes = append(notes, p)
		} else {
			bad = append(bad, p)
		}
	}))
	return bad, notes
}

func TestVerify(t *testing.T) {
	mem := bucket.NewMemory()
	w := open(t, options(mem))
	for i := range int64(12) {
		if i == 6 {
			w.SetFloor(2)
		}
		require.NoError(t, wait(t, put(t, w, makeBatch(t, partition(1), 0, i, 2-int(i%2), 10), makeBatch(t, partition(2), 0, i, 1, 10))))
	}
	entries := 0
	bad, notes := problems(t, mem, VerifyOptions{Entry: func(*Entry) { entries++ }})
	require.Empty(t, bad)
	require.Empty(t, notes)
	require.Equal(t, 24, entries)
	o, err := ReadObject(ctx(t), mem, tailOp, stream.Key(8))
	require.NoError(t, err)
	require.Equal(t, []uint64{2, 3, 4, 5, 6, 7}, o.Combined)
	require.Equal(t, []any{"cluster", "life-1", stream, uint64(8), uint64(2), uint64(8), false}, []any{o.ClusterID, o.ClusterIncarnation, o.Stream, o.Seq, o.Floor, o.Acked, o.Seal})

	// Any flipped bit is told; those of batches only when they are read.
	for _, seq := range []uint64{3, 8} {
		good, _, err := bucket.GetAll(ctx(t), mem, tailOp, stream.Key(seq), 1<<20)
		require.NoError(t, err)
		for at := 0; at < len(good); at += 11 {
			b := bytes.Clone(good)
			b[at] ^= 16
			_, err := mem.Put(ctx(t), tailOp, stream.Key(seq), bucket.BytesBody(b), bucket.Condition{})
			require.NoError(t, err)
			bad, _ := problems(t, mem, VerifyOptions{})
			require.NotEmpty(t, bad, "byte %d of object %d", at, seq)
		}
		_, err = mem.Put(ctx(t), tailOp, stream.Key(seq), bucket.BytesBody(good), bucket.Condition{})
		require.NoError(t, err)
	}
	bad, _ = problems(t, mem, VerifyOptions{MetaOnly: true})
	require.Empty(t, bad)

	// Sealed and half swept: notes.
	_, err = Seal(ctx(t), mem, tailOp, stream, "life-2")
	require.NoError(t, err)
	_, err = mem.Put(ctx(t), tailOp, stream.Key(20), bucket.BytesBody(craft(t, false)), bucket.Condition{})
	require.NoError(t, err)
	bad, _ = problems(t, mem, VerifyOptions{})
	require.NotEmpty(t, bad) // that is no object 20
	require.NoError(t, mem.Delete(ctx(t), tailOp, []string{stream.Key(20)}))
	_, err = SweepDead(ctx(t), mem, tailOp, stream, func(_ context.Context, e Entry) (bool, error) { return e.Seq%2 == 0, nil })
	require.NoError(t, err)
	bad, notes = problems(t, mem, VerifyOptions{})
	require.Empty(t, bad)
	require.Len(t, notes, 1)
	o, err = ReadObject(ctx(t), mem, tailOp, stream.Key(13))
	require.NoError(t, err)
	require.True(t, o.Seal)
	require.Equal(t, "life-2", o.ClusterIncarnation)
	_, err = ReadObject(ctx(t), mem, tailOp, "wal/x")
	require.Error(t, err)
}
