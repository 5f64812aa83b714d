package wal

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

var (
	errDown      = fmt.Errorf("planned: %w", bucket.ErrUnavailable)
	errCondition = fmt.Errorf("planned: %w", bucket.ErrPrecondition)
)

// life is a stream from its opening to the sweep of all it had, in the hands of a writer, a successor who takes it over while the writer
// still believes in itself, and a sweeper; each repeats what failed. After a crash of the writer the successor comes at once.
type life struct {
	t     *testing.T
	mem   *bucket.Memory
	f     *bucket.Fault
	c     context.Context
	stop  context.CancelFunc
	w     *Writer
	model []one // what was given to the stream, a batch for each number from 1 on
	acked int   // of them
}

func newLife(t *testing.T, plan bucket.Plan) *life {
	l := &life{t: t, mem: bucket.NewMemory()}
	l.c, l.stop = context.WithCancel(context.Background())
	l.f = bucket.NewFault(l.mem, plan)
	return l
}

// crashed ends the writer as a crash of its process does.
func (l *life) crashed() bool {
	if !l.f.Crashed() {
		return false
	}
	l.stop()
	if l.w != nil {
		l.w.stop()
	}
	return true
}

func (l *life) write() {
	// A dead process doesn't wait for answers.
	b := bucket.NewTrace(l.f, func(string) { l.crashed() })
	o := options(b)
	o.CombineEvery = 4
	w, err := Open(l.c, o)
	if l.crashed() {
		return
	}
	require.NoError(l.t, err)
	l.w = w
	for i := range 12 {
		x := makeBatch(l.t, partition(1), 1, int64(i), 1, 20)
		b := w.NewBuilder()
		fill(l.t, b, x)
		l.model = append(l.model, x)
		u, err := w.Put(b)
		if err == nil {
			<-u.Done()
			err = u.Err()
		}
		if l.crashed() {
			return
		}
		require.NoError(l.t, err)
		l.acked++
		if i == 5 || i == 9 {
			w.SetFloor(uint64(i - 2))
		}
		if i == 7 || i == 10 {
			for {
				if _, err := w.Sweep(l.c, 1); err == nil || l.crashed() {
					break
				}
			}
		}
	}
}

// again repeats a step until it succeeds, under a process that is started again after a crash.
func (l *life) again(step func() error) {
	for try := range 10 {
		err := step()
		if l.f.Crashed() {
			l.f.Revive(nil)
			continue
		}
		if err == nil {
			return
		}
		require.False(l.t, errors.Is(err, ErrNotSealed), "%v", err)
		require.Less(l.t, try, 9, "%v", err)
	}
}

func (l *life) run() {
	defer l.stop()
	l.write()
	if l.f.Crashed() {
		l.f.Revive(nil)
	}
	var s *Sealed
	l.again(func() (err error) {
		c, cancel := context.WithTimeout(context.Background(), 100*sealPause)
		defer cancel()
		b := bucket.NewTrace(l.f, func(string) {
			if l.f.Crashed() {
				cancel()
			}
		})
		if s, err = Seal(c, b, tailOp, stream, "life-1"); err == nil {
			_, err = s.Entries(c, partition(1))
		}
		return err
	})
	if l.w != nil {
		l.stop = func() {}
		u, err := l.w.Put(l.w.NewBuilder())
		if err == nil {
			<-u.Done()
			err = u.Err()
		}
		require.Error(l.t, err)
	}
	// The slice model: what was acknowledged and is above the floor is there; what is there was written, and in order.
	got := contents(l.t, l.mem, s, partition(1))
	require.LessOrEqual(l.t, int(s.Floor), l.acked+1)
	first := max(int(s.Floor), 1)
	require.GreaterOrEqual(l.t, first-1+len(got), l.acked)
	for i, b := range got {
		require.Equal(l.t, l.model[first-1+i].b, b)
	}
	keep := true
	for range 2 { // nothing is dead at first, then everything
		l.again(func() error {
			c, cancel := context.WithTimeout(context.Background(), 100*sealPause)
			defer cancel()
			b := bucket.NewTrace(l.f, func(string) {
				if l.f.Crashed() {
					cancel()
				}
			})
			_, err := SweepDead(c, b, tailOp, stream, func(context.Context, Entry) (bool, error) { return !keep, nil })
			return err
		})
		left, err := list(context.Background(), l.mem, tailOp, stream, 0)
		require.NoError(l.t, err)
		seals := 0
		for _, o := range left {
			if o.seal() {
				seals++
			}
		}
		require.Equal(l.t, 1, seals)
		if !keep {
			require.Len(l.t, left, 1)
		} else {
			require.GreaterOrEqual(l.t, len(left)-1, len(got))
		}
		keep = false
	}
	if l.w != nil {
		require.NoError(l.t, l.w.Close(context.Background()))
	}
}

