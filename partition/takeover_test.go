package partition

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/frame"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

// holdFirst lets a broker's first call that fits wait: held is closed when it waits, and release lets it go on.
func (n *node) holdFirst(fits func(bucket.Call) bool) (held <-chan struct{}, release func()) {
	at, hold := make(chan struct{}), make(chan struct{})
	var once, free sync.Once
	n.store.SetPlan(func(c bucket.Call) bucket.Action {
		a := bucket.Action{}
		if fits(c) {
			once.Do(func() {
				a.Hold = hold
				close(at)
			})
		}
		return a
	})
	return at, func() { free.Do(func() { close(hold) }) }
}

// zombie takes the broker's registration away; it knows nothing of that, and goes on.
func (n *node) zombie() { n.gone() }

func putsAnyHead(c bucket.Call) bool {
	return c.Verb == bucket.VerbPut && strings.HasPrefix(c.Key, "head/")
}

// looksAtStream says whether a call reads a WAL stream, as a successor does before it seals it.
func looksAtStream(stream string) func(bucket.Call) bool {
	return func(c bucket.Call) bool { return c.Verb == bucket.VerbList && strings.Contains(c.Key, stream) }
}

// Many partitions of a dead owner cost two calls each, one read and one swap of the head, and its stream is sealed once.
func TestTakeOverCostsTwoCalls(t *testing.T) {
	const count = 20
	pl := newPlane(t, 2)
	var ids []frame.PartitionID
	for i := range count {
		id := pl.topic(fmt.Sprint("t", i), 1, objectTopic)
		produceSeq(t, pl.await(id, 1), 7, 0, fmt.Sprint("v", i))
		ids = append(ids, id)
	}
	pl.nodes[1].kill(1)
	n := pl.nodes[2]
	var mu sync.Mutex
	calls := map[string]int{}
	n.store.SetPlan(func(c bucket.Call) bucket.Action {
		mu.Lock()
		defer mu.Unlock()
		folder, _, _ := strings.Cut(c.Key, "/")
		calls[c.Verb+" "+folder]++
		return bucket.Action{}
	})
	for _, id := range ids {
		pl.give(id, 2, false)
	}
	for i, id := range ids {
		p := pl.await(id, 2)
		require.Equal(t, int64(1), p.Offsets().Durable)
		require.Equal(t, fmt.Sprint("v", i), readAll(t, p)[0].value)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, count, calls[bucket.VerbPut+" head"], "%v", calls)
	require.Equal(t, count, calls[bucket.VerbGet+" head"], "%v", calls)
	require.Equal(t, 2, calls[bucket.VerbPut+" wal"], "the seal, and the opening object of the new owner's stream: %v", calls)
}

// The earlier owner still rolls, and shortens its stream, while its successor is anywhere between the load of the head and the
// swap: the successor goes on from what is there then. What the old one acknowledged is there, what it did not is not.
func TestZombieRollsDuringTakeOver(t *testing.T) {
	for _, at := range []string{"before the seal", "before the swap"} {
		t.Run(at, func(t *testing.T) {
			pl := newPlane(t, 3)
			old, next := pl.nodes[1], pl.nodes[2]
			id := pl.topic("t", 1, objectTopic)
			p := pl.await(id, 1)
			var model []rec
			for i := range int32(3) {
				r, _ := produceSeq(t, p, 7, i, fmt.Sprint("v", i))
				model = append(model, r)
			}
			old.zombie()
			fits := putsAnyHead
			if at == "before the seal" {
				fits = looksAtStream(old.incarnation)
			}
			held, release := next.holdFirst(fits)
			defer release()
			pl.give(id, 2, false)
			<-held
			require.NoError(t, p.Roll(context.Background()))
			if at == "before the seal" {
				for i := int32(3); i < 6; i++ { // the newer objects say that the older ones matter no more
					r, _ := produceSeq(t, p, 7, i, fmt.Sprint("v", i))
					model = append(model, r)
				}
			}
			release()
			q := pl.await(id, 2)
			require.Equal(t, model, readAll(t, q))
			n := int32(len(model))
			_, ack := produceSeq(t, q, 7, n-1, fmt.Sprint("v", n-1))
			require.True(t, ack.Duplicate)
			r, ack := produceSeq(t, q, 7, n, "new")
			require.Equal(t, int64(n), ack.BaseOffset)
			model = append(model, r)
			b := batch.NewBuilder(batch.None, batch.BuilderOptions{ProducerID: 8, ProducerEpoch: 0, FirstSequence: 0})
			b.Add(1_700_000_000_000, []byte("k"), []byte("zombie"), nil)
			late, err := p.Append(b.Bytes(), AppendOptions{Epoch: -1, Now: pl.now.Load()})
			if err == nil {
				require.NoError(t, late.Written())
				err = late.Durable(context.Background())
			}
			require.ErrorIs(t, err, ErrNotOwner)
			pl.loseBroker(next, 3, id)
			require.Equal(t, model, readAll(t, pl.await(id, 3)))
			for _, e := range next.seen() {
				require.NotContains(t, e.Message, "does not go on")
			}
		})
	}
}

