package partition

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
	"github.com/tierbroker/tierbroker/tier/wal"
)

// retune opens a broker again with other options, before it has anything.
func (n *node) retune(f func(*SetOptions)) {
	n.stop()
	n.tune = f
	n.open()
}

// inWAL says whether a call puts a data object of a WAL stream.
func inWAL(c bucket.Call) bool {
	return c.Verb == bucket.VerbPut && strings.HasPrefix(c.Key, "wal/") && !strings.HasSuffix(c.Key, "/00000000000000000000")
}

// putsHead says whether a call writes anything but a WAL object.
func putsHead(c bucket.Call) bool {
	return c.Verb == bucket.VerbPut && !strings.HasPrefix(c.Key, "wal/")
}

// loseBroker ends a broker for good and hands an object partition to another one.
func (pl *plane) loseBroker(n *node, to int32, ids ...frame.PartitionID) {
	n.kill(1)
	n.wipe()
	for _, id := range ids {
		pl.give(id, to, false)
	}
}

// warmTarget begins a move whose target has said that it is ready.
func (pl *plane) warmTarget(id frame.PartitionID, to int32) {
	pl.mu.Lock()
	a := pl.assigned[id]
	a.Target, a.Warm = to, true
	pl.assigned[id] = a
	pl.publish()
}

// A hand-over takes the owner's stream out of the head. When there is nobody to hand over to after all, what is acknowledged
// from then on must be found through the head again.
func TestMoveOfObjectGivenUp(t *testing.T) {
	pl := newPlane(t, 3)
	id := pl.topic("t", 1, objectTopic)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	pl.nodes[2].kill(1)
	pl.warmTarget(id, 2)
	eventually(t, func() bool { return pl.assignment(id).Target < 0 && p.State() == Writing }, func() string { return fmt.Sprintf("%+v", pl.assignment(id)) })
	r2, _ := produceSeq(t, p, 7, 1, "b")
	pl.loseBroker(pl.nodes[1], 3, id)
	require.Equal(t, []rec{r, r2}, readAll(t, pl.await(id, 3)))
}

// The owner gives a move up while it still hands over, and the answer of that transaction is lost: it takes writes again,
// under a head that names its stream.
func TestUndrainWhoseAnswerIsLost(t *testing.T) {
	pl := newPlane(t, 3)
	n := pl.nodes[1]
	id := pl.topic("t", 1, objectTopic)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	hold := make(chan struct{})
	n.store.SetPlan(func(c bucket.Call) bucket.Action {
		if putsHead(c) {
			return bucket.Action{Hold: hold}
		}
		return bucket.Action{}
	})
	pl.warmTarget(id, 2)
	eventually(t, func() bool { return p.State() == Draining }, func() string { return "it does not drain" })
	pl.mu.Lock()
	a := pl.assigned[id]
	a.State, a.Target, a.Warm = cluster.Writing, cluster.NoBroker, false
	pl.assigned[id] = a
	pl.publish()
	close(hold)
	eventually(t, func() bool { return p.State() == Writing }, func() string { return "it takes no writes: " + p.State().String() })
	r2, _ := produceSeq(t, p, 7, 1, "b")
	pl.loseBroker(n, 3, id)
	require.Equal(t, []rec{r, r2}, readAll(t, pl.await(id, 3)))
}

// The sweep may ask for the floor at any moment: it never passes an object that heads don't cover.
func TestFloorWhileObjectsAreMade(t *testing.T) {
	pl := newPlane(t, 1)
	n := pl.nodes[1]
	id := pl.topic("t", 1, objectTopic)
	p := pl.await(id, 1)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if w := n.set.streamWriter(); w != nil {
					n.set.stream.setFloor(w)
				}
			}
		}
	}()
	defer func() {
		close(stop)
		<-done
	}()
	for i := range int32(150) {
		produceSeq(t, p, 7, i, fmt.Sprint(i))
		s, ok := n.set.Stream()
		require.True(t, ok)
		require.Less(t, s.Floor, s.Next, "the head lacks the newest object")
		require.NoError(t, p.Roll(context.Background())) // nothing before the next one is needed
	}
}

func (s *Set) streamWriter() *wal.Writer {
	s.stream.mu.Lock()
	defer s.stream.mu.Unlock()
	return s.stream.writer
}

// What was appended before its topic became object may be acknowledged by the old rules afterwards: the partition isn't safe
// before the bucket has that, too.
func TestBecomesSafeWithWhatWasUnderWay(t *testing.T) {
	pl := newPlane(t, 1)
	n := pl.nodes[1]
	n.retune(func(o *SetOptions) { o.Log.SyncInterval = time.Hour })
	hold := make(chan struct{})
	n.store.SetPlan(func(c bucket.Call) bucket.Action {
		if inWAL(c) {
			return bucket.Action{Hold: hold}
		}
		return bucket.Action{}
	})
	id := pl.topic("t", 1, map[string]string{"tierbroker.durability": "async"})
	p := pl.await(id, 1)
	b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: 7, ProducerEpoch: 0, FirstSequence: 0})
	b.Add(1_700_000_000_000, []byte("k"), []byte("v"), nil)
	ack, err := p.Append(b.Bytes(), AppendOptions{Epoch: -1, Now: pl.now.Load()})
	require.NoError(t, err)
	pl.alter(id, objectTopic)
	eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.object
	}, func() string { return "it does not become object" })
	require.NoError(t, ack.Written())
	require.NoError(t, ack.Durable(context.Background()))
	require.Equal(t, int64(1), p.Offsets().Durable)
	pl.alter(id, map[string]string{"tierbroker.durability": "object", "segment.ms": "60000"})
	n.set.reclasses(t)
	require.False(t, pl.assignment(id).Safe, "the bucket lacks what was acknowledged")
	close(hold)
	require.NoError(t, n.set.log.Sync(context.Background()))
	eventually(t, func() bool { return pl.assignment(id).Safe }, func() string { return "never safe" })
}

