package segment

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWritevInPieces writes vectors whose pieces lie across the limit of one system call in all ways.
func TestWritevInPieces(t *testing.T) {
	f, err := OSFS{}.Open(filepath.Join(t.TempDir(), "f"), true)
	require.NoError(t, err)
	for _, sizes := range [][]int{
		{0}, {1}, {maxWrite}, {maxWrite + 1}, {maxWrite - 1, 1}, {maxWrite - 1, 2}, {1, maxWrite, 1}, {100, 3*maxWrite + 7, 0, 100},
		{maxWrite, maxWrite, maxWrite}, {maxWrite / 2, maxWrite, maxWrite / 2, 9},
	} {
		var bufs [][]byte
		for i, n := range sizes {
			b := make([]byte, n)
			rand.NewChaCha8([32]byte{byte(i), byte(n)}).Read(b)
			bufs = append(bufs, b)
		}
		want := bytes.Join(bufs, nil)
		n, err := f.Writev(bufs, 512)
		require.NoError(t, err)
		require.Equal(t, len(want), n)
		got := make([]byte, len(want))
		_, err = f.ReadAt(got, 512)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%v", sizes)
	}
	require.NoError(t, f.Close())
}
