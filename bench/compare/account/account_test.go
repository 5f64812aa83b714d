package account

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAccountOfThisProcess(t *testing.T) {
	self := []int{os.Getpid()}
	begin, err := Take(self)
	require.NoError(t, err)
	require.Positive(t, begin.Anonymous)
	require.GreaterOrEqual(t, begin.Peak, begin.Anonymous)

	watch := WatchAnonymous(func() []int { return self })
	block := make([]byte, 64<<20)
	for spent := time.Duration(0); spent < 300*time.Millisecond; {
		for i := 0; i < len(block); i += 512 {
			block[i]++
		}
		now, err := Take(self)
		require.NoError(t, err)
		spent = now.Since(begin).CPU()
	}
	peak, err := watch.Stop()
	require.NoError(t, err)
	require.Greater(t, peak, begin.Anonymous+int64(len(block))/2, "the block is seen")

	both, err := Take([]int{self[0], self[0]})
	require.NoError(t, err)
	require.Greater(t, both.Anonymous, int64(2*len(block))-2*(8<<20), "accounts add up")
	require.NotZero(t, block[0])
}

func TestAccountOfNobody(t *testing.T) {
	_, err := Take(nil)
	require.Error(t, err)
	_, err = Take([]int{1 << 30})
	require.Error(t, err)
}

func TestResetPeak(t *testing.T) {
	self := []int{os.Getpid()}
	require.NoError(t, ResetPeak(self))
	a, err := Take(self)
	require.NoError(t, err)
	// The mark is at what is resident now, give or take what has been touched since.
	require.Less(t, a.Peak-a.Anonymous-a.File, int64(32<<20))
}
