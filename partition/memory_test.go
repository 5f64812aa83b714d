package partition

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
)

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Idle partitions cost little, also after they have been written to, rolled and read, and after a restart.
func TestIdlePartitionsAreCheap(t *testing.T) {
	n := int32(3000)
	if testing.Short() {
		n = 1500
	}
	budget := int64(20 << 10)
	if underRace {
		budget *= 2 // the detector's own allocations count, too
	}
	w := newWorld(t)
	w.tune = func(o *SetOptions) { o.Log.FileBytes = 64 << 20 }
	w.open()
	before := heap()
	cfg, err := cluster.ParseTopicConfig(nil, nil)
	require.NoError(t, err)
	id := w.state.add(n, "many", cfg, nil)
	w.state.touch()
	part := func(i int32) *Partition { return w.set.Get(frame.PartitionID{Topic: id.Topic, Partition: i}) }
	all := func() bool {
		for i := range n {
			if p := part(i); p == nil || p.State() != Writing {
				return false
			}
		}
		return true
	}
	eventually(t, all, func() string { return "not all are writing" })
	for round := range 34 {
		acks := make([]Ack, 0, n)
		for i := range n {
			b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: int64(i) + 1, FirstSequence: int32(round)})
			b.Add(w.now.Load(), nil, []byte("v"), nil)
			ack, err := part(i).Append(b.Bytes(), AppendOptions{Epoch: -1, Now: w.now.Load()})
			require.NoError(t, err)
			require.NoError(t, ack.Written())
			acks = append(acks, ack)
		}
		require.NoError(t, wait(&acks[n-1]))
	}
	for i := range n / 10 {
		require.NoError(t, part(i).Roll(t.Context()))
	}
	written := (heap() - before) / int64(n)
	require.Less(t, written, budget, "bytes per partition that was written to")
	w.close()
	w.open()
	eventually(t, all, func() string { return "not all are writing" })
	idle := (heap() - before) / int64(n)
	t.Logf("bytes per partition: %d after writes, %d after a restart", written, idle)
	require.Less(t, idle, budget, "bytes per partition after a restart")
	w.close()
}

// Producers that don't wait while the disk stands still are refused before they fill the memory, and a tail that grew
// meanwhile goes when the disk has caught up.
func TestStalledDiskBoundsTheTail(t *testing.T) {
	w := newWorld(t)
	fs := newHookFS()
	w.fs = fs
	w.tune = func(o *SetOptions) {
		o.Log.FileBytes = 64 << 20
		o.Log.SyncInterval = time.Millisecond
		o.DiskBudget = 1 << 30
	}
	w.open()
	p := w.topic("t", nil)
	g := newGate()
	fs.set(func(op, _ string) error {
		if op == "sync" {
			g.pass()
		}
		return nil
	})
	b := oneRecord("v")
	var err error
	n := 0
	for ; err == nil; n++ {
		var ack Ack
		if ack, err = p.Append(b, AppendOptions{Epoch: -1, Now: 1}); err == nil {
			require.NoError(t, ack.Written())
		}
	}
	require.ErrorIs(t, err, ErrStorage)
	require.LessOrEqual(t, n, maxBacklog+1)
	fs.set(nil)
	start := time.Now()
	close(g.open)
	eventually(t, func() bool { o := p.Offsets(); return o.Durable == o.End }, func() string { return fmt.Sprintf("%+v", p.Stats()) })
	t.Logf("%d batches settled in %v", n, time.Since(start))
	p.mu.Lock()
	size := cap(p.tail)
	p.mu.Unlock()
	require.LessOrEqual(t, size, 32*keptTail, "entries that the tail has room for")
	var room int
	require.NoError(t, w.set.update(func(*index.Batch) error {
		w.set.appendMu.Lock()
		room = max(cap(w.set.inflight), cap(w.set.queue))
		w.set.appendMu.Unlock()
		return nil
	}))
	require.LessOrEqual(t, room, 2*maxIndexBatch, "appends that the commit loop has room for")
	w.close()
}
