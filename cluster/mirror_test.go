package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierbroker/tierbroker/frame"
)

// gate is a Watcher whose watches can be broken and held up, as a network would.
type gate struct {
	clientv3.Watcher
	mu     sync.Mutex
	open   chan struct{} // closed: watches pass
	broken context.CancelFunc
	rounds int
}

func (g *gate) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	g.mu.Lock()
	open := g.open
	ctx, g.broken = context.WithCancel(ctx)
	g.rounds++
	g.mu.Unlock()
	select {
	case <-open:
		return g.Watcher.Watch(ctx, key, opts...)
	case <-ctx.Done():
		ch := make(chan clientv3.WatchResponse)
		close(ch)
		return ch
	}
}

// cut breaks the watch and holds up the next one until the returned function runs.
func (g *gate) cut() (heal func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := make(chan struct{})
	g.open = open
	g.broken()
	return func() { close(open) }
}

// gated returns a client of the same etcd whose watches pass the gate.
func gated(etcd *clientv3.Client) (*clientv3.Client, *gate) {
	open := make(chan struct{})
	close(open)
	g := &gate{Watcher: etcd.Watcher, open: open}
	c := clientv3.NewCtxClient(context.Background())
	c.KV, c.Lease, c.Maintenance, c.Watcher = etcd.KV, etcd.Lease, etcd.Maintenance, g
	return c, g
}

func TestMirrorGoesOnAfterABrokenWatch(t *testing.T) {
	for _, compact := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacted=%v", compact), func(t *testing.T) {
			ctx, etcd := testContext(t), startEtcd(t)
			behind, g := gated(etcd)
			mirror, writer := startClient(t, behind), startClient(t, etcd)
			term := lead(t, writer, register(t, writer, 1, "run-1"))
			kept, err := writer.CreateTopic(ctx, TopicSpec{Name: "kept", Partitions: 2})
			require.NoError(t, err)
			placeAt(t, term, kept, 1, "run-1")
			_, err = mirror.Wait(ctx, writer.Image().Revision()-1)
			require.NoError(t, err)

			require.NoError(t, writer.SetBrokerWish(ctx, 9, BrokerWish{Draining: true}))
			wish := MoveWish{ID: frame.PartitionID{Topic: kept.ID}, Target: 1}
			require.NoError(t, term.SetMoves(ctx, []MoveWish{wish}))
			_, err = mirror.Wait(ctx, writer.Image().Revision()-1)
			require.NoError(t, err)

			heal := g.cut()
			before := mirror.Image()
			require.Len(t, before.Moves(), 1)
			require.NoError(t, term.EndMoves(ctx, before.Moves()))
			require.NoError(t, writer.SetBrokerWish(ctx, 9, BrokerWish{}))
			require.NoError(t, writer.SetBrokerWish(ctx, 8, BrokerWish{Removed: true}))
			gone, err := writer.CreateTopic(ctx, TopicSpec{Name: "gone", Partitions: 1})
			require.NoError(t, err)
			require.NoError(t, writer.DeleteTopic(ctx, gone.ID))
			require.NoError(t, term.FreeName(ctx, gone.ID))
			require.NoError(t, writer.FinishDelete(ctx, gone.ID))
			require.NoError(t, writer.Transition(ctx, moves(kept, 1, "run-1", 0, Starting, Writing)))
			if compact {
				_, err = etcd.Compact(ctx, writer.Image().Revision())
				require.NoError(t, err)
			}
			require.Equal(t, before.Revision(), mirror.Image().Revision(), "nothing passes the gate")
			heal()
			img, err := mirror.Wait(ctx, writer.Image().Revision()-1)
			require.NoError(t, err)
			requireSameImage(t, writer.Image(), img)
			require.NoError(t, mirror.Health(ctx).Lagging)
			var changed []frame.PartitionID
			for id := range img.ChangedPartitions(before) {
				changed = append(changed, id)
			}
			require.Len(t, changed, 2, "a resync shows only what differs")
			require.Empty(t, collectTopics(img, before), "a resync shows only what differs")
		})
	}
}

