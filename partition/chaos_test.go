package partition

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

var (
	chaosSeed  = flag.Uint64("chaos.seed", 0, "first seed of TestChaos")
	chaosCount = flag.Uint64("chaos.count", 0, "how many seeds TestChaos runs, 0 for the usual number")
)

// TestChaos mixes all operations on several partitions with faults of disk and bucket, restarts, crashes and losses of
// power and index, and holds every partition against a model. A failure prints its seed; goroutines race, so a seed may
// need several runs.
func TestChaos(t *testing.T) {
	n := *chaosCount
	switch {
	case n > 0:
	case testing.Short():
		n = 6
	default:
		n = 30
	}
	for seed := *chaosSeed; seed < *chaosSeed+n; seed++ {
		if !t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { chaosRun(t, seed) }) {
			return
		}
	}
}

// chaos is a broker under random operations and faults.
type chaos struct {
	*crashWorld
	t      *testing.T
	seed   uint64
	rnd    *rand.Rand
	parts  []*part
	made   int
	pids   int64
	pidMu  sync.Mutex
	values atomic.Int64
	times  sync.Map // timestamp by value
	log    []string
	sick   bool // disk faults are on
	evMu   sync.Mutex
	evs    []string
	alive  context.Context // ends when the broker crashes
	die    context.CancelFunc
}

func chaosRun(t *testing.T, seed uint64) {
	c := &chaos{crashWorld: newCrashWorld(t), t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 7))}
	live := seed%3 != 0 // otherwise the loops do little by themselves
	c.tune = func(o *SetOptions) {
		o.Log.FileBytes = 32 << 10
		o.Log.RetryInterval = 5 * time.Millisecond
		o.Log.SyncInterval = time.Duration(1+seed%7) * time.Millisecond
		o.DiskBudget = int64(96+32*(seed%8)) << 10
		o.RollInterval = 15 * time.Millisecond
		if live {
			o.RollInterval, o.MaintainInterval, o.RollMinBytes = 3*time.Millisecond, 7*time.Millisecond, 2<<10
		}
		o.SweepDelay, o.SweepInterval = 50*time.Millisecond, time.Second
		o.BucketCallTimeout = 5 * time.Second
		o.SwapDelay = time.Duration(seed%2) * time.Hour
		o.OnEvent = func(e Event) { c.keep("%s/%d: %s: %v", e.Topic, e.Partition.Partition, e.Message, e.Err) }
	}
	c.start(func() {})
	for range 1 + c.rnd.IntN(4) {
		c.addPart()
	}
	for range 30 {
		c.step()
		if t.Failed() {
			t.FailNow()
		}
	}
	c.check()
	c.do("close")
	c.close()
}

func (c *chaos) fail(format string, args ...any) {
	c.t.Helper()
	for _, m := range c.parts {
		if p := c.set.Get(m.id); p != nil {
			c.keep("%s: %+v", m.name, p.Stats())
		}
	}
	n := max(0, len(c.log)-40)
	c.t.Fatalf("seed %d: %s\nlast steps: %s\nevents: %s", c.seed, fmt.Sprintf(format, args...), strings.Join(c.log[n:], ", "),
		strings.Join(c.happened(), "\n"))
}

// happened lists the latest events and steps in their order.
func (c *chaos) happened() []string {
	c.evMu.Lock()
	defer c.evMu.Unlock()
	return append([]string(nil), c.evs[max(0, len(c.evs)-1000):]...)
}

func (c *chaos) keep(format string, args ...any) {
	c.evMu.Lock()
	c.evs = append(c.evs, fmt.Sprintf(format, args...))
	c.evMu.Unlock()
}

func (c *chaos) do(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
	c.keep("- "+format, args...)
}

func (c *chaos) nextPid() int64 {
	c.pidMu.Lock()
	defer c.pidMu.Unlock()
	c.pids++
	return c.pids
}

func (c *chaos) pause() {
	select {
	case <-time.After(time.Millisecond):
	case <-c.alive.Done():
	}
}