// reclasses waits until no job is under way or due.
func (s *Set) reclasses(t testing.TB) {
	eventually(t, func() bool {
		s.jobs.mu.Lock()
		defer s.jobs.mu.Unlock()
		return len(s.jobs.busy) == 0
	}, func() string { return "jobs do not end" })
}

// A topic becomes object while one of its partitions is taken over: nothing is acknowledged that the head doesn't lead to.
func TestClassChangesDuringTakeOver(t *testing.T) {
	pl := newPlane(t, 3)
	id := pl.topic("t", 1, nil)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	require.NoError(t, p.Roll(context.Background()))
	pl.nodes[1].kill(1)
	hold, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	pl.nodes[2].store.SetPlan(func(c bucket.Call) bucket.Action {
		if putsHead(c) {
			once.Do(func() { close(held) })
			return bucket.Action{Hold: hold}
		}
		return bucket.Action{}
	})
	pl.give(id, 2, false)
	<-held
	pl.alter(id, objectTopic)
	q := pl.nodes[2].set.Get(id)
	eventually(t, func() bool { return q.Config().Durability == cluster.Object }, func() string { return "settings are not taken" })
	close(hold)
	q = pl.await(id, 2)
	eventually(t, func() bool { return pl.assignment(id).Safe }, func() string { return "never safe" })
	r2, _ := produceSeq(t, q, 7, 1, "b")
	pl.loseBroker(pl.nodes[2], 3, id)
	require.Equal(t, []rec{r, r2}, readAll(t, pl.await(id, 3)))
}

// A bundle is queued, and the topic becomes object, which queues the same batches: one object takes them once.
func TestBundleAndChangeOfClass(t *testing.T) {
	pl := newPlane(t, 2)
	n := pl.nodes[1]
	n.retune(func(o *SetOptions) { o.StreamInterval = 300 * time.Millisecond })
	id := pl.topic("t", 1, map[string]string{"segment.ms": "60000"})
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	pl.now.Add(60_000)
	require.NoError(t, p.lockSwap(context.Background()))
	require.NoError(t, p.bundle(context.Background(), pl.now.Load()))
	p.unlockSwap()
	pl.alter(id, objectTopic)
	r2, _ := produceSeq(t, p, 7, 1, "b")
	eventually(t, func() bool { return pl.assignment(id).Safe || p.State() == Failed }, func() string { return "never safe" })
	require.Equal(t, Writing, p.State())
	eventually(t, func() bool { return p.Offsets().Durable == 2 }, func() string { return "not durable" })
	pl.loseBroker(n, 2, id)
	require.Equal(t, []rec{r, r2}, readAll(t, pl.await(id, 2)))
}

// A deleted topic's batches do not keep the stream from getting shorter.
func TestDeletedTopicLeavesTheStream(t *testing.T) {
	pl := newPlane(t, 1)
	n := pl.nodes[1]
	id := pl.topic("t", 1, objectTopic)
	produceSeq(t, pl.await(id, 1), 7, 0, "a")
	s, ok := n.set.Stream()
	require.True(t, ok)
	require.Equal(t, 1, s.NeededObjects)
	pl.mu.Lock()
	topic := *pl.topics[id.Topic]
	topic.Deleting = true
	pl.topics[id.Topic] = &topic
	pl.publish()
	eventually(t, func() bool { s, _ = n.set.Stream(); return s.NeededObjects == 0 }, func() string { return fmt.Sprintf("%+v", s) })
}

// A stop does not wait for a bucket that doesn't answer.
func TestCloseWhileTheBucketStalls(t *testing.T) {
	pl := newPlane(t, 1)
	n := pl.nodes[1]
	id := pl.topic("t", 1, objectTopic)
	p := pl.await(id, 1)
	hold := make(chan struct{})
	n.store.SetPlan(func(c bucket.Call) bucket.Action {
		if inWAL(c) {
			return bucket.Action{Hold: hold}
		}
		return bucket.Action{}
	})
	for i := range int64(5) { // one more than may be under way
		b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: 7, ProducerEpoch: 0, FirstSequence: int32(i)})
		b.Add(1_700_000_000_000, []byte("k"), []byte("v"), nil)
		ack, err := p.Append(b.Bytes(), AppendOptions{Epoch: -1, Now: pl.now.Load()})
		require.NoError(t, err)
		require.NoError(t, ack.Written())
		eventually(t, func() bool {
			s, _ := n.set.Stream()
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.queuedTo == i+1 && s.QueuedBytes == 0 && s.InFlight == int(min(i+1, 4))
		}, func() string { return "it is not sent" })
	}
	set := n.set
	n.set = nil
	n.gone()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = set.Close(ctx) // that it ends is the point
	}()
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		t.Error("the stop waits for the bucket")
	}
	close(hold)
	<-done
	require.NoError(t, n.arch.Close())
	require.NoError(t, n.cache.Close())
}
