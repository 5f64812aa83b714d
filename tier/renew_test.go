package tier

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A restore gives heads to the next life of the cluster: once, behind all that may have been handed out, and not before what pending
// streams hold.
func TestRenew(t *testing.T) {
	w := newWorld(t, 1)
	w.claim()
	w.write(10)
	w.roll()
	old, oldArchive := w.h, w.a
	w.open(func(o *Options) { o.ClusterIncarnation, o.PreviousIncarnation = "life-2", "life-1" })
	r := Renewal{Cluster: "cluster-2", By: Owner{Broker: -1, Incarnation: "restore"}, Gap: 1000, Topic: "logs"}
	renew := func(h *Head) (*Head, bool) {
		skipped := false
		n, err := w.a.Swap(ctx(t), w.id, h, func(h *Head) (err error) { skipped, err = h.Renew(r); return err })
		require.NoError(t, err)
		return n, skipped
	}
	h, skipped := renew(old)
	require.True(t, skipped)
	require.Equal(t, []any{"cluster-2", "life-2", old.Ceiling, old.Epoch + 1000, old.Records}, []any{h.Cluster, h.ClusterIncarnation, h.End, h.Epoch, h.Records})
	require.Equal(t, EpochStart{Epoch: h.Epoch, Start: old.End, Owner: "restore"}, h.Epochs[len(h.Epochs)-1], "clients see where the last life ends")
	_, err := oldArchive.RaiseCeiling(ctx(t), w.id, old, w.owner, old.Ceiling)
	require.ErrorIs(t, err, ErrFenced)

	again, skipped := renew(h)
	require.True(t, skipped)
	require.Equal(t, h.End, again.End, "nobody has written since")
	require.Equal(t, h.Epoch+1000, again.Epoch)

	// A head that was rebuilt from its objects has no owner either, and knows nothing of what was handed out.
	rebuilt := again.Clone()
	rebuilt.Owner, rebuilt.OwnerIncarnation = -1, ""
	skipped, err = rebuilt.Renew(r)
	require.NoError(t, err)
	require.True(t, skipped)
	require.Equal(t, again.Ceiling, rebuilt.End)

	pending := old.Clone()
	pending.Pending = []PendingStream{{Broker: 1, Incarnation: "run-1", Epoch: 1}}
	skipped, err = pending.Renew(r)
	require.NoError(t, err)
	require.False(t, skipped)
	require.Equal(t, []any{old.End, old.Epochs}, []any{pending.End, pending.Epochs})

	var fresh Head
	skipped, err = fresh.Renew(r)
	require.NoError(t, err)
	require.True(t, skipped)
	require.Equal(t, []any{int64(0), int64(FirstCeiling), int32(1000), "logs"}, []any{fresh.Start, fresh.End, fresh.Epoch, fresh.Topic})
	high := old.Clone()
	high.Epoch = math.MaxInt32 - 5
	_, err = high.Renew(r)
	require.ErrorIs(t, err, ErrTooLarge)
}
