package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/kafka"
)

// handle answers a body as a connection would, without the network.
func (n *node) handle(tb testing.TB, key, version int16, body []byte) {
	r := n.b.Handle(n.ctx, &kafka.Request{Key: key, Version: version, Body: body, Received: time.Now()}).Wait(n.ctx)
	if r.Close != nil {
		tb.Fatal(r.Close)
	}
	if r.Release != nil {
		r.Release()
	}
}

func (n *node) benchTopic(tb testing.TB, name string, partitions int32) *cluster.Topic {
	_, err := n.client.CreateTopic(n.ctx, cluster.TopicSpec{Name: name, Partitions: partitions, Configs: map[string]string{"tierbroker.durability": "async", "segment.bytes": "2000000000"}})
	require.NoError(tb, err)
	for i := range partitions {
		n.part(name, i)
	}
	return n.client.Image().TopicByName(name)
}

// BenchmarkProduce is one Produce request with one batch, from the decoded frame to the answer: validation, append to
// the commit log's page cache, response.
func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 512 << 10} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			n := startNode(b)
			topic := n.benchTopic(b, "t", 1)
			req := produceReq(topic, 0, 1, records(time.Now().UnixMilli(), string(make([]byte, size))))
			req.SetVersion(12)
			fresh := req.AppendTo(nil)
			body := make([]byte, len(fresh))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				copy(body, fresh) // the broker stamps the batch in place
				n.handle(b, 0, 12, body)
			}
		})
	}
}

// BenchmarkFetchHot is one Fetch request of 1 MiB from the local log, without the socket.
func BenchmarkFetchHot(b *testing.B) {
	n := startNode(b)
	topic := n.benchTopic(b, "t", 1)
	var body []byte
	for range 64 {
		req := produceReq(topic, 0, -1, records(time.Now().UnixMilli(), string(make([]byte, 64<<10))))
		req.SetVersion(12)
		body = req.AppendTo(body[:0])
		n.handle(b, 0, 12, body)
	}
	req := fetchReq(topic, at{0, 0})
	req.SetVersion(12)
	body = req.AppendTo(body[:0])
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		n.handle(b, 1, 12, body)
	}
}

// BenchmarkFetchSession is one incremental fetch of a session with many partitions of which one has changed.
func BenchmarkFetchSession(b *testing.B) {
	for _, parts := range []int32{10, 10_000} {
		b.Run(fmt.Sprint(parts, "partitions"), func(b *testing.B) {
			w := newWorld(b)
			topic := w.topic("t", parts)
			ats := make([]at, parts)
			for i := range ats {
				ats[i].part = int32(i)
			}
			p := w.part(topic, parts/2)
			id := ask[*kmsg.FetchResponse](w, sessionReq(topic, 0, 0, ats...), 13).SessionID
			req := sessionReq(topic, id, 0, at{parts / 2, 0})
			req.SetVersion(13)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				p.set(func() { p.start++; p.durable++; p.next++ })
				req.SessionEpoch = int32(i + 1)
				req.Topics[0].Partitions[0].FetchOffset = int64(i + 1)
				r := w.start(req, 13).Wait(w.ctx)
				r.Release()
			}
			b.StopTimer()
			require.EqualValues(b, b.N, p.Offsets().Durable)
		})
	}
}
