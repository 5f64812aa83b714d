package partition

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// traces lists what the index still knows of a partition.
func (w *world) traces(t *testing.T, id frame.PartitionID) (out []string) {
	t.Helper()
	ix := w.set.index
	require.NoError(t, ix.Partitions(func(p frame.PartitionID, _ []byte) bool {
		if p == id {
			out = append(out, "meta")
		}
		return true
	}))
	_, ok, err := ix.First(id)
	require.NoError(t, err)
	if ok {
		out = append(out, "entry")
	}
	_, ok, err = ix.Head(id)
	require.NoError(t, err)
	if ok {
		out = append(out, "head")
	}
	require.NoError(t, ix.Producers(id, func(int64, []byte) bool { out = append(out, "producer"); return true }))
	files, err := ix.FileUses()
	require.NoError(t, err)
	for _, base := range files {
		require.NoError(t, ix.FileUse(base, func(p frame.PartitionID, last int64) bool {
			if p == id && last >= 0 {
				out = append(out, "file use")
			}
			return true
		}))
	}
	return out
}

func (w *world) awaitGone(t *testing.T, id frame.PartitionID) {
	t.Helper()
	eventually(t, func() bool {
		w.state.mu.Lock()
		_, there := w.state.topics[id.Topic]
		w.state.mu.Unlock()
		return !there && w.set.Get(id) == nil
	}, func() string { return "the topic is still there" })
}

// A deleted topic leaves nothing behind: not in the index, not after a restart, also when batches of it were on their
// way, its head was just swapped, or the machine dies right after.
func TestDeletedTopicLeavesNothing(t *testing.T) {
	for _, how := range []string{"idle", "under way", "killed after", "power lost after", "index lost after"} {
		for round := range 6 {
			t.Run(fmt.Sprint(how, round), func(t *testing.T) { deleteTopic(t, how, int64(round)) })
		}
	}
}

func deleteTopic(t *testing.T, how string, seed int64) {
	w := newCrashWorld(t)
	w.open()
	other := w.topic("other", nil)
	p := w.topic("t", map[string]string{"internal.segment.bytes": "6000"})
	id := p.ID()
	for range 4 {
		require.NoError(t, w.send(p))
	}
	require.NoError(t, p.Roll(context.Background()))
	require.NoError(t, w.send(p))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	if how == "under way" {
		for range 3 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						ack, err := p.Append(oneRecord("x"), AppendOptions{Epoch: -1, Now: 1})
						if err != nil {
							return
						}
						_ = ack.Written() // the topic is being deleted
					}
				}
			})
		}
	}
	w.state.remove(id)
	w.awaitGone(t, id)
	close(stop)
	wg.Wait()
	produce(t, other, batch.None, []string{"flush"}, []int64{1})
	require.Empty(t, w.traces(t, id))
	switch how {
	case "killed after":
		w.crash(t, seed, false)
	case "power lost after":
		w.crash(t, seed, true)
	default:
		w.close()
	}
	if how == "index lost after" {
		require.NoError(t, w.mem.RemoveAll("index"))
	}
	w.open()
	w.await(other.ID())
	require.Nil(t, w.set.Get(id))
	require.Empty(t, w.traces(t, id))
	w.close()
}

// Records of a deleted topic that are still in the log keep no file, and are no reason for a quarantine file.
func TestDeletedTopicIsNotQuarantined(t *testing.T) {
	w := newCrashWorld(t)
	w.open()
	other := w.topic("other", nil)
	p := w.topic("t", nil)
	id := p.ID()
	for range 4 {
		require.NoError(t, w.send(p))
	}
	w.state.remove(id)
	w.awaitGone(t, id)
	require.NoError(t, w.state.FinishDelete(context.Background(), id.Topic))
	for w.set.log.Files()[0].Active {
		produce(t, other, batch.None, []string{string(make([]byte, 3000))}, []int64{1})
	}
	require.NoError(t, other.Roll(context.Background()))
	w.set.pressure.budget.Store(1)
	eventually(t, func() bool {
		dropped, err := w.set.reclaimOldest(w.now.Load())
		require.NoError(t, err)
		return dropped || !w.set.log.Files()[0].Active && w.set.log.Files()[0].Base > 0 // by the reclaim loop
	}, func() string { return "the oldest file stays" })
	list, err := w.set.log.Quarantined()
	require.NoError(t, err)
	require.Empty(t, list)
	w.close()
}

// The head was made by a run that died before its index was on disk: the next one doesn't know of it and deletes the
// topic all the same.
func TestDeleteFindsUnknownHead(t *testing.T) {
	w := newCrashWorld(t)
	w.open()
	p := w.topic("t", nil)
	id := p.ID()
	require.NoError(t, w.send(p))
	w.crash(t, 1, false)
	w.open()
	p = w.await(id)
	require.NoError(t, w.set.index.Flush())
	require.NoError(t, p.Roll(context.Background()))
	w.crash(t, 1, false)
	w.open()
	w.await(id)
	w.state.remove(id)
	w.awaitGone(t, id)
	h, err := w.arch.Load(context.Background(), id)
	require.NoError(t, err)
	require.True(t, h.Tombstone)
	w.close()
}

