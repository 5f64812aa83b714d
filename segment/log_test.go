package segment

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAppendAndReopen(t *testing.T) {
	dir := t.TempDir()
	var want []shown
	var last uint64
	for life := range 5 {
		l, rec, got := open(t, testOptions(t, dir), 0)
		require.Equal(t, want, got, "life %d", life)
		require.Empty(t, rec.Corrupt)
		require.Zero(t, rec.Torn)
		for i := range 20 {
			e := testEntry(int64(life*100+i), 100+life*3000+i*37, i%7 == 0)
			s := put(t, l, e)
			require.Greater(t, s.pos, last)
			last = s.pos
			want = append(want, s)
			ref, ok := l.Acquire(s.pos)
			require.True(t, ok)
			buf := make([]byte, s.size)
			require.NoError(t, ref.ReadAt(buf, s.pos+92))
			require.Equal(t, e.Payload, buf)
			m, err := ref.Map(s.pos+92, s.size)
			require.NoError(t, err)
			require.NoError(t, Guard(func() error { require.Equal(t, e.Payload, m); return nil }))
			require.True(t, ref.Recent(s.pos))
			ref.Release()
			ref.Release()
		}
		require.NoError(t, l.Close())
	}
	_, _, got := open2(t, testOptions(t, dir), want[50].pos)
	require.Equal(t, want[50:], got)
}

func open2(t *testing.T, o Options, from uint64) (*Log, Recovered, []shown) {
	l, rec, got := open(t, o, from)
	require.NoError(t, l.Close())
	return l, rec, got
}
