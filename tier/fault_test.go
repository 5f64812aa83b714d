package tier

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/tier/bucket"
)

// actor runs the life of a partition as its owner would, and survives errors: it loads the head again and goes on.
type actor struct {
	*world
	f    *bucket.Fault
	ctx  context.Context
	stop context.CancelFunc
}

var errDown = fmt.Errorf("planned: %w", bucket.ErrUnavailable)

// newActor makes a world whose bucket fails as planned. When the plan crashes the process, its context ends: a dead process doesn't
// wait for answers.
func newActor(t testing.TB, plan bucket.Plan) *actor {
	w := newWorld(t, 42)
	w.plain = true
	x := &actor{world: w, f: bucket.NewFault(w.mem, plan)}
	w.b = bucket.NewTrace(x.f, func(string) {
		if x.f.Crashed() {
			x.stop()
		}
	})
	x.boot()
	return x
}

// boot opens the archive anew and takes the partition over under the next epoch.
func (x *actor) boot() {
	x.ctx, x.stop = context.WithCancel(context.Background())
	x.t.Cleanup(x.stop)
	x.open()
	x.h = nil
	x.owner.Epoch++
	x.owner.Incarnation = fmt.Sprintf("run-%d", x.owner.Epoch)
}

// must repeats a step until it succeeds: after an error the head is loaded, after a crash the process starts again.
func (x *actor) must(name string, step func(h *Head) (*Head, error)) {
	for try := range 20 {
		h, err := x.reload()
		if err == nil {
			if h, err = step(h); err == nil {
				x.h = h
				return
			}
		}
		if x.f.Crashed() {
			x.f.Revive(nil)
			x.boot()
		}
		require.Less(x.t, try, 19, "%s: %v", name, err)
		for _, never := range []error{ErrCorrupt, ErrHeadRegressed, ErrNotContiguous, ErrFenced} {
			require.False(x.t, errors.Is(err, never), "%s: %v", name, err)
		}
	}
}

func (x *actor) reload() (*Head, error) {
	h, err := x.a.Load(x.ctx, x.id)
	if err != nil && !errors.Is(err, ErrNoHead) {
		return nil, err
	}
	return x.a.Claim(x.ctx, x.id, "logs", h, x.owner)
}

// life is the scenario: rolls that spill, a merge, retention, deleted records, sweeps.
func (x *actor) life() {
	for i := range 18 {
		x.write(3 + i%5)
		x.must("roll", func(h *Head) (*Head, error) { return x.rollOnce(h) })
		if i%6 == 5 {
			x.must("merge", func(h *Head) (*Head, error) {
				h, _, err := x.a.Merge(x.ctx, x.id, h, x.owner, MergeOptions{SmallBytes: 9000, TargetBytes: 20_000, MinObjects: 2, Now: x.now})
				return h, err
			})
		}
		if i%9 == 8 {
			x.must("retain", func(h *Head) (*Head, error) {
				h, _, err := x.a.Retain(x.ctx, x.id, h, x.owner, Retention{Ms: -1, Bytes: 25_000, Now: x.now})
				return h, err
			})
			x.must("sweep", func(h *Head) (*Head, error) {
				h, _, err := x.a.SweepPartition(x.ctx, x.id, h, x.now, 0)
				return h, err
			})
		}
	}
	before := x.next - 11
	x.must("delete", func(h *Head) (*Head, error) { return x.a.DeleteRecords(x.ctx, x.id, h, x.owner, before, x.now) })
}

func (x *actor) rollOnce(h *Head) (*Head, error) {
	src := x.pending(h)
	if len(src) == 0 {
		return h, nil // the swap of the try before had happened
	}
	e, err := x.a.Upload(x.ctx, x.spec(h, src), src)
	if err != nil {
		x.a.Discard(x.id, e.Key, 0)
		return nil, err
	}
	n, err := x.a.CommitRoll(x.ctx, x.id, h, x.owner, []Extent{e}, nil)
	if err != nil {
		x.a.Discard(x.id, e.Key, h.Version+1)
	}
	return n, err
}

// check compares with the model; then the next owner sweeps, and nothing may be left over.
func (x *actor) check() {
	x.f.SetPlan(nil)
	h, err := x.a.Load(x.ctx, x.id)
	require.NoError(x.t, err)
	require.Equal(x.t, x.next, h.End)
	require.Equal(x.t, x.next-11, h.Start)
	x.h = h
	x.checkHead(h)
	x.checkAll(h)
	x.checkTimes(h, 30)
	x.boot()
	x.must("claim", func(h *Head) (*Head, error) { return h, nil })
	x.checkSwept()
	x.checkVerify()
	x.checkAll(x.h)
}

func TestFailEveryCall(t *testing.T) {
	probe := newActor(t, nil)
	probe.life()
	calls := probe.f.Calls()
	probe.check()
	require.Greater(t, calls, 100)
	plans := map[string]func(k int) bucket.Plan{
		"fails before effect":    func(k int) bucket.Plan { return bucket.FailAt(k, errDown) },
		"fails after effect":     func(k int) bucket.Plan { return bucket.FailAfterAt(k, errDown) },
		"crash before effect":    func(k int) bucket.Plan { return bucket.CrashAt(k, false) },
		"crash after effect":     func(k int) bucket.Plan { return bucket.CrashAt(k, true) },
		"precondition after win": func(k int) bucket.Plan { return bucket.FailAfterAt(k, errCondition) },
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
				return bucket.Action{Flip: c.N == k && c.Verb == bucket.VerbGet, FlipAt: int64(k)}
			}
		},
	}
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := 1
			switch {
			case testing.Short():
				step = 17
			case name == "three in a row" || name == "half of a delete" || name == "flipped bit":
				step = 3
			}
			for k := 1; k <= calls; k += step {
				x := newActor(t, plan(k))
				x.life()
				x.check()
				_ = x.a.Close()
				if t.Failed() {
					t.Fatalf("call %d", k)
				}
			}
		})
	}
}

var errCondition = fmt.Errorf("planned: %w", bucket.ErrPrecondition)
