package journal

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/partition"
)

func TestDurableBeforeAnswered(t *testing.T) {
	r := newRig(t)
	r.open()
	r.await()
	r.log.set(func() { r.log.hold = true })
	put, err := r.put("a", 1)
	require.NoError(t, err)
	get, err := r.get("a")
	require.NoError(t, err)
	select {
	case <-put:
		t.Fatal("answered before it was durable")
	case n := <-get:
		t.Fatalf("read %d, which a crash could take back", n)
	case <-time.After(20 * time.Millisecond):
	}
	require.Equal(t, map[string]int{"a": 1}, r.state(), "applied at append")
	r.log.set(func() { r.log.hold = false })
	require.NoError(t, <-put)
	require.Equal(t, 1, <-get)
}

func TestRepliesInOrder(t *testing.T) {
	r := newRig(t)
	r.open()
	r.await()
	r.log.set(func() { r.log.hold = true })
	var order []int
	done := make(chan struct{})
	for i := range 100 {
		require.NoError(t, r.j.Do(0, func(m *mach, _ time.Time) Step {
			f := func(err error) {
				require.NoError(t, err)
				if order = append(order, i); len(order) == 100 {
					close(done)
				}
			}
			if i%3 == 0 {
				return Step{Done: f}
			}
			return m.put(fmt.Sprint(i), i, f)
		}))
	}
	r.log.set(func() { r.log.hold = false })
	<-done
	for i, n := range order {
		require.Equal(t, i, n)
	}
}

func TestLostWriteThrowsTheMachineAway(t *testing.T) {
	r := newRig(t)
	r.open()
	r.mustPut("a", 1)
	r.log.set(func() { r.log.hold = true })
	a, err := r.put("a", 2)
	require.NoError(t, err)
	get, err := r.get("a")
	require.NoError(t, err)
	b, err := r.put("b", 3)
	require.NoError(t, err)
	r.log.lose()
	require.ErrorIs(t, <-a, ErrNotCoordinator)
	require.Equal(t, -1, <-get)
	require.ErrorIs(t, <-b, ErrNotCoordinator)
	r.await()
	require.Equal(t, map[string]int{"a": 1}, r.state())
	r.mustPut("a", 5)
	require.Equal(t, map[string]int{"a": 5}, r.log.fold(t, true))
}

// An append that comes after the loss but before anybody has noticed lands where the lost one was.
func TestAppendBehindALoss(t *testing.T) {
	r := newRig(t)
	r.open()
	r.mustPut("a", 1)
	var first, second <-chan error
	var err error
	r.log.set(func() { r.log.hold = true })
	first, err = r.put("a", 2)
	require.NoError(t, err)
	r.log.set(func() { r.log.batches = r.log.batches[:r.log.durable] }) // the loss isn't told yet
	second, err = r.put("b", 2)
	require.NoError(t, err)
	r.log.set(func() { r.log.lost[1] = errDisk; r.log.hold = false })
	require.ErrorIs(t, <-second, ErrNotCoordinator)
	require.ErrorIs(t, <-first, ErrNotCoordinator)
	r.log.set(func() { clear(r.log.lost) })
	r.await()
	require.Equal(t, r.log.fold(t, true), r.state())
}

func TestOwnershipLostInTheMiddleOfAWrite(t *testing.T) {
	r := newRig(t)
	r.open()
	r.mustPut("a", 1)
	r.log.set(func() { r.log.hold = true })
	a, err := r.put("a", 2)
	require.NoError(t, err)
	r.log.set(func() { r.log.writing = false })
	_, err = r.put("a", 3)
	require.ErrorIs(t, err, ErrNotCoordinator)
	r.log.set(func() { r.log.hold = false }) // it is durable all the same, in our epoch
	require.NoError(t, <-a)
	_, err = r.get("a")
	require.ErrorIs(t, err, ErrNotCoordinator)
	// Somebody else wrote meanwhile; we come back under a higher epoch.
	r.log.crash(0)
	r.j.Sync()
	r.await()
	require.Equal(t, map[string]int{"a": 2}, r.state())
	require.Equal(t, 1, r.count(Lost))
}

func TestOwnershipLostWhileIdle(t *testing.T) {
	r := newRig(t)
	r.open()
	r.mustPut("a", 1)
	var m *mach
	require.NoError(t, r.j.Look(0, func(x *mach) { m = x }))
	r.log.set(func() { r.log.epoch = 7 })
	r.j.Sync()
	r.eventually(func() bool { return r.count(Lost) == 1 })
	require.ErrorIs(t, m.discarded, ErrNotCoordinator)
	r.await()
	r.mustPut("a", 2)
}

func TestNotHere(t *testing.T) {
	r := newRig(t)
	r.gone = true
	r.open()
	_, err := r.put("a", 1)
	require.ErrorIs(t, err, ErrNotCoordinator)
	require.ErrorIs(t, r.j.Do(1, nil), ErrNoShard)
	require.ErrorIs(t, r.j.Do(-1, nil), ErrNoShard)
	r.j.Close()
	_, err = r.put("a", 1)
	require.ErrorIs(t, err, ErrClosed)
}

