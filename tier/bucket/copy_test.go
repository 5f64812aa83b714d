package bucket_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// TestDirSizes puts objects of sizes around those at which Dir changes how it writes.
func TestDirSizes(t *testing.T) {
	d, err := bucket.OpenDir(t.TempDir())
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	const step, block = 512 << 10, 4 << 10
	for _, size := range []int{0, 1, block, step - 1, step, step + 1, step + block - 1, step + block, 3*step - 1, 3 * step, 3*step + block + 7} {
		b := make([]byte, size)
		rand.NewChaCha8([32]byte{byte(size), byte(size >> 8)}).Read(b)
		key := "o/" + strconv.Itoa(size)
		info, err := d.Put(t.Context(), bucket.Op{}, key, bucket.BytesBody(b), bucket.Condition{})
		require.NoError(t, err)
		require.EqualValues(t, size, info.Size)
		got, err := os.ReadFile(filepath.Join(d.Path(), key))
		require.NoError(t, err)
		require.Equal(t, b, got, "%d bytes", size)
	}
}
