package segment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
)

// The frames of one partition from an offset on, and no others, are in its quarantine file, as often as it is written.
func TestQuarantineKeepsOnePartition(t *testing.T) {
	l, _, err := Open(Options{Dir: t.TempDir(), FileBytes: 64 << 10}, 0, func(Frame) error { return nil })
	require.NoError(t, err)
	ids := []frame.PartitionID{{Topic: frame.TopicID{1}}, {Topic: frame.TopicID{1}, Partition: 1}}
	payload := func(offset int64) []byte {
		b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1})
		b.Add(1, nil, []byte("value"), nil)
		out := append([]byte(nil), b.Bytes()...)
		batch.Stamp(out, offset, 0)
		return out
	}
	for o := range int64(10) {
		for _, id := range ids {
			p := payload(o)
			pos, gen, err := l.Enqueue(&Entry{Sync: true, Payload: p, Header: frame.Header{Type: frame.Data, ID: id, BaseOffset: o, RecordCount: 1, PayloadLen: uint32(len(p))}})
			require.NoError(t, err)
			require.NoError(t, l.Written(pos, gen))
		}
	}
	base := l.Files()[0].Base
	none, err := l.Quarantine(base, frame.PartitionID{Topic: frame.TopicID{9}}, 0)
	require.NoError(t, err)
	require.Zero(t, none)
	for range 2 {
		n, err := l.Quarantine(base, ids[1], 4)
		require.NoError(t, err)
		require.Equal(t, 6, n)
	}
	files, err := l.Quarantined()
	require.NoError(t, err)
	require.Len(t, files, 1)
	next := int64(4)
	require.NoError(t, ReadQuarantine(OSFS{}, files[0].Path, func(f Frame, bad error) error {
		require.NoError(t, bad)
		require.Equal(t, ids[1], f.ID)
		require.Equal(t, next, f.BaseOffset)
		require.Equal(t, payload(next), f.Payload)
		next++
		return nil
	}))
	require.EqualValues(t, 10, next)
	require.NoError(t, l.Close())
}
