package partition

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An exact append gets the offset it names, or nothing is appended.
func TestExactAppend(t *testing.T) {
	w := newWorld(t)
	w.open()
	p := w.topic("t", nil)
	epoch := p.Offsets().Epoch
	exact := func(base int64) (Ack, error) {
		return p.Append(oneRecord("x"), AppendOptions{Epoch: epoch, Now: 1, Exact: true, Base: base})
	}
	_, err := exact(1)
	require.ErrorIs(t, err, ErrMoved)
	require.Zero(t, p.Offsets().End)
	ack, err := exact(0)
	require.NoError(t, err)
	require.NoError(t, ack.Durable(t.Context()))
	_, err = exact(0)
	require.ErrorIs(t, err, ErrMoved)
	require.EqualValues(t, 1, p.Offsets().End)
	_, err = p.Append(oneRecord("x"), AppendOptions{Epoch: epoch + 1, Now: 1, Exact: true, Base: 1})
	require.ErrorIs(t, err, ErrUnknownEpoch)
	ack, err = exact(1)
	require.NoError(t, err)
	require.EqualValues(t, 1, ack.BaseOffset)
	require.NoError(t, ack.Durable(t.Context()))
	w.close()
}
