package broker

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
)

// A broker whose lease may have ended confirms nothing that rests on it.
func TestLeaseDoubt(t *testing.T) {
	var doubt atomic.Bool
	w, topic := grouped(t, func(o *Options) { o.LeaseValid = func() bool { return !doubt.Load() } })
	p := w.part(topic, 0)
	p.set(func() { p.manual = true })

	// Doubt that comes while a write becomes durable takes its confirmation back, whatever acks it asked for.
	for _, acks := range []int16{-1, 1} {
		req := produceReq(topic, 0, acks, records(1, "a"))
		pending := w.start(req, 9)
		p.settle()
		doubt.Store(true)
		r := onePart(w.finish(req, pending).(*kmsg.ProduceResponse))
		require.Equal(t, kerr.NotLeaderForPartition.Code, r.ErrorCode, "acks %d", acks)
		require.EqualValues(t, -1, r.BaseOffset)
		doubt.Store(false)
	}
	end := p.Offsets().End
	require.EqualValues(t, 2, end)

	// In doubt nothing is taken but for topics that need no lease.
	doubt.Store(true)
	require.Equal(t, kerr.NotLeaderForPartition.Code, onePart(ask[*kmsg.ProduceResponse](w, produceReq(topic, 0, -1, records(1, "b")), 9)).ErrorCode)
	require.ErrorContains(t, w.refused(produceReq(topic, 0, 0, records(1, "b")), 9), "acks=0")
	require.Equal(t, end, p.Offsets().End)
	require.False(t, restsOnLease(&cluster.Topic{Config: cluster.TopicConfig{Durability: cluster.Object}}))

	// Coordinators say nothing either; when the doubt is over, they know what they knew.
	require.Equal(t, kerr.NotCoordinator.Code, commit(w, "g", "t", 0, 9))
	_, e := committed(w, 8, "g", "t", 0)
	require.Equal(t, kerr.NotCoordinator.Code, e)
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID = "g", "m"
	require.Equal(t, kerr.NotCoordinator.Code, ask[*kmsg.HeartbeatResponse](w, beat, 4).ErrorCode)
	doubt.Store(false)
	at, e := committed(w, 8, "g", "t", 0)
	require.Zero(t, e)
	require.EqualValues(t, 1, at)
	p.set(func() { p.manual = false })
	require.Zero(t, onePart(ask[*kmsg.ProduceResponse](w, produceReq(topic, 0, -1, records(1, "d")), 9)).ErrorCode)
}
