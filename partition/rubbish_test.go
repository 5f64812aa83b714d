package partition

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
)

// A batch whose compressed records nobody can decode is stored and handed out like any other (its checksum is right), and lookups
// by time pass over it, hot and cold.
func TestLookupsPassOverRubbish(t *testing.T) {
	w := newWorld(t)
	w.open()
	p := w.topic("t", nil)
	first := produce(t, p, batch.None, []string{"a"}, []int64{100})
	b := batch.NewBuilder(batch.LZ4, batch.BuilderOptions{ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1})
	b.Add(500, nil, []byte("rubbish"), nil)
	raw := append([]byte(nil), b.Bytes()...)
	for i := batch.HeaderLen; i < len(raw); i++ {
		raw[i] = 0xEE
	}
	binary.BigEndian.PutUint32(raw[17:], batch.CRC(raw))
	appendBatch(t, p, raw)
	last := produce(t, p, batch.None, []string{"b"}, []int64{200})
	check := func() {
		t.Helper()
		got, err := p.OffsetForTime(t.Context(), 150)
		require.NoError(t, err)
		require.Equal(t, last[0].offset, got.Offset)
		got, err = p.OffsetForTime(t.Context(), 50)
		require.NoError(t, err)
		require.Equal(t, first[0].offset, got.Offset)
		got, err = p.OffsetForTime(t.Context(), 300)
		require.NoError(t, err)
		require.False(t, got.Found)
		got, err = p.MaxTimestamp(t.Context())
		require.NoError(t, err)
		require.Equal(t, last[0].offset, got.Offset)
	}
	check()
	require.NoError(t, p.Roll(t.Context()))
	require.NoError(t, p.Evict(t.Context()))
	check()
	w.close()
}
