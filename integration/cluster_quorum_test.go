package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// ended waits until the process has ended by itself, and returns its exit code.
func (n *node) ended(limit time.Duration) int {
	n.t.Helper()
	select {
	case <-n.exited:
	case <-time.After(limit):
		n.t.Fatalf("%s did not end\n%s", n.name, n.out.String())
	}
	code := n.cmd.ProcessState.ExitCode()
	n.cmd = nil
	return code
}

// Three controllers, whose etcds are one quorum: the cluster goes on without any one of them, and after all have been killed
// at once. A controller that lost its directory doesn't vote with empty hands: it says what to do, and doing that brings it back.
func TestClusterControllersFormAQuorum(t *testing.T) {
	t.Parallel()
	m := newMesh(t, meshOptions{brokers: 2, controllers: 3})
	m.start()
	m.createTopic("t", 4, nil)
	producer := m.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	m.produceEach(producer, "t", 4, "before", 10)

	for i, c := range m.controllers {
		c.kill()
		m.createTopic(fmt.Sprintf("without-%d", 101+i), 4, nil)
		m.produceEach(producer, "t", 4, fmt.Sprint("without-", i), 10)
		c.start()
	}
	for _, c := range m.controllers {
		c.kill()
	}
	for _, c := range m.controllers {
		c.launch()
	}
	for _, c := range m.controllers {
		c.awaitReady(time.Minute)
	}
	m.createTopic("all-were-gone", 4, nil)
	m.produceEach(producer, "t", 4, "after", 10)

	lost := m.controllers[1]
	lost.kill()
	lost.wipe()
	lost.launch()
	require.Equal(t, 2, lost.ended(30*time.Second), "exit code")
	said := lost.out.String()
	require.Contains(t, said, "is empty, but controller-102 had data as a member of this quorum")
	require.Contains(t, said, "member remove")

	// What it says, with etcd's own client in place of etcdctl.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + m.etcd[0], "http://" + m.etcd[2]}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, etcd.Close()) }()
	list, err := etcd.MemberList(ctx)
	require.NoError(t, err)
	for _, member := range list.Members {
		if member.Name == "controller-102" {
			require.Contains(t, said, fmt.Sprintf("member remove %x", member.ID))
			// etcd refuses changes of its members for some seconds after they have lost each other.
			m.eventually(30*time.Second, "the lost member is removed", func() bool {
				_, err = etcd.MemberRemove(ctx, member.ID)
				return err == nil || errors.Is(err, rpctypes.ErrMemberNotFound)
			})
			m.eventually(30*time.Second, "it is added again", func() bool {
				_, err = etcd.MemberAdd(ctx, member.PeerURLs)
				return err == nil || errors.Is(err, rpctypes.ErrPeerURLExist)
			})
		}
	}
	lost.start()
	m.controllers[0].kill() // so that the new member is needed
	m.createTopic("new-member-counts", 4, nil)
	m.produceEach(producer, "t", 4, "end", 10)
}

// A node that belongs to a cluster refuses an etcd that has lost it, instead of beginning an empty cluster of the same name.
func TestClusterEtcdIsLost(t *testing.T) {
	t.Parallel()
	m := newMesh(t, meshOptions{brokers: 1, controllers: 1})
	m.start()
	m.createTopic("t", 1, nil)
	for _, p := range []*proc{m.brokers[0], m.controllers[0]} {
		p.kill()
	}
	m.controllers[0].wipe()
	m.controllers[0].launch()
	require.Equal(t, 2, m.controllers[0].ended(30*time.Second), "exit code")
	require.Contains(t, m.controllers[0].out.String(), "already holds cluster")

	// Its etcd alone is lost, with the directory that names the cluster still there.
	status, _ := m.brokers[0].get("/readyz")
	require.NotEqual(t, http.StatusOK, status)
	other := newMesh(t, meshOptions{brokers: 0, controllers: 1})
	other.start()
	b := m.brokers[0]
	for i, a := range b.args {
		if a == "--etcd-endpoints" {
			b.args[i+1] = "http://" + other.etcd[0]
		}
	}
	b.launch()
	require.Equal(t, 2, b.ended(30*time.Second), "exit code")
	require.True(t, strings.Contains(b.out.String(), "etcd belongs to another cluster"), b.out.String())
}
