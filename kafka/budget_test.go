package kafka

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestBufferClasses(t *testing.T) {
	for n := 1; n <= 1<<maxClassBits; n += 1 + n/7 {
		for _, n := range []int{n - 1, n, n + 1} {
			class := classOf(n)
			if n > 1<<maxClassBits {
				require.Equal(t, -1, class)
				continue
			}
			require.GreaterOrEqual(t, classSize(class), n)
			if class > 0 {
				require.Less(t, classSize(class-1), n, "a smaller class holds %d bytes", n)
			}
		}
	}
	require.Equal(t, 1<<maxClassBits, classSize(classes-1))
	big := newBuffer(1<<maxClassBits + 1)
	require.Equal(t, -1, big.class)
	big.release()
	require.Panics(t, big.release)
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{max: 100}
		never := make(chan struct{})
		var first, second, third, fourth lease
		require.True(t, b.grow(&first, 80, never))
		require.True(t, b.grow(&second, 80, never), "one may pass the limit")
		require.True(t, b.grow(&second, 1000, never), "and go on")

		var granted atomic.Int32
		go func() { granted.Add(int32(map[bool]int{true: 1}[b.grow(&third, 10, never)])) }()
		synctest.Wait()
		stop := make(chan struct{})
		stopped := make(chan bool, 1)
		go func() { stopped <- b.grow(&fourth, 10, stop) }()
		synctest.Wait()
		require.Zero(t, granted.Load(), "a second one may not, however small")

		close(stop)
		require.False(t, <-stopped)
		first.release()
		synctest.Wait()
		require.Zero(t, granted.Load())
		second.release()
		synctest.Wait()
		require.Equal(t, int32(1), granted.Load())
		third.release()
		fourth.release()
		require.Zero(t, b.inUse())
	})
}

// A waiter that gives up must not leave those behind it waiting.
func TestBudgetWaiterGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &budget{max: 100}
		never, stop := make(chan struct{}), make(chan struct{})
		var over, holder, big, small lease
		require.True(t, b.grow(&holder, 50, never))
		require.True(t, b.grow(&over, 60, never)) // passes the limit
		holder.release()                          // 60 in use, the pass is taken
		results := make(chan bool, 2)
		go func() { results <- b.grow(&big, 70, stop) }()
		synctest.Wait()
		go func() { results <- b.grow(&small, 10, never) }()
		synctest.Wait()
		require.Empty(t, results)
		close(stop)
		synctest.Wait()
		require.Len(t, results, 2)
		for _, l := range []*lease{&over, &big, &small} {
			l.release()
		}
		require.Zero(t, b.inUse())
	})
}

// Leases that grow in steps, against each other, always all end.
func TestBudgetNeverDeadlocks(t *testing.T) {
	b := &budget{max: 1000}
	var wg sync.WaitGroup
	for seed := range uint64(16) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewPCG(seed, 1))
			for range 300 {
				var l, moved lease
				for range 1 + rng.IntN(4) {
					if !b.grow(&l, 1+rng.Int64N(900), nil) {
						t.Error("not granted")
					}
				}
				l.moveTo(&moved)
				l.release()
				moved.release()
			}
		}()
	}
	wg.Wait()
	require.Zero(t, b.inUse())
	require.Nil(t, b.over)
}