func (c *chaos) start(arm func()) {
	c.alive, c.die = context.WithCancel(context.Background())
	arm()
	for {
		if _, err := c.tryOpen(); err == nil {
			return
		}
		c.files.SetPlan(nil) // a disk that fails while the log is opened is replaced
		c.mayLose()
	}
}

func (c *chaos) mayLose() {
	for _, m := range c.parts {
		m.mayLose()
	}
}

func (c *chaos) addPart() {
	c.made++
	overrides := map[string]string{"internal.segment.bytes": fmt.Sprint(500 + c.rnd.IntN(4000)), "segment.ms": "20"}
	if c.rnd.IntN(3) == 0 {
		overrides["tierbroker.durability"] = "async"
	}
	if c.rnd.IntN(4) == 0 {
		overrides["retention.bytes"] = fmt.Sprint(c.rnd.IntN(20_000))
	}
	if c.rnd.IntN(4) == 0 {
		overrides["local.retention.ms"] = "30"
	}
	c.parts = append(c.parts, c.newPart(fmt.Sprint("t", c.made), overrides))
	c.do("topic %v", overrides)
}

func (c *chaos) step() {
	c.now.Add(c.rnd.Int64N(40))
	switch n := c.rnd.IntN(100); {
	case n < 45:
		c.do("work")
		c.work(c.rnd.IntN(3))
	case n < 55:
		c.diskFault()
		c.work(2)
	case n < 63:
		c.bucketFault()
		c.work(2)
	case n < 67:
		c.alterOne()
	case n < 70:
		c.addPart()
	case n < 72 && len(c.parts) > 1:
		c.removeOne()
	case n < 77:
		c.check()
	case n < 82:
		c.do("restart")
		c.heal()
		c.check()
		c.close()
		c.start(c.maybe(c.bucketFault))
	default:
		c.crashNow()
	}
}

// work lets clients and operators of all partitions do something, at the same time.
func (c *chaos) work(busy int) {
	var wg sync.WaitGroup
	for _, m := range c.parts {
		p := c.set.Get(m.id)
		if p == nil {
			continue
		}
		seed := c.rnd.Uint64()
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, 1))
			for range 1 + busy {
				m.send(p, rnd)
			}
		})
		for range busy {
			seed := c.rnd.Uint64()
			wg.Go(func() { c.operate(p, rand.New(rand.NewPCG(seed, 2))) })
		}
	}
	wg.Wait()
}

// operate does one thing that is not an append; errors are the faults' business, content is checked later.
func (c *chaos) operate(p *Partition, rnd *rand.Rand) {
	ctx, cancel := context.WithTimeout(c.alive, 3*time.Second)
	defer cancel()
	o := p.Offsets()
	switch rnd.IntN(8) {
	case 0, 1:
		_ = p.Roll(ctx)
	case 2:
		_ = p.Evict(ctx)
	case 3:
		_, _ = c.set.reclaimOldest(c.now.Load())
	case 4:
		if o.Durable > o.Start {
			start, err := p.DeleteRecords(ctx, o.Start+rnd.Int64N(min(o.Durable-o.Start, 12)+1))
			c.keep("%s: delete before %d: %v, %+v", p.Topic(), start, err, p.Stats())
		}
	case 5:
		if rnd.IntN(3) == 0 {
			start, err := p.DeleteRecords(ctx, -1)
			c.keep("%s: delete before %d: %v, %+v", p.Topic(), start, err, p.Stats())
		}
	default:
		if o.Durable > o.Start {
			_, _ = fetch(p, o.Start+rnd.Int64N(o.Durable-o.Start), 1+rnd.IntN(5000))
		}
		_, _ = p.OffsetForTime(ctx, c.now.Load()-rnd.Int64N(100))
	}
}

