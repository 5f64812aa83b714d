package integration

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/tier/bucket/faultproxy"
	"github.com/tierbroker/tierbroker/tier/bucket/s3/s3test"
)

// mesh is a cluster of processes over one S3 server. Between each process and the server stands a proxy that can spoil
// what passes, and between each broker and each controller's etcd a link that can be cut.
type mesh struct {
	t           testing.TB
	server      *s3test.Server
	controllers []*proc
	brokers     []*proc  // brokers[i] has id i+1
	etcd        []string // where each controller's etcd listens
}

// proc is one process of a mesh.
type proc struct {
	*node
	id     int32
	bucket *faultproxy.Proxy
	// peerAddr is where it takes calls of other nodes.
	peerAddr string
	etcd     []*link // to each controller; none for a controller

}

// meshOptions say what a mesh consists of.
type meshOptions struct {
	brokers, controllers int
	lease                time.Duration // default 3 s
	env                  []string      // further settings of every process
	scheme               string        // of etcd's addresses; default http
}

func newMesh(t testing.TB, o meshOptions) *mesh {
	t.Helper()
	m := &mesh{t: t, server: s3test.Start(t)}
	if o.lease == 0 {
		o.lease = 3 * time.Second
	}
	env := append(m.server.Environ(), "TIERBROKER_LEASE_TTL="+o.lease.String(), "TIERBROKER_SEGMENT_FILE_BYTES=16MiB", "TIERBROKER_MAX_REQUEST_BYTES=8MiB")
	env = append(env, o.env...)
	var quorum []string
	for i := range o.controllers {
		m.etcd = append(m.etcd, fmt.Sprintf("127.0.0.1:%d", freePort(t)))
		quorum = append(quorum, fmt.Sprintf("%d@127.0.0.1:%d", 101+i, freePort(t)))
	}
	for i := range o.controllers {
		args := []string{"--roles", "controller", "--etcd-listen", m.etcd[i]}
		if o.controllers > 1 {
			args = append(args, "--controllers", strings.Join(quorum, ","))
		}
		m.controllers = append(m.controllers, m.proc(int32(101+i), env, args))
	}
	for i := range o.brokers {
		b := m.proc(int32(i+1), env, []string{"--roles", "broker"})
		var urls []string
		for _, addr := range m.etcd {
			l := newLink(t, addr)
			b.etcd = append(b.etcd, l)
			urls = append(urls, cmp.Or(o.scheme, "http")+"://"+l.addr())
		}
		b.node.args = append(b.node.args, "--etcd-endpoints", strings.Join(urls, ","))
		m.brokers = append(m.brokers, b)
	}
	return m
}

func (m *mesh) proc(id int32, env, args []string) *proc {
	p, err := faultproxy.Start(m.server.Addr)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { require.NoError(m.t, p.Close()) })
	peer := fmt.Sprintf("127.0.0.1:%d", freePort(m.t))
	n := newNode(m.t, append([]string{"--broker-id", fmt.Sprint(id), "--bucket", m.server.URLAt(p.Addr(), "p").String(), "--peer-listen", peer}, args...)...)
	n.env = env
	n.name = fmt.Sprintf("node %d", id)
	return &proc{node: n, id: id, bucket: p, peerAddr: peer}
}

// start runs all processes and waits until they are ready.
func (m *mesh) start() {
	m.t.Helper()
	for _, c := range m.controllers {
		c.launch()
	}
	for _, c := range m.controllers {
		c.awaitReady(time.Minute)
	}
	for _, b := range m.brokers {
		b.launch()
	}
	for _, b := range m.brokers {
		b.awaitReady(time.Minute)
	}
}

// seeds are the Kafka addresses of all brokers.
func (m *mesh) seeds() []string {
	var list []string
	for _, b := range m.brokers {
		list = append(list, b.kafka)
	}
	return list
}

// client connects to the cluster; it is closed at the end of the test. Its retries are quick.
func (m *mesh) client(opts ...kgo.Opt) *kgo.Client {
	m.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(m.seeds()...), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond })}, opts...)...)
	require.NoError(m.t, err)
	m.t.Cleanup(cl.Close)
	return cl
}