func TestRefusedAppendsWait(t *testing.T) {
	r := newRig(t)
	r.tune = func(o *Options[*mach]) { o.MaxHeldBytes = 400 }
	r.open()
	r.mustPut("a", 1)
	r.log.set(func() { r.log.refuse = errDisk })
	var waiting []<-chan error
	var err error
	for i := 0; err == nil; i++ {
		require.Less(t, i, 100)
		var c <-chan error
		if c, err = r.put("a", 2+i); err == nil {
			waiting = append(waiting, c)
		}
	}
	require.ErrorIs(t, err, ErrOverloaded)
	require.Greater(t, len(waiting), 2)
	r.log.set(func() { r.log.refuse = nil })
	for _, c := range waiting {
		require.NoError(t, <-c)
	}
	require.Equal(t, map[string]int{"a": 1 + len(waiting)}, r.log.fold(t, true))
	require.Zero(t, r.count(Lost))
}

func TestCloseAnswersEverybody(t *testing.T) {
	r := newRig(t)
	r.open()
	r.mustPut("a", 1)
	r.log.set(func() { r.log.hold = true })
	a, err := r.put("a", 2)
	require.NoError(t, err)
	r.j.Close()
	require.ErrorIs(t, <-a, ErrClosed)
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.open()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, r.j.Do(0, func(m *mach, now time.Time) Step { m.deadline = now.Add(5 * time.Second); return Step{} }))
		require.NoError(t, r.j.Do(0, func(m *mach, now time.Time) Step { m.deadline = now.Add(3 * time.Second); return Step{} }))
		for r.state()["expired"] == 0 {
			<-time.After(100 * time.Millisecond)
			synctest.Wait()
		}
		require.InDelta(t, 3.0, time.Since(began).Seconds(), 0.2)
		// A long one goes off too, and not before.
		require.NoError(t, r.j.Do(0, func(m *mach, now time.Time) Step { m.deadline = now.Add(5 * time.Hour); return Step{} }))
		<-time.After(5*time.Hour - time.Minute)
		synctest.Wait()
		require.Equal(t, 1, r.state()["expired"])
		<-time.After(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, 2, r.state()["expired"])
		r.j.Close()
	})
}

// What is durable is there after a crash, whatever else of the log survived, and what was acknowledged is durable.
func TestCrashes(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t)
		r.tune = func(o *Options[*mach]) { o.SnapshotBytes = 600 }
		r.open()
		r.await()
		acked := map[string]int{}
		n := 0
		for range 12 {
			r.log.set(func() { r.log.hold = false })
			type try struct {
				k string
				n int
				c <-chan error
			}
			var open []try
			holdAt := rnd.IntN(20)
			for i := range 20 {
				if i == holdAt {
					// Everything before it has an outcome; what follows is at the mercy of the crash.
					for _, x := range open {
						if <-x.c == nil {
							acked[x.k] = x.n
						}
					}
					open = nil
					r.log.set(func() { r.log.hold = true })
				}
				n++
				k := fmt.Sprint("k", rnd.IntN(8))
				if c, err := r.put(k, n); err == nil {
					open = append(open, try{k, n, c})
				}
			}
			if rnd.IntN(2) == 0 {
				r.log.lose()
				r.await()
			}
			r.reopen(rnd.IntN(6))
			require.Equal(t, r.log.fold(t, true), r.state(), "seed %d", seed)
			for k, v := range acked {
				require.GreaterOrEqual(t, r.state()[k], v, "seed %d: %s", seed, k)
			}
		}
		require.Positive(t, r.count(Snapshot), "seed %d", seed)
		require.Zero(t, r.count(Damaged), "seed %d", seed)
		r.j.Close()
	}
}

var errCrash = errors.New("the process ends here")

// A crash at each append of a snapshot, with and without the batch, and before and after the removal of what it replaces.
func TestCrashAtEveryStepOfASnapshot(t *testing.T) {
	for step := 1; ; step++ {
		r := newRig(t)
		r.tune = func(o *Options[*mach]) { o.SnapshotBytes = 1 << 40 }
		r.open()
		r.await()
		for i := range 3000 {
			c, err := r.put(fmt.Sprint("key-", i%2000), i)
			require.NoError(t, err)
			if i%100 == 99 {
				require.NoError(t, <-c)
			}
		}
		want := r.state()
		r.j.Close()
		crashed := make(chan struct{})
		trimmed := step%2 == 0
		r.log.set(func() {
			r.log.appends = 0
			r.log.onAppend = func(n int) error {
				if n < (step+1)/2 {
					return nil
				}
				if n == (step+1)/2 {
					close(crashed)
				}
				return fmt.Errorf("%w: %w", partition.ErrNotOwner, errCrash)
			}
			r.log.deleteAt = func(int64) error {
				if trimmed {
					return nil
				}
				return errCrash
			}
		})
		r.tune = func(o *Options[*mach]) { o.SnapshotBytes = 1000 }
		r.open()
		whole := false
		r.eventually(func() bool {
			select {
			case <-crashed:
				return true
			default:
				whole = r.count(Snapshot) > 0
				return whole
			}
		})
		r.tune = func(o *Options[*mach]) { o.SnapshotBytes = 1 << 40 }
		r.reopen(0)
		require.Equal(t, want, r.state(), "step %d", step)
		require.Equal(t, want, r.log.fold(t, true), "step %d", step)
		require.Zero(t, r.count(Damaged))
		r.mustPut("more", 1)
		r.reopen(0)
		want = maps.Clone(want)
		want["more"] = 1
		require.Equal(t, want, r.state(), "step %d", step)
		r.j.Close()
		if whole && trimmed {
			require.Positive(t, r.log.start)
			return
		}
		require.Less(t, step, 40)
	}
}
