package kafka

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What our decoder accepts, kmsg accepts, with the same values. (Not the other way round: we
// refuse nulls where Kafka's schema has none.)

func FuzzDecodeProduce(f *testing.F) {
	for v := int16(ProduceMinVersion); v <= ProduceMaxVersion; v++ {
		f.Add(v, sampleProduce(v, 2, 2, 20))
		f.Add(v, sampleProduce(v, 0, 0, 0))
	}
	var reused ProduceRequest
	f.Fuzz(func(t *testing.T, v int16, body []byte) {
		if DecodeProduce(v, body, &reused) != nil {
			return
		}
		k := kmsg.NewPtrProduceRequest()
		k.Version = v
		require.NoError(t, k.ReadFrom(body))
		requireSameProduce(t, k, &reused)
	})
}

func FuzzDecodeFetch(f *testing.F) {
	for v := int16(FetchMinVersion); v <= FetchMaxVersion; v++ {
		f.Add(v, sampleFetch(v, 2, 2))
		f.Add(v, sampleFetch(v, 0, 0))
	}
	var reused FetchRequest
	f.Fuzz(func(t *testing.T, v int16, body []byte) {
		if DecodeFetch(v, body, &reused) != nil {
			return
		}
		k := kmsg.NewPtrFetchRequest()
		k.Version = v
		if k.ReadFrom(body) != nil {
			return // kmsg demands that known tagged fields are of a version's size
		}
		if v < 18 || k.ReplicaState.UnknownTags.Len() > 0 {
			return // kmsg also takes tagged fields that the version does not have
		}
		requireSameFetch(t, k, &reused)
	})
}

func FuzzParseHeader(f *testing.F) {
	format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("fuzz"))
	for _, r := range []kmsg.Request{
		&kmsg.ProduceRequest{Version: 3}, &kmsg.ProduceRequest{Version: 13}, &kmsg.FetchRequest{Version: 12},
		&kmsg.ApiVersionsRequest{Version: 0}, &kmsg.ApiVersionsRequest{Version: 3}, &kmsg.ControlledShutdownRequest{},
	} {
		f.Add(format.AppendRequest(nil, r, 7)[4:])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, err := parseHeader(frame)
		if err != nil {
			return
		}
		require.True(t, Known(h.key))
		require.True(t, bytes.HasSuffix(frame, h.body))
	})
}

// FuzzConnection sends arbitrary bytes to a server and closes its side: the server must close
// the connection, with at most one event, and give back all it held.
func FuzzConnection(f *testing.F) {
	two := append(frame(1, []byte("one")), frame(2, []byte("two"))...)
	for _, seed := range [][]byte{
		two, two[:len(two)-1], append(two, 0xff, 0, 0, 0), []byte("GET / HTTP/1.1\r\n\r\n"), {0x16, 3, 1, 2, 0},
		rawFrame(18, 3, 1, "x", nil), rawFrame(0, 9, 1, "x", sampleProduce(9, 1, 1, 10)), frame(3, make([]byte, 2000)),
	} {
		f.Add(seed)
	}
	events := make(chan Event, 100)
	s, err := NewServer(Options{
		Listeners: []Listener{{Addr: "127.0.0.1:0"}}, Handler: echo, MaxRequestBytes: 1 << 20,
		OnEvent: func(e Event) { events <- e },
	})
	require.NoError(f, err)
	s.Start()
	f.Cleanup(func() { require.NoError(f, s.Shutdown(context.Background())) })
	f.Fuzz(func(t *testing.T, data []byte) {
		nc, err := net.Dial("tcp", s.Addrs()[0].String())
		require.NoError(t, err)
		defer nc.Close()
		require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
		nc.Write(data)                   //nolint:errcheck // the server may have closed already
		nc.(*net.TCPConn).CloseWrite()   //nolint:errcheck // the same
		_, err = io.Copy(io.Discard, nc) // until it is closed
		var ne net.Error
		require.False(t, asNetError(err, &ne) && ne.Timeout(), "the server did not close the connection")
		eventually(t, func() bool { st := s.Stats(); return st.Conns == 0 && st.InflightBytes == 0 })
		require.LessOrEqual(t, len(events), 1)
		for len(events) > 0 {
			<-events
		}
	})
}
