package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startEtcd(t testing.TB) *clientv3.Client {
	e, err := cluster.StartEmbedded(t.Context(), cluster.EmbeddedOptions{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e.Client()
}

// node is a broker with a controller, as the daemon wires them.
type node struct {
	client     *cluster.Client
	session    *cluster.Session
	broker     cluster.Broker
	controller *Controller
	events     chan Event
	ended      chan struct{} // closed when the controller has returned
	stop       func() error  // stops the controller, resigning
}

func startNode(t testing.TB, etcd *clientv3.Client, id int32, run int, ttl time.Duration) *node {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	n := &node{events: make(chan Event, 10_000)}
	var err error
	n.client, err = cluster.Start(ctx, cluster.Options{Etcd: etcd, BrokerID: id})
	require.NoError(t, err)
	n.broker = cluster.Broker{ID: id, Incarnation: fmt.Sprintf("run-%d-%d", id, run), Identity: fmt.Sprint("disk-", id), Host: "h", Port: 1}
	n.session, err = n.client.Register(ctx, n.broker, ttl)
	require.NoError(t, err)
	c, err := New(Options{Client: n.client, Session: n.session, Broker: id, OnEvent: func(e Event) { n.events <- e }})
	require.NoError(t, err)
	n.controller = c
	rctx, stop := context.WithCancel(context.Background())
	n.ended = make(chan struct{})
	var ended error
	go func() {
		defer close(n.ended)
		ended = c.Run(rctx)
	}()
	n.stop = func() error { stop(); <-n.ended; return ended }
	t.Cleanup(func() {
		_ = n.stop() // tests that lose their lease check the error themselves
		require.NoError(t, n.session.Close())
		require.NoError(t, n.client.Close())
	})
	return n
}

// until waits for an image that a condition holds in.
func until(t testing.TB, c *cluster.Client, cond func(*cluster.Image) bool) *cluster.Image {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	img := c.Image()
	for !cond(img) {
		var err error
		img, err = c.Wait(ctx, img.Revision())
		require.NoError(t, err)
	}
	return img
}

func (n *node) event(t testing.TB, kind EventKind) Event {
	for {
		select {
		case e := <-n.events:
			if e.Kind == kind {
				return e
			}
		case <-time.After(30 * time.Second):
			require.FailNow(t, "no such event", "%d", kind)
		}
	}
}

// change waits until the controller has made a change of a kind.
func (n *node) change(t testing.TB, kind Kind) Change {
	for {
		for _, c := range n.event(t, Changed).Changes {
			if c.Kind == kind {
				return c
			}
		}
	}
}

func allIn(topic frame.TopicID, partitions int32, state cluster.State, epoch int32) func(*cluster.Image) bool {
	return func(img *cluster.Image) bool {
		for p := range partitions {
			a, ok := img.Assignment(frame.PartitionID{Topic: topic, Partition: p})
			if !ok || a.State != state || a.Epoch != epoch {
				return false
			}
		}
		return true
	}
}

func (n *node) move(t testing.TB, topic frame.TopicID, partitions, epoch int32, from, to cluster.State) {
	var ts []cluster.Transition
	for p := range partitions {
		ts = append(ts, cluster.Transition{ID: frame.PartitionID{Topic: topic, Partition: p}, Owner: n.broker.ID,
			OwnerIncarnation: n.broker.Incarnation, Epoch: epoch, From: from, To: to})
	}
	require.NoError(t, n.client.Transition(t.Context(), ts))
}

func TestTopicFromCreationToDeletion(t *testing.T) {
	etcd := startEtcd(t)
	n := startNode(t, etcd, 1, 1, 5*time.Second)
	topic, err := n.client.CreateTopic(t.Context(), cluster.TopicSpec{Name: "t", Partitions: 7})
	require.NoError(t, err)
	until(t, n.client, allIn(topic.ID, 7, cluster.Starting, 0))
	n.move(t, topic.ID, 7, 0, cluster.Starting, cluster.Writing)
	_, err = n.client.CreatePartitions(t.Context(), topic.ID, 9)
	require.NoError(t, err)
	until(t, n.client, func(img *cluster.Image) bool { return img.NumAssignments() == 9 })

	// A new run in the same directory takes over at once, with the next epoch.
	require.NoError(t, n.stop())
	again := startNode(t, etcd, 1, 2, 5*time.Second)
	until(t, again.client, allIn(topic.ID, 7, cluster.Starting, 1))
	select {
	case <-n.session.Done():
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the earlier run has to notice")
	}

	require.NoError(t, again.client.DeleteTopic(t.Context(), topic.ID))
	again.move(t, topic.ID, 9, 1, cluster.Starting, cluster.Deleted)
	img := until(t, again.client, func(img *cluster.Image) bool { return img.TopicByName("t") == nil })
	require.Zero(t, img.NumAssignments())
	require.NotNil(t, img.DeletedTopic(topic.ID))
	require.Equal(t, "t", again.change(t, FreeName).Topic)
}

func TestFailedPartitionIsRetried(t *testing.T) {
	n := startNode(t, startEtcd(t), 1, 1, 5*time.Second)
	topic, err := n.client.CreateTopic(t.Context(), cluster.TopicSpec{Name: "t", Partitions: 1})
	require.NoError(t, err)
	until(t, n.client, allIn(topic.ID, 1, cluster.Starting, 0))
	start := time.Now()
	require.NoError(t, n.client.Transition(t.Context(), []cluster.Transition{{ID: frame.PartitionID{Topic: topic.ID},
		Owner: 1, OwnerIncarnation: n.broker.Incarnation, From: cluster.Starting, To: cluster.Failed,
		Reason: "bucket", At: time.Now().UnixMilli()}}))
	until(t, n.client, allIn(topic.ID, 1, cluster.Starting, 1))
	require.GreaterOrEqual(t, time.Since(start), 900*time.Millisecond)
}

func TestSecondControllerTakesOver(t *testing.T) {
	etcd := startEtcd(t)
	one := startNode(t, etcd, 1, 1, 2*time.Second)
	one.event(t, Elected)
	two := startNode(t, etcd, 2, 1, 2*time.Second)
	until(t, two.client, func(img *cluster.Image) bool { return img.ControllerID() == 1 && len(img.Brokers()) == 2 })
	require.NoError(t, one.stop())
	two.event(t, Elected)
	require.Equal(t, int32(2), two.client.Image().ControllerID())

	topic, err := one.client.CreateTopic(t.Context(), cluster.TopicSpec{Name: "t", Partitions: 4})
	require.NoError(t, err)
	img := until(t, one.client, allIn(topic.ID, 4, cluster.Starting, 0))
	owners := map[int32]int{}
	for _, a := range img.Assignments() {
		owners[a.Owner]++
	}
	require.Equal(t, map[int32]int{1: 2, 2: 2}, owners)

	// The lease of the second one is taken away: it is deposed and says so.
	_, err = etcd.Revoke(t.Context(), clientv3.LeaseID(two.session.Lease()))
	require.NoError(t, err)
	two.event(t, Deposed)
	<-two.ended
	require.ErrorIs(t, two.stop(), cluster.ErrSessionLost)
}

// TestDeposedControllerChangesNothing lets a controller that lost its term go on
// with what it had planned.
func TestDeposedControllerChangesNothing(t *testing.T) {
	etcd := startEtcd(t)
	start := func(id int32) (*cluster.Client, *cluster.Session) {
		c, err := cluster.Start(t.Context(), cluster.Options{Etcd: etcd, BrokerID: id})
		require.NoError(t, err)
		s, err := c.Register(t.Context(), cluster.Broker{ID: id, Incarnation: fmt.Sprint("run-", id), Host: "h"}, 5*time.Second)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()); require.NoError(t, c.Close()) })
		return c, s
	}
	c1, s1 := start(1)
	c2, s2 := start(2)
	old, err := c1.Campaign(t.Context(), s1, 1)
	require.NoError(t, err)
	topic, err := c1.CreateTopic(t.Context(), cluster.TopicSpec{Name: "t", Partitions: 3})
	require.NoError(t, err)
	_, err = etcd.Delete(t.Context(), fmt.Sprintf("/tierbroker/election/%016x", s1.Lease()))
	require.NoError(t, err)
	fresh, err := c2.Campaign(t.Context(), s2, 2)
	require.NoError(t, err)

	var changes []cluster.Change
	for _, c := range Plan(c2.Image(), nil, 0) {
		changes = append(changes, c.Change)
	}
	require.Len(t, changes, 3)
	require.ErrorIs(t, old.Apply(t.Context(), changes), cluster.ErrNotLeader)
	require.Zero(t, c2.Image().NumAssignments())
	require.NoError(t, fresh.Apply(t.Context(), changes))
	require.ErrorIs(t, old.Apply(t.Context(), again(changes)), cluster.ErrNotLeader)
	require.NoError(t, c1.DeleteTopic(t.Context(), topic.ID))
	require.Error(t, old.FreeName(t.Context(), topic.ID))
	require.NotNil(t, c1.Image().TopicByName("t"))
}

