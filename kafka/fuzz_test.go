package kafka

import (
	"bytes"
	"testing"

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
