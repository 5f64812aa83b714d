package partition

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
)

// sequenced makes a batch of an idempotent producer with n records.
func sequenced(pid int64, epoch int16, seq int32, n int) []byte {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: pid, ProducerEpoch: epoch, FirstSequence: seq})
	for i := range n {
		b.Add(1, nil, fmt.Appendf(nil, "%d/%d/%d", epoch, seq, i), nil)
	}
	return b.Bytes()
}

func TestSequences(t *testing.T) {
	w := newWorld(t)
	w.open()
	p := w.topic("t", nil)
	put := func(epoch int16, seq int32, n int) (Ack, error) { return tryAppend(p, sequenced(5, epoch, seq, n)) }
	must := func(epoch int16, seq int32, n int) Ack {
		t.Helper()
		ack, err := put(epoch, seq, n)
		require.NoError(t, err)
		return ack
	}
	// A producer that isn't known may start anywhere. Sequences wrap from the largest one to 0.
	first := must(0, math.MaxInt32-2, 2)
	require.False(t, first.Duplicate)
	wraps := must(0, math.MaxInt32, 3) // MaxInt32, 0, 1
	after := must(0, 2, 1)
	for _, again := range []bool{false, true} {
		d := must(0, math.MaxInt32, 3)
		require.True(t, d.Duplicate)
		require.Equal(t, wraps.BaseOffset, d.BaseOffset)
		require.Equal(t, wraps.LastOffset, d.LastOffset)
		d = must(0, math.MaxInt32-2, 2)
		require.True(t, d.Duplicate)
		require.Equal(t, first.BaseOffset, d.BaseOffset)
		_, err := put(0, 4, 1)
		require.ErrorIs(t, err, ErrOutOfOrderSequence)
		if !again {
			w.reopen()
			p = w.await(p.ID())
		}
	}
	require.Equal(t, wraps.LastOffset+1, after.BaseOffset)
	// A new epoch starts at 0 and fences the old one.
	_, err := put(1, 3, 1)
	require.ErrorIs(t, err, ErrOutOfOrderSequence)
	must(1, 0, 1)
	_, err = put(0, 3, 1)
	require.ErrorIs(t, err, ErrProducerFenced)
	// More than five batches later, a retry of the first one is known to be old.
	for seq := range int32(6) {
		must(1, 1+seq, 1)
	}
	_, err = put(1, 0, 1)
	require.ErrorIs(t, err, ErrDuplicateSequence)
	require.Len(t, readAll(t, p), 13)
	w.close()
}

// Six batches of a producer are on their way when the disk fails: all are lost, none is remembered, and all of them can
// be sent again, at their places.
func TestLostBatchesAreForgotten(t *testing.T) {
	w := newWorld(t)
	fs := newHookFS()
	w.fs = fs
	w.open()
	p := w.topic("t", nil)
	kept, err := tryAppend(p, sequenced(5, 0, 0, 2))
	require.NoError(t, err)
	g := newGate()
	fs.set(func(op, _ string) error {
		if op == "sync" {
			g.pass()
			return errDisk
		}
		return nil
	})
	var acks []Ack
	for i := range int32(6) {
		ack, err := p.Append(sequenced(5, 0, 2+2*i, 2), AppendOptions{Epoch: -1, Now: 1})
		require.NoError(t, err)
		require.NoError(t, ack.Written())
		acks = append(acks, ack)
	}
	// A retry of one that isn't durable waits for it and shares its fate.
	retry, err := p.Append(sequenced(5, 0, 10, 2), AppendOptions{Epoch: -1, Now: 1})
	require.NoError(t, err)
	require.True(t, retry.Duplicate)
	require.NoError(t, retry.Written())
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	require.ErrorIs(t, retry.Durable(short), context.DeadlineExceeded)
	cancel()
	fs.set(nil)
	close(g.open)
	for i := range acks {
		require.ErrorIs(t, wait(&acks[i]), ErrStorage)
	}
	require.ErrorIs(t, wait(&retry), ErrStorage)
	eventually(t, func() bool { return p.Offsets().End == kept.LastOffset+1 && !w.set.repairing() }, func() string { return fmt.Sprintf("%+v", p.Stats()) })
	dup, err := tryAppend(p, sequenced(5, 0, 0, 2))
	require.NoError(t, err)
	require.True(t, dup.Duplicate, "what was stored is still known")
	for i := range int32(6) {
		ack, err := tryAppend(p, sequenced(5, 0, 2+2*i, 2))
		require.NoError(t, err)
		require.False(t, ack.Duplicate)
		require.Equal(t, acks[i].BaseOffset, ack.BaseOffset)
	}
	w.close()
}

// With log and index gone, a retry is recognised by what the head says, up to the archive's end.
func TestProducersFromTheHeadAlone(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld(t)
		w.open()
		p := w.topic("t", nil)
		var at []int64
		for seq := range int32(4) {
			ack, err := tryAppend(p, sequenced(5, 2, seq, 1))
			require.NoError(t, err)
			at = append(at, ack.BaseOffset)
		}
		if restart { // nobody has produced in this run, and its roll must not forget who did before
			w.reopen()
			p = w.await(p.ID())
		}
		require.NoError(t, p.Roll(t.Context()))
		w.close()
		removeAll(t, w.dir)
		w.open()
		p = w.await(p.ID())
		for seq := range int32(4) {
			ack, err := tryAppend(p, sequenced(5, 2, seq, 1))
			require.NoError(t, err)
			require.True(t, ack.Duplicate, "restarted before the roll: %v", restart)
			require.Equal(t, at[seq], ack.BaseOffset)
		}
		ack, err := tryAppend(p, sequenced(5, 2, 4, 1))
		require.NoError(t, err)
		require.False(t, ack.Duplicate)
		_, err = tryAppend(p, sequenced(5, 1, 0, 1))
		require.ErrorIs(t, err, ErrProducerFenced)
		w.close()
	}
}

// Expiry forgets who has been idle, and not who has a batch under way when the clock makes a leap.
func TestProducerExpiry(t *testing.T) {
	w := newWorld(t)
	fs := newHookFS()
	w.fs = fs
	w.open()
	p := w.topic("t", nil)
	_, err := tryAppend(p, sequenced(1, 0, 0, 1))
	require.NoError(t, err)
	g := newGate()
	fs.set(func(op, _ string) error {
		if op == "sync" {
			g.pass()
		}
		return nil
	})
	busy, err := p.Append(sequenced(2, 0, 0, 1), AppendOptions{Epoch: -1, Now: w.now.Load()})
	require.NoError(t, err)
	require.NoError(t, busy.Written())
	require.NoError(t, p.Maintain(t.Context(), w.now.Add(25*time.Hour.Milliseconds())))
	fs.set(nil)
	close(g.open)
	require.NoError(t, wait(&busy))
	list, err := p.Producers()
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.EqualValues(t, 2, list[0].ID)
	dup, err := tryAppend(p, sequenced(2, 0, 0, 1))
	require.NoError(t, err)
	require.True(t, dup.Duplicate)
	ack, err := tryAppend(p, sequenced(1, 0, 9, 1)) // forgotten, so it may start anywhere
	require.NoError(t, err)
	require.False(t, ack.Duplicate)
	w.reopen()
	list, err = w.await(p.ID()).Producers()
	require.NoError(t, err)
	require.Len(t, list, 2)
	w.close()
}