func TestFailEveryCall(t *testing.T) {
	probe := newLife(t, nil)
	probe.run()
	calls := probe.f.Calls()
	require.Greater(t, calls, 30)
	for name, plan := range map[string]func(k int) bucket.Plan{
		"fails before effect":    func(k int) bucket.Plan { return bucket.FailAt(k, errDown) },
		"fails after effect":     func(k int) bucket.Plan { return bucket.FailAfterAt(k, errDown) },
		"crash before effect":    func(k int) bucket.Plan { return bucket.CrashAt(k, false) },
		"crash after effect":     func(k int) bucket.Plan { return bucket.CrashAt(k, true) },
		"precondition after win": func(k int) bucket.Plan { return bucket.FailAfterAt(k, errCondition) },
		"denied":                 func(k int) bucket.Plan { return bucket.FailAt(k, bucket.ErrDenied) },
		"three in a row": func(k int) bucket.Plan {
			return func(c bucket.Call) bucket.Action {
				if c.N >= k && c.N < k+3 {
					return bucket.Action{After: errDown}
				}
				return bucket.Action{}
			}
		},
		"half of a delete": func(k int) bucket.Plan {
			return func(c bucket.Call) bucket.Action { return bucket.Action{Partial: c.N == k} }
		},
		"flipped bit": func(k int) bucket.Plan {
			return func(c bucket.Call) bucket.Action {
				return bucket.Action{Flip: c.N == k && (c.Verb == bucket.VerbGet || c.Verb == bucket.VerbPut), FlipAt: int64(7 * k)}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for k := 1; k <= calls; k++ {
				newLife(t, plan(k)).run()
				if t.Failed() {
					t.Fatalf("call %d", k)
				}
			}
		})
	}
}

// TestForeignObjects: an object of another writer under one's number ends the stream, and is never taken for one's own.
func TestForeignObjects(t *testing.T) {
	mem := bucket.NewMemory()
	w := open(t, options(mem))
	other := craft(t, false) // number 3 of the same stream, by somebody else
	_, err := mem.Put(ctx(t), tailOp, stream.Key(3), bucket.BytesBody(other), bucket.Condition{})
	require.NoError(t, err)
	require.NoError(t, wait(t, put(t, w)))
	require.NoError(t, wait(t, put(t, w)))
	require.ErrorIs(t, wait(t, put(t, w)), ErrSealed)
	require.Equal(t, uint64(3), w.Stats().Acked)
}

// TestLostObject: an acknowledged object that somebody deleted is told, and what follows it is not lost with it.
func TestLostObject(t *testing.T) {
	mem := bucket.NewMemory()
	w := open(t, options(mem))
	for i := range int64(6) {
		require.NoError(t, wait(t, put(t, w, makeBatch(t, partition(int32(i%2)), 0, i, 1, 10))))
	}
	require.NoError(t, mem.Delete(ctx(t), tailOp, []string{stream.Key(3)}))
	s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
	require.NoError(t, err)
	require.EqualValues(t, 7, s.End)
	require.Equal(t, []uint64{3}, s.Missing)
	require.Len(t, contents(t, mem, s, partition(0)), 2)
	require.Len(t, contents(t, mem, s, partition(1)), 3)
}

// TestHostileSeal: a seal with numbers that nobody could count costs nothing.
func TestHostileSeal(t *testing.T) {
	mem := bucket.NewMemory()
	seal := func(seq, floor uint64) {
		b, err := encodeSeal(header{broker: 7, stream: checksum([]byte("run-a")), seq: seq, floor: floor}, "x")
		require.NoError(t, err)
		_, err = mem.Put(ctx(t), tailOp, stream.Key(seq), bucket.BytesBody(b), bucket.Condition{})
		require.NoError(t, err)
	}
	seal(maxSeq, 5)
	s, err := Seal(ctx(t), mem, tailOp, stream, "life-1")
	require.NoError(t, err)
	require.Len(t, s.Missing, maxMissing)
	require.EqualValues(t, maxSeq-5, s.Absent)
	entries, err := s.Entries(ctx(t), partition(1))
	require.NoError(t, err)
	require.Empty(t, entries)
}
