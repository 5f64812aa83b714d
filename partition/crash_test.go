package partition

import (
	"context"
	"fmt"
	"math/rand"
	randv2 "math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// crashWorld is a world whose file layer, index files and bucket crash at a chosen call.
type crashWorld struct {
	*world
	files *segment.FaultFS
	mem   *vfs.MemFS
	store *bucket.Fault
	acked []string // value by offset, "" where nothing was acknowledged
	seq   int32
}

func newCrashWorld(t testing.TB) *crashWorld {
	w := &crashWorld{world: newWorld(t)}
	w.files = segment.NewFaultFS(segment.OSFS{}, nil)
	w.mem = vfs.NewCrashableMem()
	w.store = bucket.NewFault(w.bucket, nil)
	w.fs, w.ixfs, w.bucket = w.files, w.mem, w.store
	w.tune = func(o *SetOptions) {
		o.Log.FileBytes = 32 << 10
		o.Log.MinFree = 0
		o.DiskBudget = 64 << 20
	}
	return w
}

const crashBatches = 36

// send appends the batch with the next sequence, as an idempotent producer does, and remembers what was acknowledged.
func (w *crashWorld) send(p *Partition) error {
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: 7, ProducerEpoch: 0, FirstSequence: w.seq})
	v := fmt.Sprintf("%d-%0900d", w.seq, w.seq)
	for range 2 {
		b.Add(w.now.Add(1), []byte("k"), []byte(v), nil)
	}
	ack, err := tryAppend(p, b.Bytes())
	if err != nil {
		return err
	}
	for int64(len(w.acked)) <= ack.LastOffset {
		w.acked = append(w.acked, "")
	}
	for o := ack.BaseOffset; o <= ack.LastOffset; o++ {
		w.acked[o] = v
	}
	w.seq += 2
	return nil
}

// run sends what is left of the batches, with rolls, evictions and reclaim in between; it stops at the first error.
func (w *crashWorld) run(p *Partition) error {
	ctx, cancel := w.untilCrash()
	defer cancel()
	for w.seq < 2*crashBatches {
		if err := w.send(p); err != nil {
			return err
		}
		switch i := w.seq / 2; {
		case i%5 == 0:
			if err := p.Roll(ctx); err != nil {
				return err
			}
		case i%7 == 0:
			if err := p.Evict(ctx); err != nil {
				return err
			}
			if _, err := w.set.reclaimOldest(w.now.Load()); err != nil {
				return err
			}
		case i%11 == 0:
			if _, err := p.DeleteRecords(ctx, p.Offsets().Start+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// untilCrash returns a context that ends with the crash: what waits for disk or bucket would wait for ever.
func (w *crashWorld) untilCrash() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !w.files.Crashed() && !w.store.Crashed() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return ctx, cancel
}

// verify holds the partition against what was acknowledged: every acknowledged record at its offset, and nothing twice.
func (w *crashWorld) verify(t *testing.T, p *Partition, when string) {
	t.Helper()
	seen := map[string]int{}
	for _, r := range readAll(t, p) {
		if r.offset < int64(len(w.acked)) && w.acked[r.offset] != "" {
			require.Equal(t, w.acked[r.offset][:8], r.value[:8], "offset %d %s", r.offset, when)
		}
		seen[r.value]++
	}
	start := p.Offsets().Start
	for o := start; o < int64(len(w.acked)); o++ {
		require.NotZero(t, seen[w.acked[o]], "acknowledged offset %d is missing %s (%+v)", o, when, p.Offsets())
	}
	for v, n := range seen {
		require.LessOrEqual(t, n, 2, "%.8s is stored more than once %s", v, when)
	}
}

// crash ends the run as a crash does: nothing more reaches disk or bucket. With power the machine dies, too.
func (w *crashWorld) crash(t *testing.T, seed int64, power bool) {
	t.Helper()
	w.files.SetPlan(func(segment.Call) error { return segment.ErrCrash })
	w.store.SetPlan(func(bucket.Call) bucket.Action {
		return bucket.Action{Crash: true, Before: bucket.ErrCrashed}
	})
	clone := w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: randv2.New(randv2.NewPCG(uint64(seed), 1))})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if w.set != nil {
		_ = w.set.Close(ctx) // errors are the point
		_ = w.arch.Close()
		_ = w.cache.Close()
		w.set = nil
	}
	w.mem, w.ixfs = clone, clone
	var rnd *rand.Rand
	if power {
		rnd = rand.New(rand.NewSource(seed))
		w.boot += fmt.Sprint("+", seed)
	}
	require.NoError(t, w.files.Restart(rnd, nil))
	w.store.Revive(nil)
}

// settle waits until the log has taken itself back into use.
func (w *crashWorld) settle(t *testing.T) {
	t.Helper()
	eventually(t, func() bool { return w.set.log.Watermarks().Err == nil && !w.set.repairing() }, func() string { return "the log stays poisoned" })
}

// idle lets the loops of the set make some rounds.
func (w *crashWorld) idle(t *testing.T, n int) {
	t.Helper()
	for range n {
		w.state.touch()
		require.NoError(t, w.set.update(func(*index.Batch) error { return nil }))
	}
}

// crashCase runs the scenario with a crash that arm prepares, recovers, and goes on to the end.
func crashCase(t *testing.T, name string, seed int64, power bool, arm func(*crashWorld)) {
	w := newCrashWorld(t)
	w.open()
	p := w.topic("c", map[string]string{"internal.segment.bytes": "6000"})
	id := p.ID()
	arm(w)
	err := w.run(p)
	w.crash(t, seed, power)
	w.open()
	p = w.await(id)
	w.verify(t, p, fmt.Sprintf("after the crash %s (%v)", name, err))
	require.NoError(t, w.run(p), name)
	w.verify(t, p, "at the end "+name)
	w.reopen()
	w.verify(t, w.await(id), "after a clean restart "+name)
	w.close()
}

// measureCalls counts the calls of a run without a crash.
func measureCalls(t *testing.T) (files, store int) {
	w := newCrashWorld(t)
	w.open()
	p := w.topic("c", map[string]string{"internal.segment.bytes": "6000"})
	w.files.SetPlan(nil)
	before := w.store.Calls()
	require.NoError(t, w.run(p))
	files, store = w.files.Calls(), w.store.Calls()-before
	w.close()
	return files, store
}

func TestCrashAtEveryBucketCall(t *testing.T) {
	_, n := measureCalls(t)
	for k := 1; k <= n; k++ {
		for _, after := range []bool{false, true} {
			crashCase(t, fmt.Sprintf("at bucket call %d, after its effect: %v", k, after), int64(k), k%2 == 0, func(w *crashWorld) {
				w.store.SetPlan(bucket.CrashAt(k+w.store.Calls(), after))
			})
		}
	}
}

func TestCrashAtFileCalls(t *testing.T) {
	n, _ := measureCalls(t)
	step := max(1, n/60)
	for k := 1; k <= n; k += step {
		crashCase(t, fmt.Sprintf("at file call %d of %d", k, n), int64(k), k/step%3 != 0, func(w *crashWorld) {
			w.files.SetPlan(segment.FailAt(k, segment.ErrCrash))
		})
	}
}