func collectTopics(img, before *Image) (ids []frame.TopicID) {
	for id := range img.ChangedTopics(before) {
		ids = append(ids, id)
	}
	return ids
}

func TestWaitEndsWithItsContext(t *testing.T) {
	c := startClient(t, startEtcd(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Wait(ctx, c.Image().Revision())
	require.ErrorIs(t, err, context.Canceled)
	img, err := c.Wait(ctx, c.Image().Revision()-1)
	require.NoError(t, err, "what is there already needs no waiting")
	require.Equal(t, c.Image(), img)
}

func TestRacingCreatesHaveOneWinner(t *testing.T) {
	ctx, etcd := testContext(t), startEtcd(t)
	var wg sync.WaitGroup
	won := make(chan *Topic, 100)
	for i := range 4 {
		c := startClient(t, etcd)
		for range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				name := []string{"a.b", "a_b"}[i%2]
				topic, err := c.CreateTopic(ctx, TopicSpec{Name: name, Partitions: 1})
				switch {
				case err == nil:
					won <- topic
				case !errors.Is(err, ErrTopicExists) && !errors.Is(err, ErrTopicCollision):
					t.Errorf("create: %v", err)
				}
			}()
		}
	}
	wg.Wait()
	require.Len(t, won, 1)
}

// TestRacingTransitions lets several nodes move neighbouring partitions, and the
// same ones, at the same time.
func TestRacingTransitions(t *testing.T) {
	ctx, etcd := testContext(t), startEtcd(t)
	c := startClient(t, etcd)
	term := lead(t, c, register(t, c, 1, "run"))
	topic, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 60})
	require.NoError(t, err)
	placeAt(t, term, topic, 1, "run")
	clients := []*Client{c, startClient(t, etcd), startClient(t, etcd)}
	var wg sync.WaitGroup
	for _, cl := range clients {
		_, err := cl.Wait(ctx, c.Image().Revision()-1)
		require.NoError(t, err)
		for _, m := range moves(topic, 1, "run", 0, Starting, Writing) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				// All nodes ask for the same: who comes second finds it made.
				if err := cl.Transition(ctx, []Transition{m}); err != nil {
					t.Errorf("%s: %v", m.ID, err)
				}
			}()
		}
	}
	wg.Wait()
	require.Less(t, c.Image().Revision(), int64(120), "transitions that wait together are one transaction")

	// Of a transition and a reassignment one wins, and the other is told.
	for p := range topic.Partitions {
		id := frame.PartitionID{Topic: topic.ID, Partition: p}
		old, _ := c.Image().Assignment(id)
		next := old
		next.Epoch, next.State = 1, Starting
		var moved, applied error
		wg.Add(2)
		go func() {
			defer wg.Done()
			moved = clients[1].Transition(ctx, []Transition{{ID: id, Owner: 1, OwnerIncarnation: "run", From: Writing, To: Draining}})
		}()
		go func() {
			defer wg.Done()
			applied = term.Apply(ctx, []Change{{ID: id, Exists: true, Old: old, New: next}})
		}()
		wg.Wait()
		_, err := c.Wait(ctx, clients[1].Image().Revision()-1)
		require.NoError(t, err)
		a, _ := c.Image().Assignment(id)
		switch a.State {
		case Starting:
			require.NoError(t, applied)
			require.ErrorIs(t, moved, ErrFenced)
		case Draining:
			require.NoError(t, moved)
			require.ErrorIs(t, applied, ErrFenced)
		default:
			require.FailNow(t, "neither won", "%v", a)
		}
	}
}

func TestProducerIDsAreUnique(t *testing.T) {
	ctx, etcd := testContext(t), startEtcd(t)
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for range 3 {
		c := startClient(t, etcd)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 20 {
				first, err := c.AllocateProducerIDs(ctx, 10)
				if err != nil {
					t.Errorf("allocate: %v", err)
					return
				}
				mu.Lock()
				for i := range int64(10) {
					if seen[first+i] {
						t.Errorf("producer id %d was handed out twice", first+i)
					}
					seen[first+i] = true
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	require.Len(t, seen, 600)
	_, err := startClient(t, etcd).AllocateProducerIDs(ctx, 0)
	require.Error(t, err)
}
