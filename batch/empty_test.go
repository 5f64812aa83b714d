package batch

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestEmpty(t *testing.T) {
	b := Empty(7, 7+math.MaxInt32, 3)
	require.NoError(t, CheckCRC(b))
	h, one, rest, err := Next(b)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Len(t, one, HeaderLen)
	require.Equal(t, int64(7+math.MaxInt32), h.LastOffset())
	require.False(t, h.HasProducer())
	require.Equal(t, int64(-1), h.MaxTimestamp)
	require.NoError(t, Iterate(b, func(*Record) bool { t.Error("a record"); return false }))
	var k kmsg.RecordBatch
	require.NoError(t, k.ReadFrom(b))
	require.Equal(t, []int32{3, 0}, []int32{k.PartitionLeaderEpoch, k.NumRecords})
}
