package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/kafka"
)

func TestTable(t *testing.T) {
	seen := map[int16]bool{}
	last := int16(-1)
	for _, a := range apis {
		require.False(t, seen[a.key], a.name)
		seen[a.key] = true
		require.Greater(t, a.key, last, "the table is in the order of the keys")
		last = a.key
		if a.name != "AlterPartitionReassignments" { // kmsg calls it AlterPartitionAssignments
			require.True(t, strings.EqualFold(a.name, kmsg.NameForKey(a.key)), a.name)
		}
		require.LessOrEqual(t, a.max, kmsg.RequestForKey(a.key).MaxVersion(), a.name)
		require.LessOrEqual(t, a.min, a.max, a.name)
		require.LessOrEqual(t, a.advertised, a.min, a.name)
		require.NotNil(t, a.handle, a.name)
	}
	require.EqualValues(t, kafka.ProduceMinVersion, apis[0].min)
	require.EqualValues(t, kafka.ProduceMaxVersion, apis[0].max)
	require.EqualValues(t, kafka.FetchMinVersion, apis[1].min)
	require.EqualValues(t, kafka.FetchMaxVersion, apis[1].max)
}

func TestApiVersions(t *testing.T) {
	w := newWorld(t)
	for v := int16(0); v <= 4; v++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "a-client", "1.2.3"
		resp := ask[*kmsg.ApiVersionsResponse](w, req, v)
		require.Zero(t, resp.ErrorCode)
		require.Len(t, resp.ApiKeys, len(apis))
		for i, k := range resp.ApiKeys {
			require.Equal(t, apis[i].key, k.ApiKey)
			require.Equal(t, apis[i].advertised, k.MinVersion)
			require.Equal(t, apis[i].max, k.MaxVersion)
		}
		require.Zero(t, resp.ApiKeys[0].MinVersion, "Produce is advertised from 0")
		require.Empty(t, resp.FinalizedFeatures)
		require.Empty(t, resp.SupportedFeatures)
	}
	for _, name := range []string{"", "-x", "x.", "a b", "ü"} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = name, "1"
		require.Equal(t, kerr.InvalidRequest.Code, ask[*kmsg.ApiVersionsResponse](w, req, 3).ErrorCode, "%q", name)
	}
}

func TestApiVersionsUnknownVersion(t *testing.T) {
	w := newWorld(t)
	p := w.b.Handle(w.ctx, &kafka.Request{Key: 18, Version: 99, Body: []byte{1, 2, 3}, Received: time.Now()})
	resp := w.decode(kmsg.NewPtrApiVersionsRequest(), p.Wait(w.ctx)).(*kmsg.ApiVersionsResponse)
	require.Equal(t, kerr.UnsupportedVersion.Code, resp.ErrorCode)
	require.Len(t, resp.ApiKeys, 1)
	require.EqualValues(t, 18, resp.ApiKeys[0].ApiKey)
	require.EqualValues(t, 4, resp.ApiKeys[0].MaxVersion)
}

func TestUnsupported(t *testing.T) {
	w := newWorld(t)
	require.ErrorContains(t, w.refused(kmsg.NewPtrEndTxnRequest(), 3), "EndTxn")
	require.ErrorContains(t, w.refused(kmsg.NewPtrProduceRequest(), 2), "version 2")
	require.ErrorContains(t, w.refused(kmsg.NewPtrFetchRequest(), 3), "version 3")
	require.ErrorContains(t, w.refused(kmsg.NewPtrListOffsetsRequest(), 0), "version 0")
	for _, key := range []int16{0, 1, 3, 19} {
		a := w.b.table[key]
		p := w.b.Handle(w.ctx, &kafka.Request{Key: key, Version: a.max, Body: []byte{0xff}, Received: time.Now()})
		require.Error(t, p.Wait(w.ctx).Close, a.name)
	}
	big := kmsg.NewPtrFindCoordinatorRequest()
	big.CoordinatorKey = strings.Repeat("x", 30000)
	for range 150 {
		big.CoordinatorKeys = append(big.CoordinatorKeys, big.CoordinatorKey)
	}
	require.ErrorContains(t, w.refused(big, 4), "larger than the limit")
}

func TestCounters(t *testing.T) {
	c := NewCounters()
	id := [16]byte{1}
	c.Request(kafka.RequestStats{Key: 0, BytesIn: 10, BytesOut: 20, Total: 300 * time.Microsecond})
	c.Request(kafka.RequestStats{Key: 0, BytesIn: 1, BytesOut: 2, Total: time.Hour})
	c.Failed(0, -1)
	c.Failed(0, 56)
	c.Produced("a", id, 100, 3)
	c.Fetched("a", id, 70, 50)
	var got []APIStats
	c.APIs(func(s APIStats) { got = append(got, s) })
	require.Len(t, got, 1)
	require.Equal(t, "Produce", got[0].Name)
	require.EqualValues(t, 2, got[0].Requests)
	require.EqualValues(t, 11, got[0].BytesIn)
	require.EqualValues(t, 22, got[0].BytesOut)
	require.EqualValues(t, 1, got[0].Latency[2])
	require.EqualValues(t, 1, got[0].Latency[len(LatencyBounds())])
	require.Equal(t, map[int16]int64{-1: 1, 56: 1}, got[0].Errors)
	var topics []TopicStats
	c.Topics(func(s TopicStats) { topics = append(topics, s) })
	require.Equal(t, []TopicStats{{Topic: "a", Batches: 1, Records: 3, BytesIn: 100, BytesOut: 70, BytesCold: 50}}, topics)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Request(kafka.RequestStats{Key: 1, Total: time.Second})
		c.Produced("a", id, 1, 1)
		c.Fetched("a", id, 1, 0)
		c.Failed(3, 5)
	}))
	c.Forget(func(frame.TopicID) bool { return false })
	c.Topics(func(TopicStats) { t.Fatal("forgotten") })
}
