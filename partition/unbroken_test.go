package partition

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/index"
)

// A hot answer never skips what was evicted while it was put together.
func TestUnbroken(t *testing.T) {
	list := []index.Entry{{Base: 3, Last: 5}, {Base: 6, Last: 6}, {Base: 81, Last: 90}}
	require.Equal(t, list[:2], unbroken(list))
	require.Equal(t, list[:2], unbroken(list[:2]))
	require.Empty(t, unbroken(nil))
}
