package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// tb is what testing.TB and rapid.T have in common.
type tb interface {
	require.TestingT
	Helper()
	Logf(string, ...any)
	Fatalf(string, ...any)
}

// modelEntry is one frame that the log has accepted.
type modelEntry struct {
	shown
	gen     uint64
	written bool // Written said so
	durable bool // the watermarks said so
	lost    bool // the log said so, and was reopened since
}

// world is a log over a fault layer, and a slice that says what it must hold.
type world struct {
	t       tb
	fs      *FaultFS
	o       Options
	l       *Log
	entries []modelEntry
	from    uint64 // nothing below it is needed any more
	base    int64
}

func newWorld(t tb, dir string) *world {
	fs := NewFaultFS(OSFS{}, nil)
	return &world{t: t, fs: fs, o: Options{
		Dir: dir, FileBytes: 32 << 10, SyncInterval: time.Hour, RetryInterval: time.Millisecond, FS: fs,
	}}
}

// open opens the log and compares what it shows with the slice. power says that the
// machine lost its power before.
func (w *world) open(power bool) error {
	w.t.Helper()
	var got []shown
	l, rec, err := Open(w.o, w.from, func(f Frame) error {
		got = append(got, show(&f.Header, f.Payload))
		return nil
	})
	if err != nil {
		return err
	}
	w.l = l
	require.Empty(w.t, rec.Corrupt, "corruption: %+v", rec)
	var rest []modelEntry
	i := 0
	for k, e := range w.entries {
		if e.pos < w.from {
			continue
		}
		// The base tells entries apart: the position of one that was never synced may
		// be used again after a power loss.
		if i < len(got) && got[i].base == e.base {
			require.Equal(w.t, e.shown, got[i])
			require.False(w.t, e.lost, "entry %d at %d was lost, and came back", k, e.pos)
			e.written, e.durable = true, true
			rest = append(rest, e)
			i++
			continue
		}
		must := e.durable || e.written && !power
		require.False(w.t, must && !e.lost, "entry %d at %d of %d is missing (from %d, %+v, shown %d to %v); written %v, durable %v, power loss %v",
			k, e.pos, len(w.entries), w.from, rec, len(got), last(got), e.written, e.durable, power)
		// What is missing once must be missing for ever.
		e.lost = true
		rest = append(rest, e)
	}
	require.Equal(w.t, len(got), i, "the log shows %d unknown frames", len(got)-i)
	w.entries = rest
	return nil
}

// enqueue appends n frames and waits for the last one to be written, then for all.
func (w *world) enqueue(n, size int, sync bool) error {
	first := len(w.entries)
	var failed error
	for range n {
		e := testEntry(w.base, size, sync)
		w.base++
		_, gen, err := w.l.Enqueue(e)
		if err != nil {
			failed = err
			break
		}
		w.entries = append(w.entries, modelEntry{shown: show(&e.Header, e.Payload), gen: gen})
	}
	for i := len(w.entries) - 1; i >= first; i-- {
		e := &w.entries[i]
		err := w.l.Written(e.pos, e.gen)
		if e.written = err == nil; err == nil && sync {
			err = waitSynced(w.l, e.pos, e.gen)
			e.durable = err == nil
		}
		if err != nil {
			failed = err
		}
	}
	return failed
}

func (w *world) sync() error {
	n := len(w.entries)
	if err := w.l.Sync(context.Background()); err != nil {
		return err
	}
	for i := range w.entries[:n] {
		w.entries[i].durable = w.entries[i].durable || !w.entries[i].lost
	}
	return nil
}

func (w *world) drop() error {
	fs := w.l.Files()
	if len(fs) < 2 || fs[0].End > w.l.Watermarks().Synced {
		return nil
	}
	w.from = max(w.from, fs[0].End)
	return w.l.Drop(fs[0].Base)
}

// settle follows a failure: what the log calls lost is lost once it is reopened.
func (w *world) settle() error {
	var lost []int
	for i := range w.entries {
		e := &w.entries[i]
		if !e.lost && w.l.Lost(e.pos) != nil {
			require.False(w.t, e.durable, "entry at %d was durable, and is lost", e.pos)
			e.written = false
			lost = append(lost, i)
		}
	}
	if err := w.l.Reopen(); err != nil {
		return err
	}
	for _, i := range lost {
		w.entries[i].lost = true
	}
	return nil
}

