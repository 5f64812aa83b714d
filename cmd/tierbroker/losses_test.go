package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/partition"
)

// A lost disk is told once for each topic, however many partitions it took, with what is left and of when.
func TestLossesAreToldOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	l := newLossLog(zap.New(core), time.Millisecond)
	event := partitionEvent(l.log, l)
	event(partition.Event{Level: partition.Warn, Message: "void", Topic: "__consumer_offsets", Partition: frame.PartitionID{Partition: 3},
		Loss: &partition.Loss{End: 7, Next: 9, Newest: 1000}})
	require.Eventually(t, func() bool { return logs.Len() > 0 }, 10*time.Second, time.Millisecond, "when no more come")
	all := logs.TakeAll()
	require.Len(t, all, 1)
	require.Contains(t, all[0].Message, "what groups committed after the newest record")
	require.Equal(t, "1970-01-01T00:00:01Z", all[0].ContextMap()["recovered_until"])

	l = newLossLog(zap.New(core), time.Hour)
	for i := range int32(10) {
		l.add("t", i, partition.Loss{End: 100 + int64(i), Next: 2000, Newest: time.Date(2030, 1, 2, 3, 4, 15-int(i), 0, time.UTC).UnixMilli()})
	}
	l.add("t", 10, partition.Loss{Newest: -1})
	l.close()
	l.close()
	all = logs.TakeAll()
	require.Len(t, all, 1)
	f := all[0].ContextMap()
	require.Equal(t, "2030-01-02T03:04:06Z", f["recovered_until"])
	require.Equal(t, "2030-01-02T03:04:15Z", f["recovered_until_at_most"])
	require.EqualValues(t, 11, f["partitions"])
	require.EqualValues(t, 1, f["nothing_in_bucket"])
	require.Equal(t, "sync", f["durability"])
	detail := fmt.Sprint(f["detail"])
	require.Contains(t, detail, "partition 9: records before offset 109 are here, the last of 2030-01-02T03:04:06Z; it goes on at 2000")
	require.Contains(t, detail, "and 2 more")
}
