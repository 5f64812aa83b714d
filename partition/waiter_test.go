package partition

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Consumers follow partitions through waiters while producers write and watches come and go. Nobody may miss a wake-up:
// each reads to the end without ever looking on its own.
func TestNoLostWakeUps(t *testing.T) {
	const parts, each, consumers = 3, 60, 4
	for seed := range uint64(3) {
		w := newWorld(t)
		w.open()
		var ps []*Partition
		for i := range parts {
			ps = append(ps, w.topic(fmt.Sprint("t", i), nil))
		}
		var wg sync.WaitGroup
		for i, p := range ps {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(i)))
				for range each {
					ack, err := tryAppend(p, oneRecord("v"))
					require.NoError(t, err)
					if rnd.IntN(8) == 0 {
						_, err := p.DeleteRecords(t.Context(), ack.BaseOffset)
						require.NoError(t, err)
					}
				}
			})
		}
		for c := range consumers {
			wg.Go(func() { follow(t, ps, each, rand.New(rand.NewPCG(seed, uint64(100+c)))) })
		}
		wg.Wait()
		for _, p := range ps {
			p.mu.Lock()
			require.Nil(t, p.watches)
			p.mu.Unlock()
		}
		w.close()
	}
}

// follow reads every partition up to end, as woken by a waiter.
func follow(t *testing.T, ps []*Partition, end int64, rnd *rand.Rand) {
	wt := NewWaiter()
	at := make([]int64, len(ps))
	for i, p := range ps {
		p.Watch(wt, int32(i), 0)
	}
	limit := time.After(30 * time.Second)
	for left := len(ps); left > 0; {
		select {
		case <-wt.C():
		case <-limit:
			t.Errorf("a wake-up is missing: %v", at)
			return
		}
		for _, i := range wt.Take(nil) {
			o := ps[i].Offsets()
			if at[i] < end && o.Durable >= end {
				left--
			}
			at[i] = o.Durable
			switch rnd.IntN(4) {
			case 0: // a new fetch: everything is watched again
				ps[i].Unwatch(wt)
				ps[i].Watch(wt, i, at[i])
			case 1:
				ps[i].Watch(wt, i, at[i])
			}
		}
	}
	for _, p := range ps {
		p.Unwatch(wt)
	}
}

// A partition that stops being served wakes who waits for it, also when the set closes.
func TestClosingWakes(t *testing.T) {
	w := newWorld(t)
	w.open()
	p := w.topic("t", nil)
	wt := NewWaiter()
	woken := func() []int32 {
		t.Helper()
		select {
		case <-wt.C():
		case <-time.After(20 * time.Second):
			t.Fatal("not woken")
		}
		return wt.Take(nil)
	}
	p.Watch(wt, 7, 0)
	w.state.startAt(p.ID(), 1)
	require.Equal(t, []int32{7}, woken())
	w.await(p.ID())
	for len(wt.C()) > 0 {
		<-wt.C()
		wt.Take(nil)
	}
	w.state.remove(p.ID())
	require.Equal(t, []int32{7}, woken())
	w.awaitGone(t, p.ID())
	other := w.topic("o", nil)
	wt = NewWaiter()
	other.Watch(wt, 1, 0)
	w.close()
	require.Equal(t, []int32{1}, woken())
	other.Watch(wt, 2, 0) // not served: reported at once
	require.Equal(t, []int32{2}, woken())
}
