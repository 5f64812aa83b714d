package segment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestChanged: who waits for stable storage isn't woken by writes, and by nothing else less than who waits for all.
func TestChanged(t *testing.T) {
	l, _, err := Open(Options{Dir: t.TempDir(), FileBytes: 64 << 10, SyncInterval: time.Hour}, 0, nil)
	require.NoError(t, err)
	seen := l.Watermarks()
	now, all := l.Changed(seen, true)
	require.Equal(t, seen, now)
	_, stable := l.Changed(seen, false)
	require.False(t, ready(all) || ready(stable))

	pos, gen, err := l.Enqueue(testEntry(1, 100, false))
	require.NoError(t, err)
	require.NoError(t, l.Written(pos, gen))
	require.True(t, ready(all))
	require.False(t, ready(stable))
	now, c := l.Changed(seen, true)
	require.Nil(t, c)
	require.Greater(t, now.Written, seen.Written)
	now, c = l.Changed(seen, false)
	require.NotNil(t, c)
	require.Greater(t, now.Written, seen.Written)

	require.NoError(t, l.Sync(t.Context()))
	require.True(t, ready(stable) && ready(c))
	now, c = l.Changed(seen, false)
	require.Nil(t, c)
	require.Equal(t, now.Written, now.Synced)
	require.NoError(t, l.Close())
}

func ready(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
