package partition

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/segment"
)

// The start offset that a client was told never goes back, however the process or the machine ends.
func TestStartNeverGoesBack(t *testing.T) {
	ctx := context.Background()
	for _, power := range []bool{false, true} {
		for seed := range int64(6) {
			w := newCrashWorld(t)
			w.open()
			p := w.topic("t", map[string]string{"internal.segment.bytes": "3000", "retention.ms": "1000"})
			id := p.ID()
			for range 8 {
				require.NoError(t, w.send(p))
			}
			var start int64
			var err error
			if seed%2 == 0 {
				require.NoError(t, p.Roll(ctx))
				_, err = p.DeleteRecords(ctx, 3)
				require.NoError(t, err)
				start, err = p.DeleteRecords(ctx, 13)
				require.NoError(t, err)
			} else {
				require.NoError(t, p.Roll(ctx))
				w.now.Add(100_000)
				require.NoError(t, p.Maintain(ctx, w.now.Load()))
				require.NoError(t, w.send(p))
				if power {
					require.NoError(t, w.set.log.Sync(ctx))
				}
				start = p.Offsets().Start
				require.Positive(t, start)
			}
			w.crash(t, seed, power)
			w.open()
			p = w.await(id)
			require.Equal(t, start, p.Offsets().Start, "power lost: %v", power)
			w.verify(t, p, "after the crash")
			w.close()
		}
	}
}

// Nor when the start that replays the note of it fails behind its last checkpoint: the next one begins above the note.
func TestStartSurvivesInterruptedRecovery(t *testing.T) {
	ctx := context.Background()
	w := newCrashWorld(t)
	w.open()
	p := w.topic("t", map[string]string{"internal.segment.bytes": "3000"})
	id := p.ID()
	for range 8 {
		require.NoError(t, w.send(p))
	}
	require.NoError(t, p.Roll(ctx))
	require.NoError(t, w.set.secure())
	start, err := p.DeleteRecords(ctx, 13)
	require.NoError(t, err)
	w.crash(t, 1, false)
	w.files.SetPlan(func(c segment.Call) error {
		if c.Op == "map" {
			return errDisk
		}
		return nil
	})
	_, err = w.tryOpen()
	require.ErrorIs(t, err, errDisk)
	w.files.SetPlan(nil)
	w.open()
	p = w.await(id)
	require.Equal(t, start, p.Offsets().Start)
	w.verify(t, p, "after the second start")
	w.close()
}