// createTopic makes a topic and waits until every partition has a leader.
func (m *mesh) createTopic(name string, partitions int32, configs map[string]string) {
	m.t.Helper()
	adm := kadm.NewClient(m.client())
	values := map[string]*string{}
	for k, v := range configs {
		values[k] = &v
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	_, err := adm.CreateTopic(ctx, partitions, -1, values, name)
	require.NoError(m.t, err)
	m.eventually(time.Minute, "every partition of "+name+" has a leader", func() bool {
		leaders, err := m.leaders(adm, name)
		return err == nil && len(leaders) == int(partitions)
	})
}

// leaders returns the leader of each partition of a topic that has one, as clients see them.
func (m *mesh) leaders(adm *kadm.Client, topic string) (map[int32]int32, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 10*time.Second)
	defer cancel()
	list, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := map[int32]int32{}
	for _, p := range list[topic].Partitions {
		if p.Err == nil && p.Leader >= 0 {
			out[p.Partition] = p.Leader
		}
	}
	return out, nil
}

// epochs returns the leader epoch of every partition of a topic.
func (m *mesh) epochs(topic string) map[int32]int32 {
	m.t.Helper()
	out := map[int32]int32{}
	for _, p := range m.describe(topic) {
		out[p.Partition] = p.LeaderEpoch
	}
	return out
}

// ownedBy returns the lowest partition of a topic that a broker leads.
func (m *mesh) ownedBy(broker int32, topic string) int32 {
	m.t.Helper()
	for _, p := range m.describe(topic) {
		if p.Leader == broker {
			return p.Partition
		}
	}
	m.t.Fatalf("broker %d leads no partition of %s", broker, topic)
	return -1
}

// describe returns the partitions of a topic, sorted, as clients see them.
func (m *mesh) describe(topic string) []kadm.PartitionDetail {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), 30*time.Second)
	defer cancel()
	list, err := kadm.NewClient(m.client()).ListTopics(ctx, topic)
	require.NoError(m.t, err)
	require.NoError(m.t, list[topic].Err)
	return list[topic].Partitions.Sorted()
}

// eventually waits for a condition that the cluster must reach by itself.
func (m *mesh) eventually(limit time.Duration, what string, ok func() bool) {
	m.t.Helper()
	require.Eventually(m.t, ok, limit, 50*time.Millisecond, "not within %v: %s", limit, what)
}

// pause is SIGSTOP: the process stands still and knows nothing of it. The signal is on its way when kill returns: on a busy machine
// the process may still answer something, so its threads are looked at.
func (b *proc) pause() {
	b.t.Helper()
	b.signal(syscall.SIGSTOP)
	require.Eventually(b.t, b.paused, 10*time.Second, time.Millisecond, "the process goes on after SIGSTOP")
}

// paused says whether all threads have stopped.
func (b *proc) paused() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", b.cmd.Process.Pid))
	require.NoError(b.t, err)
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			return false // it has just ended
		}
		// The state is behind the name, which is in parentheses and may have some in it.
		if at := bytes.LastIndexByte(stat, ')'); at < 0 || !bytes.HasPrefix(stat[at:], []byte(") T")) {
			return false
		}
	}
	return len(threads) > 0
}

// resume is SIGCONT.
func (b *proc) resume() { b.signal(syscall.SIGCONT) }

func (b *proc) signal(s syscall.Signal) {
	b.t.Helper()
	require.NoError(b.t, b.cmd.Process.Signal(s))
}

// wipe removes everything the process has stored. It must not run.
func (b *proc) wipe() {
	b.t.Helper()
	require.Nil(b.t, b.cmd, "the process runs")
	require.NoError(b.t, os.RemoveAll(b.dir))
}

// links sets the state of the ways to every etcd.
func (b *proc) links(s linkState) {
	for _, l := range b.etcd {
		l.set(s)
	}
}

// ready tells whether the process says it is.
func (b *proc) ready() bool {
	status, _ := b.get("/readyz")
	return status == 200
}
