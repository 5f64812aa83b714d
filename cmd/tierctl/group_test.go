package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/admin"
)

func TestReadOffsets(t *testing.T) {
	got, err := readOffsets(strings.NewReader("# what to do\nlogs,0,17\n\n\"logs\", 1, 0\naudit,0,5\n"), "-")
	require.NoError(t, err)
	require.Equal(t, map[string]map[int32]int64{"logs": {0: 17, 1: 0}, "audit": {0: 5}}, got)
	for text, want := range map[string]string{
		"logs,0":           "-:1: not TOPIC,PARTITION,OFFSET",
		",0,1":             "-:1: not TOPIC",
		"a,0,1\nb,x,1":     `-:2: "x" is not a partition`,
		"a,-1,1":           `"-1" is not a partition`,
		"a,3000000000,1":   "is not a partition",
		"a,0,-5":           `"-5" is not an offset`,
		"a,0,1\n\na,0,2\n": "-:3: partition 0 of a comes twice",
	} {
		_, err := readOffsets(strings.NewReader(text), "-")
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(usageError))
	}
}

func TestLag(t *testing.T) {
	detail := &admin.TopicDetail{PartitionList: []admin.Partition{
		{Partition: 0},
		{Partition: 1, Start: 100, LocalStart: 900, Tiered: 950, End: 1000, ArchiveBytes: 8500, LocalBytes: 2000},
	}}
	for _, c := range []struct {
		committed                               int64
		records, bytes, inBucket, bytesIn, lost int64
	}{
		{1000, 0, 0, 0, 0, 0},
		{950, 50, 1000, 0, 0, 0},
		{800, 200, 3000, 100, 1000, 0},
		{50, 900, 10000, 800, 8000, 50},
		{-1, 900, 10000, 800, 8000, 0},
		{1200, 0, 0, 0, 0, 0}, // behind the end, after a restore
	} {
		r := partitionLag{Partition: 1, Committed: c.committed, Start: 100, End: 1000, Bytes: -1, InBucket: -1, BytesIn: -1}
		r.count(detail, true)
		require.Equal(t, []int64{c.records, c.bytes, c.inBucket, c.bytesIn, c.lost}, []int64{r.Records, r.Bytes, r.InBucket, r.BytesIn, r.Lost}, "%d", c.committed)
		r = partitionLag{Partition: 1, Committed: c.committed, Start: 100, End: 1000, Bytes: -1, InBucket: -1, BytesIn: -1}
		r.count(nil, false)
		require.Equal(t, []int64{c.records, -1, -1}, []int64{r.Records, r.Bytes, r.InBucket})
	}
}