func (n *node) seen() []Event {
	n.eventsMu.Lock()
	defer n.eventsMu.Unlock()
	return append([]Event(nil), n.events...)
}

// A successor stalls between seal and swap; another one is chosen, takes over and acknowledges. The swap of the first comes
// too late then, whether the second one found the seal or not.
func TestTwoSuccessors(t *testing.T) {
	for _, at := range []string{"before the seal", "before the swap"} {
		t.Run(at, func(t *testing.T) {
			pl := newPlane(t, 4)
			id := pl.topic("t", 1, objectTopic)
			p := pl.await(id, 1)
			r, _ := produceSeq(t, p, 7, 0, "a")
			model := []rec{r}
			old, slow := pl.nodes[1], pl.nodes[2]
			old.kill(1)
			fits := putsAnyHead
			if at == "before the seal" {
				fits = looksAtStream(old.incarnation)
			}
			held, release := slow.holdFirst(fits)
			defer release()
			pl.give(id, 2, false)
			<-held
			pl.give(id, 3, false)
			q := pl.await(id, 3)
			r, ack := produceSeq(t, q, 7, 1, "b")
			require.Equal(t, int64(1), ack.BaseOffset)
			model = append(model, r)
			release()
			slow.set.reclasses(t)
			require.NotEqual(t, Writing, slow.set.Get(id).State())
			require.NoError(t, pl.nodes[3].set.Err(), "who owns the partition is not sealed by whoever did")
			r, _ = produceSeq(t, q, 7, 2, "c")
			model = append(model, r)
			require.Equal(t, model, readAll(t, q))
			require.NoError(t, q.Roll(context.Background()))
			pl.loseBroker(pl.nodes[3], 4, id)
			require.Equal(t, model, readAll(t, pl.await(id, 4)))
		})
	}
}

// Two successors, of which the first swapped and never got to write: the second one adopts nothing twice.
func TestSuccessorOfASuccessorThatNeverWrote(t *testing.T) {
	pl := newPlane(t, 3)
	id := pl.topic("t", 1, objectTopic)
	p := pl.await(id, 1)
	r, _ := produceSeq(t, p, 7, 0, "a")
	pl.nodes[1].kill(1)
	n := pl.nodes[2]
	swapped := make(chan struct{})
	var once sync.Once
	n.store.SetPlan(func(c bucket.Call) bucket.Action {
		if !putsAnyHead(c) {
			return bucket.Action{}
		}
		once.Do(func() { close(swapped) })
		return bucket.Action{Crash: true, After: bucket.ErrCrashed} // it takes effect, and nobody learns
	})
	pl.give(id, 2, false)
	<-swapped
	n.kill(2)
	pl.give(id, 3, false)
	q := pl.await(id, 3)
	require.Equal(t, []rec{r}, readAll(t, q))
	r2, ack := produceSeq(t, q, 7, 1, "b")
	require.Equal(t, int64(1), ack.BaseOffset)
	require.Equal(t, []rec{r, r2}, readAll(t, q))
	n.open()
}