// again plans the same partitions once more.
func again(changes []cluster.Change) []cluster.Change {
	out := make([]cluster.Change, len(changes))
	for i, c := range changes {
		out[i] = cluster.Change{ID: c.ID, Exists: true, Old: c.New, New: c.New}
		out[i].New.Epoch++
	}
	return out
}

func TestTenThousandPartitions(t *testing.T) {
	etcd := startEtcd(t)
	n := startNode(t, etcd, 1, 1, 5*time.Second)
	for i := range 10 {
		_, err := n.client.CreateTopic(t.Context(), cluster.TopicSpec{Name: fmt.Sprint("t", i), Partitions: 1000})
		require.NoError(t, err)
	}
	start := time.Now()
	img := until(t, n.client, func(img *cluster.Image) bool { return img.NumAssignments() == 10_000 })
	t.Logf("placed after %v", time.Since(start))
	for _, step := range [][2]cluster.State{{cluster.Starting, cluster.Recovering}, {cluster.Recovering, cluster.Writing}} {
		var ts []cluster.Transition
		for id, a := range img.Assignments() {
			ts = append(ts, cluster.Transition{ID: id, Owner: a.Owner, OwnerIncarnation: a.OwnerIncarnation, Epoch: a.Epoch, From: step[0], To: step[1]})
		}
		start, before := time.Now(), n.client.Image().Revision()
		require.NoError(t, n.client.Transition(t.Context(), ts))
		t.Logf("10,000 to %s in %v and %d transactions", step[1], time.Since(start), n.client.Image().Revision()-before)
		require.LessOrEqual(t, n.client.Image().Revision()-before, int64(21))
	}
	// The next run of the broker gets all of them again.
	require.NoError(t, n.stop())
	start = time.Now()
	again := startNode(t, etcd, 1, 2, 5*time.Second)
	until(t, again.client, func(img *cluster.Image) bool {
		for _, a := range img.Assignments() {
			if a.State != cluster.Starting || a.Epoch != 1 {
				return false
			}
		}
		return true
	})
	t.Logf("10,000 restarted in %v", time.Since(start))
}
