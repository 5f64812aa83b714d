package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/partition"
)

// Somebody else has written into the partition: the machine that didn't see it leaves nothing in the log any more, and
// the next one begins with what is there.
func TestOvertakenMachineAppendsNothing(t *testing.T) {
	r := newRig(t)
	r.open()
	r.mustPut("a", 1)
	foreign := r.j.shards[0].cur.build([]Record{{Key: []byte("b"), Value: []byte("7")}})
	_, err := r.log.Append(foreign, partition.AppendOptions{Epoch: 1, Now: 1})
	require.NoError(t, err)
	before := 0
	r.log.set(func() { before = len(r.log.batches) })
	lost, err := r.put("a", 2)
	require.NoError(t, err)
	require.ErrorIs(t, <-lost, ErrNotCoordinator)
	r.log.set(func() { require.Len(t, r.log.batches, before) })
	r.await()
	require.Equal(t, map[string]int{"a": 1, "b": 7}, r.state())
	r.mustPut("a", 3)
	require.Equal(t, map[string]int{"a": 3, "b": 7}, r.log.fold(t, true))
}
