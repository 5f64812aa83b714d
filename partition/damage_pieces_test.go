package partition

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/segment"
)

// Damage to a partition's last batch makes it jump also when starts fail again and again behind a checkpoint that passes the damage.
func TestDamageSurvivesInterruptedRecovery(t *testing.T) {
	w := newCrashWorld(t)
	w.open()
	p, other := w.topic("t", nil), w.topic("other", nil)
	require.NoError(t, w.set.secure())
	for i := range int64(2) {
		produce(t, p, batch.None, []string{"v"}, []int64{i})
	}
	e, ok, err := p.firstEntry(1)
	require.NoError(t, err)
	require.True(t, ok)
	var acks []Ack
	for i := range int64(2 * recoveryPiece) {
		b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1})
		b.Add(i, nil, []byte("v"), nil)
		ack, err := other.Append(b.Bytes(), AppendOptions{Epoch: -1, Now: i})
		require.NoError(t, err)
		acks = append(acks, ack)
		if len(acks) == 512 {
			for i := range acks {
				require.NoError(t, acks[i].Durable(t.Context()))
			}
			acks = acks[:0]
		}
	}
	base, _, ok := w.set.log.FileBase(e.Position)
	require.True(t, ok)
	w.crash(t, 1, false)
	f, err := os.OpenFile(filepath.Join(w.dir, "log", fmt.Sprintf("%016x.log", base)), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("damage"), int64(e.Position-base)+int64(e.HeaderLen)+30)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	interrupted := 0
	for k := 1; ; k++ {
		reads := 0
		w.files.SetPlan(func(c segment.Call) error {
			if c.Op == "readat" {
				if reads++; reads == k {
					return errDisk
				}
			}
			return nil
		})
		_, err := w.tryOpen()
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errDisk)
		interrupted++
	}
	w.files.SetPlan(nil)
	require.Positive(t, interrupted)
	p = w.await(p.ID())
	r := produce(t, p, batch.None, []string{"new"}, []int64{3})
	require.GreaterOrEqual(t, r[0].offset, int64(firstCeiling), "offset 1 was acknowledged for another record")
	require.Equal(t, int64(2*recoveryPiece), w.await(other.ID()).Offsets().End)
	w.close()
}