// diskFault makes a few of the next calls fail.
func (c *chaos) diskFault() {
	from, n := 1+c.rnd.IntN(30), 1+c.rnd.IntN(3)
	ops := []string{"sync", "writev", "allocate", "rename", "syncdir"}[:1+c.rnd.IntN(5)]
	c.do("disk fault %v from call %d", ops, from)
	c.sick = true
	c.files.SetPlan(func(call segment.Call) error {
		if call.N < from || n == 0 {
			return nil
		}
		for _, op := range ops {
			if call.Op == op {
				n--
				return errDisk
			}
		}
		return nil
	})
}

// bucketFault makes calls fail, before or after their effect, for a while or until it is healed.
func (c *chaos) bucketFault() {
	rnd := rand.New(rand.NewPCG(c.rnd.Uint64(), 3))
	n, share := c.rnd.IntN(60), 1+c.rnd.IntN(3)
	c.do("bucket fault, %d calls, one in %d", n, share)
	c.store.SetPlan(func(bucket.Call) bucket.Action {
		if n--; n < 0 || rnd.IntN(share) > 0 {
			return bucket.Action{}
		}
		if rnd.IntN(2) == 0 {
			return bucket.Action{After: bucket.ErrUnavailable}
		}
		return bucket.Action{Before: bucket.ErrUnavailable}
	})
}

func (c *chaos) maybe(fault func()) func() {
	if c.rnd.IntN(2) == 0 {
		return fault
	}
	return func() {}
}

func (c *chaos) heal() {
	c.files.SetPlan(nil)
	c.store.SetPlan(nil)
	if c.sick {
		c.sick = false
		_ = c.set.log.Sync(context.Background()) // whatever is under way may still fail
		c.settle(c.t)
		c.mayLose()
	}
}

func (c *chaos) alterOne() {
	m := c.parts[c.rnd.IntN(len(c.parts))]
	c.heal()
	p := c.await(m.id)
	overrides := map[string]string{"internal.segment.bytes": fmt.Sprint(500 + c.rnd.IntN(4000))}
	if c.rnd.IntN(2) == 0 {
		overrides["tierbroker.durability"] = "async"
	}
	c.do("alter %s %v", m.name, overrides)
	c.alter(c.t, p, overrides)
	m.setDurability(overrides)
}

func (c *chaos) removeOne() {
	i := c.rnd.IntN(len(c.parts))
	m := c.parts[i]
	c.do("remove %s", m.name)
	c.parts = append(c.parts[:i:i], c.parts[i+1:]...)
	c.state.remove(m.id)
}

// crashNow ends the process or the machine: at once, or at some call while everybody works.
func (c *chaos) crashNow() {
	switch c.rnd.IntN(4) {
	case 0:
		k := 1 + c.rnd.IntN(60)
		c.do("crash at file call %d", k)
		c.files.SetPlan(segment.FailAt(k, segment.ErrCrash))
		c.untilDead(func() { c.work(2) })
	case 1:
		k, after := c.store.Calls()+1+c.rnd.IntN(25), c.rnd.IntN(2) == 0
		c.do("crash at bucket call, after its effect: %v", after)
		c.store.SetPlan(bucket.CrashAt(k, after))
		c.untilDead(func() { c.work(2) })
	}
	power := c.rnd.IntN(2) == 0
	c.do("crash, power lost: %v", power)
	c.die()
	if power || c.sick {
		c.sick = false
		c.mayLose()
	}
	c.crash(c.t, int64(c.seed)+int64(len(c.log)), power)
	if c.rnd.IntN(5) == 0 {
		c.do("index removed")
		require.NoError(c.t, c.mem.RemoveAll("index"))
	}
	c.start(c.maybe(c.bucketFault))
}

// untilDead runs fn; what waits for a crashed disk or bucket gives up.
func (c *chaos) untilDead(fn func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if c.files.Crashed() || c.store.Crashed() {
					c.die()
				}
			}
		}
	})
	fn()
	close(stop)
	wg.Wait()
}

// check heals everything and holds all partitions against their models.
func (c *chaos) check() {
	c.do("check")
	c.heal()
	for _, m := range c.parts {
		m.check(c.await(m.id))
	}
}