// script is a fixed walk over everything the log does. It stops at a crash; after other
// failures it reopens.
func (w *world) script(power bool) error {
	steps := []func() error{
		func() error { return w.open(power) },
		func() error { return w.enqueue(3, 500, false) },
		func() error { return w.enqueue(2, 700, true) },
		func() error { return w.enqueue(20, 3000, false) },
		w.sync,
		w.drop,
		func() error { return w.enqueue(1, 20000, true) },
		func() error { return w.enqueue(12, 5000, false) },
		w.drop,
		func() error { return w.enqueue(2, 5000, true) },
		w.close,
		func() error { return w.open(false) },
		func() error { return w.enqueue(2, 1000, false) },
		w.close,
	}
	for _, step := range steps {
		err := step()
		for deadline := time.Now().Add(10 * time.Second); err != nil && !w.fs.Crashed(); err = step() {
			if time.Now().After(deadline) {
				return err
			}
			if w.l != nil && errors.Is(err, ErrPoisoned) {
				_ = w.settle() // what fails is tried again
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) close() error {
	if w.l == nil {
		return nil
	}
	l := w.l
	w.l = nil
	// Only synced data is durable: Close tells, unless it fails.
	n := len(w.entries)
	poisoned := l.Watermarks().Err != nil
	for i := range w.entries {
		if poisoned && l.Lost(w.entries[i].pos) != nil {
			w.entries[i].written = false
		}
	}
	if err := l.Close(); err != nil {
		for i := range w.entries {
			w.entries[i].written = w.entries[i].written && l.Lost(w.entries[i].pos) == nil
		}
		return nil
	}
	for i := range w.entries[:n] {
		w.entries[i].durable = w.entries[i].durable || w.entries[i].written && !w.entries[i].lost && !poisoned
	}
	return nil
}

// scriptCalls is how many calls the script makes without faults.
func scriptCalls(t *testing.T) int {
	w := newWorld(t, t.TempDir())
	require.NoError(t, w.script(false))
	return w.fs.Calls()
}

func TestCrashAtEveryCall(t *testing.T) {
	calls := scriptCalls(t)
	t.Logf("%d calls", calls)
	for _, crash := range []error{ErrCrash, ErrCrashBefore} {
		for k := 1; k <= calls; k++ {
			for _, power := range []bool{false, true} {
				ok := t.Run(fmt.Sprintf("%v/%d/power=%v", crash == ErrCrash, k, power), func(t *testing.T) {
					w := newWorld(t, t.TempDir())
					w.fs.SetPlan(FailAt(k, crash))
					_ = w.script(false) // how far it came is in w
					require.NoError(t, w.close())
					var rnd *rand.Rand
					if power {
						rnd = rand.New(rand.NewSource(int64(k)))
					}
					require.NoError(t, w.fs.Restart(rnd, nil))
					require.NoError(t, w.script(power))
				})
				if !ok {
					return
				}
			}
		}
	}
}

func TestFailureAtEveryCall(t *testing.T) {
	calls := scriptCalls(t)
	for _, fault := range []error{syscall.EIO, syscall.ENOSPC, io.ErrShortWrite} {
		for k := 1; k <= calls; k++ {
			ok := t.Run(fmt.Sprintf("%v/%d", fault, k), func(t *testing.T) {
				w := newWorld(t, t.TempDir())
				w.fs.SetPlan(FailAt(k, fault))
				require.NoError(t, w.script(false))
				require.NoError(t, w.fs.Restart(rand.New(rand.NewSource(int64(k))), nil))
				require.NoError(t, w.script(true))
			})
			if !ok {
				return
			}
		}
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, t.TempDir())
		require.NoError(rt, w.open(false))
		defer func() { _ = w.close() }()
		faulty := rapid.Bool().Draw(rt, "faulty")
		rnd := rand.New(rand.NewSource(rapid.Int64().Draw(rt, "seed")))
		plan := func(Call) error {
			switch n := rnd.Intn(400); {
			case !faulty || n > 4:
				return nil
			case n == 0:
				return ErrCrash
			case n == 1:
				return ErrCrashBefore
			case n == 2:
				return syscall.EIO
			case n == 3:
				return syscall.ENOSPC
			default:
				return io.ErrShortWrite
			}
		}
		w.fs.SetPlan(plan)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			var err error
			switch rapid.SampledFrom([]string{"one", "one", "many", "many", "sync", "drop", "reopen", "crash", "power"}).Draw(rt, "op") {
			case "one":
				err = w.enqueue(1, rapid.IntRange(61, 9000).Draw(rt, "size"), rapid.Bool().Draw(rt, "sync"))
			case "many":
				err = w.enqueue(rapid.IntRange(1, 30).Draw(rt, "n"), rapid.IntRange(61, 3000).Draw(rt, "size"), rapid.Bool().Draw(rt, "sync"))
			case "sync":
				err = w.sync()
			case "drop":
				err = w.drop()
			case "reopen":
				require.NoError(rt, w.close())
				err = w.open(false)
			case "crash":
				w.fs.SetPlan(FailAt(1, ErrCrashBefore))
				_ = w.fs.MkdirAll(w.o.Dir)
			case "power":
				w.fs.SetPlan(FailAt(1, ErrCrashBefore))
				_ = w.fs.MkdirAll(w.o.Dir)
				require.NoError(rt, w.close())
				require.NoError(rt, w.fs.Restart(rnd, nil))
				require.NoError(rt, w.open(true))
				w.fs.SetPlan(plan)
			}
			for try := 0; w.l == nil || w.fs.Crashed() || errors.Is(err, ErrPoisoned); try++ {
				if w.fs.Crashed() || w.l == nil {
					require.NoError(rt, w.close())
					require.NoError(rt, w.fs.Restart(nil, nil))
					err = w.open(false)
					w.fs.SetPlan(plan)
					require.NoError(rt, err)
					continue
				}
				err = w.settle()
			}
		}
	})
}

func last(s []shown) any {
	if len(s) == 0 {
		return nil
	}
	return s[len(s)-1].pos
}
