package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/frame"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		fmt.Fprintln(os.Stderr, "killed process:", killedProcess(dir))
		os.Exit(1)
	}
	// What etcd wanted to end the process with stays where it was: TestEtcdThatGivesUp.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/tierbroker/tierbroker/cluster.(*guard).OnWrite"))
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// startEtcd runs one embedded etcd that several clients of a test share.
func startEtcd(t testing.TB) *clientv3.Client {
	e, err := StartEmbedded(testContext(t), EmbeddedOptions{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e.Client()
}

func startClient(t testing.TB, etcd *clientv3.Client, change ...func(*Options)) *Client {
	o := Options{Etcd: etcd, BrokerID: 1}
	for _, f := range change {
		f(&o)
	}
	c, err := Start(testContext(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func register(t testing.TB, c *Client, id int32, incarnation string) *Session {
	s, err := c.Register(testContext(t), Broker{ID: id, Incarnation: incarnation, Identity: fmt.Sprintf("disk-%d", id),
		Host: "127.0.0.1", Port: 9092}, 5*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func lead(t testing.TB, c *Client, s *Session) *Term {
	term, err := c.Campaign(testContext(t), s, 1)
	require.NoError(t, err)
	return term
}

// placeAt gives every partition of a topic to a broker, in state Starting.
func placeAt(t testing.TB, term *Term, topic *Topic, owner int32, incarnation string) {
	var changes []Change
	for p := range topic.Partitions {
		changes = append(changes, Change{ID: frame.PartitionID{Topic: topic.ID, Partition: p},
			New: Assignment{Owner: owner, OwnerIncarnation: incarnation, State: Starting, Target: NoBroker}})
	}
	require.NoError(t, term.Apply(testContext(t), changes))
}

func moves(topic *Topic, owner int32, incarnation string, epoch int32, from, to State) []Transition {
	ts := make([]Transition, topic.Partitions)
	for p := range topic.Partitions {
		ts[p] = Transition{ID: frame.PartitionID{Topic: topic.ID, Partition: p}, Owner: owner,
			OwnerIncarnation: incarnation, Epoch: epoch, From: from, To: to}
	}
	return ts
}