// Many partitions start while the bucket doesn't answer: those that don't need it are served, and those that do follow
// when it comes back.
func TestBucketDownKeepsNobodyElseWaiting(t *testing.T) {
	w := newWorld(t)
	store := bucket.NewFault(w.bucket, nil)
	w.bucket = store
	w.tune = func(o *SetOptions) { o.OpenWorkers = 2; o.BucketCallTimeout = 10 * time.Minute }
	w.open()
	cfg, err := cluster.ParseTopicConfig(nil, nil)
	require.NoError(t, err)
	a := w.state.add(40, "a", cfg, nil)
	w.state.touch()
	part := func(id frame.PartitionID, i int32) frame.PartitionID {
		return frame.PartitionID{Topic: id.Topic, Partition: i}
	}
	for i := range int32(40) {
		p := w.await(part(a, i))
		produce(t, p, batch.None, []string{"x"}, []int64{1})
	}
	for i := range int32(20) {
		require.NoError(t, w.set.Get(part(a, i)).Roll(context.Background()))
	}
	hold := make(chan struct{})
	w.close()
	// Twenty of them need their heads.
	w.open20Unknown(t, a)
	store.SetPlan(func(bucket.Call) bucket.Action { return bucket.Action{Hold: hold} })
	w.state.touch()
	for i := int32(20); i < 40; i++ {
		w.await(part(a, i))
	}
	fresh := w.state.create(t, "fresh", nil)
	w.await(fresh)
	for i := range int32(20) {
		require.Equal(t, Recovering, w.set.Get(part(a, i)).State())
	}
	close(hold)
	for i := range int32(20) {
		w.await(part(a, i))
	}
	w.close()
}

// open20Unknown opens the set without assignments and makes it forget that it knows the heads of the first twenty.
func (w *world) open20Unknown(t *testing.T, a frame.PartitionID) {
	t.Helper()
	w.state.hold = true
	w.open()
	w.state.hold = false
	for i := range int32(20) {
		p := w.set.Get(frame.PartitionID{Topic: a.Topic, Partition: i})
		p.mu.Lock()
		p.headKnown = false
		p.mu.Unlock()
	}
}

// A partition that fails while it is served is reported, so that it is started again.
func TestFailureWhileServingIsReported(t *testing.T) {
	w := newWorld(t)
	w.open()
	p := w.topic("t", nil)
	id := p.ID()
	produce(t, p, batch.None, []string{"x"}, []int64{1})
	// Another broker takes the head.
	h, err := w.arch.Claim(context.Background(), id, "t", nil, tier.Owner{Broker: 9, Incarnation: "other", Epoch: 5})
	require.NoError(t, err)
	require.ErrorIs(t, p.Roll(context.Background()), ErrNotOwner)
	eventually(t, func() bool {
		a := w.state.assignment(id)
		return a.State == cluster.Failed && a.Reason != ""
	}, func() string { return fmt.Sprintf("%+v", w.state.assignment(id)) })
	_, err = p.Append(oneRecord("no"), AppendOptions{Epoch: -1, Now: 1})
	require.ErrorIs(t, err, ErrNotOwner)
	w.state.startAt(id, h.Epoch+1)
	p = w.await(id)
	require.NoError(t, p.Roll(context.Background()))
	w.close()
}

// Images may come late and more than once.
func TestLateImagesAreIgnored(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.topic("first", nil)
	old := w.set.image.Load()
	p := w.topic("t", nil)
	w.set.Apply(old)
	for range 3 {
		w.state.touch()
		w.set.Apply(old)
	}
	require.NoError(t, w.set.saveDirty())
	require.Equal(t, Writing, p.State())
	w.close()
}

// failFrom lets nothing through from the k-th call on.
func failFrom(k int) func(segment.Call) error {
	return func(c segment.Call) error {
		if c.N >= k {
			return errDisk
		}
		return nil
	}
}

func TestOpenSetLeavesNothingOpenWhenItFails(t *testing.T) {
	w := newCrashWorld(t)
	w.open()
	p := w.topic("t", nil)
	require.NoError(t, w.send(p))
	w.close()
	w.set = nil
	n := 0
	for k := 1; ; k++ {
		w.files.SetPlan(failFrom(k))
		s, err := w.tryOpen()
		w.files.SetPlan(nil)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			_ = s.Close(ctx) // it may have met the fault in the background
			cancel()
			require.NoError(t, w.arch.Close())
			require.NoError(t, w.cache.Close())
			break
		}
		n++
		// A second set on the same directory opens only if the first one let go of everything.
		w.files.SetPlan(nil)
		w.open()
		w.await(p.ID())
		w.close()
	}
	require.Greater(t, n, 3)
	require.FileExists(t, filepath.Join(w.dir, "log", "0000000000000000.log"))
}

// An index that opens but holds nonsense is built anew, like one that doesn't open.
func TestIndexOfNonsenseIsRebuilt(t *testing.T) {
	w := newCrashWorld(t)
	w.open()
	p := w.topic("t", nil)
	id := p.ID()
	for range 3 {
		require.NoError(t, w.send(p))
	}
	require.NoError(t, w.set.update(func(b *index.Batch) error {
		b.PutMeta(frame.PartitionID{Partition: 7}, []byte("{"))
		return nil
	}))
	w.close()
	s := w.open()
	require.True(t, s.Recovered().Rebuilt)
	w.verify(t, w.await(id), "after the rebuild")
	w.close()
}
