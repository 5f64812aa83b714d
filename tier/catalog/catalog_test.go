package catalog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tierbroker/tierbroker/cluster"
	"github.com/tierbroker/tierbroker/tier/bucket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func options(b bucket.Bucket) Options {
	return Options{Bucket: b, ClusterID: "cluster-1", Incarnation: "inc-1", Create: true, Quiet: 20 * time.Millisecond,
		Keep: 3, Now: func() int64 { return 1234 }}
}

func TestRootIsMadeOnceAndChecked(t *testing.T) {
	ctx, b := testContext(t), bucket.NewMemory()
	o := options(b)
	o.Create = false
	_, err := Open(ctx, o)
	require.ErrorIs(t, err, ErrNoRoot, "a cluster with topics and an empty bucket do not fit")
	o.Create = true
	c, err := Open(ctx, o)
	require.NoError(t, err)
	require.Equal(t, int64(1234), c.Root().CreatedAt)
	o.Create = false
	again, err := Open(ctx, o)
	require.NoError(t, err)
	require.Equal(t, c.Root(), again.Root())

	o.ClusterID, o.Create = "cluster-2", true
	_, err = Open(ctx, o)
	require.ErrorIs(t, err, ErrOtherCluster)
	require.ErrorContains(t, err, "belongs to cluster cluster-1, but this node is of cluster cluster-2")
	o.ClusterID, o.Incarnation = "cluster-1", "inc-0"
	_, err = Open(ctx, o)
	require.ErrorIs(t, err, ErrOtherCluster)
	require.ErrorContains(t, err, "restored elsewhere")
	o.ClusterID = "no/good"
	_, err = Open(ctx, o)
	require.Error(t, err)
}

// TestClaimSurvivesEveryFault fails the k-th call of the claim, before or after it
// took effect, for every k.
func TestClaimSurvivesEveryFault(t *testing.T) {
	ctx := testContext(t)
	for k := 1; k <= 4; k++ {
		for name, plan := range map[string]bucket.Plan{
			"before": bucket.FailAt(k, bucket.NewError("put", RootKey, bucket.ErrUnavailable, nil)),
			"after":  bucket.FailAfterAt(k, bucket.NewError("put", RootKey, bucket.ErrUnavailable, nil)),
			"412":    bucket.FailAfterAt(k, bucket.NewError("put", RootKey, bucket.ErrPrecondition, nil)),
		} {
			b := bucket.NewMemory()
			f := bucket.NewFault(b, plan)
			c, err := Open(ctx, options(f))
			if name == "412" && err != nil {
				require.Error(t, err, "a read never answers 412")
				continue
			}
			require.NoError(t, err, "call %d failed %s", k, name)
			root, err := ReadRoot(ctx, b)
			require.NoError(t, err)
			require.Equal(t, c.Root(), root)
		}
	}
}

func TestRacingClaimsHaveOneWinner(t *testing.T) {
	ctx, b := testContext(t), bucket.NewMemory()
	var wg sync.WaitGroup
	won := make(chan Root, 8)
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			o := options(b)
			o.ClusterID = fmt.Sprint("cluster-", i)
			if c, err := Open(ctx, o); err == nil {
				won <- c.Root()
			} else if !errors.Is(err, ErrOtherCluster) {
				t.Errorf("claim %d: %v", i, err)
			}
		}()
	}
	wg.Wait()
	require.Len(t, won, 1)
}

func startCluster(t testing.TB) *cluster.Client {
	c, err := cluster.Start(testContext(t), cluster.Options{Embedded: &cluster.EmbeddedOptions{Dir: t.TempDir()},
		ClusterID: "cluster-1", Incarnation: "inc-1"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// start runs a catalog and returns what stops it.
func start(t testing.TB, o Options) (*Catalog, func()) {
	c, err := Open(testContext(t), o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop := sync.OnceFunc(func() { cancel(); require.NoError(t, <-done) })
	t.Cleanup(stop)
	return c, stop
}

func (c *Catalog) until(t testing.TB, cond func(Status) bool) Status {
	var s Status
	require.Eventually(t, func() bool { s = c.Status(); return cond(s) }, 20*time.Second, 2*time.Millisecond)
	return s
}

func TestSnapshotsFollowTheCluster(t *testing.T) {
	ctx, b, cl := testContext(t), bucket.NewMemory(), startCluster(t)
	var mu sync.Mutex
	var calls []string
	o := options(bucket.NewTrace(b, func(line string) { mu.Lock(); calls = append(calls, line); mu.Unlock() }))
	o.Images = cl
	c, stop := start(t, o)
	current := func(rev int64) func(Status) bool {
		return func(s Status) bool { return s.Err == nil && !s.Behind && s.Revision >= rev }
	}
	c.until(t, current(0))
	first, err := cl.CreateTopic(ctx, cluster.TopicSpec{Name: "one", Partitions: 3, Configs: map[string]string{"retention.ms": "-1"}})
	require.NoError(t, err)
	c.until(t, current(first.Revision))
	require.NoError(t, cl.AlterBrokerConfig(ctx, cluster.DefaultConfig, []cluster.ConfigOp{{Name: "log.retention.ms", Value: "5"}}, false))
	c.until(t, current(cl.Image().Revision()))

	s, damaged, err := Latest(ctx, b, headOp(), "inc-1")
	require.NoError(t, err)
	require.Empty(t, damaged)
	require.Equal(t, []Topic{{Name: "one", ID: first.ID, Partitions: 3, Configs: map[string]string{"retention.ms": "-1"},
		CreatedAt: first.CreatedAt, Version: 1}}, s.Topics)
	require.Equal(t, map[string]map[string]string{"default": {"log.retention.ms": "5"}}, s.Config)

	// Nothing of this concerns the catalog: no call is made.
	mu.Lock()
	before := len(calls)
	mu.Unlock()
	session, err := cl.Register(ctx, cluster.Broker{ID: 1, Incarnation: "r"}, 5*time.Second)
	require.NoError(t, err)
	_, err = cl.AllocateProducerIDs(ctx, 1000)
	require.NoError(t, err)
	require.NoError(t, session.Close())
	require.Never(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(calls) > before }, 200*time.Millisecond, 20*time.Millisecond)

	// A burst of changes is one snapshot, and old ones go.
	for i := range 20 {
		_, err := cl.CreateTopic(ctx, cluster.TopicSpec{Name: fmt.Sprint("burst-", i), Partitions: 1})
		require.NoError(t, err)
	}
	c.until(t, current(cl.Image().TopicByName("burst-19").Revision))
	stop()
	revisions, err := Revisions(ctx, b, sweepOp(), "inc-1")
	require.NoError(t, err)
	require.LessOrEqual(t, len(revisions), 3)
	mu.Lock()
	puts := 0
	for _, l := range calls {
		if strings.HasPrefix(l, "put cluster/inc-1/") {
			puts++
		}
	}
	mu.Unlock()
	require.LessOrEqual(t, puts, 8)

	// The next controller finds the copy current and writes nothing.
	mu.Lock()
	calls = nil
	mu.Unlock()
	c, stop = start(t, o)
	c.until(t, current(0))
	stop()
	mu.Lock()
	defer mu.Unlock()
	for _, l := range calls {
		require.False(t, strings.HasPrefix(l, "put "), l)
	}
}

func TestCallsOfATopicCreation(t *testing.T) {
	ctx, cl := testContext(t), startCluster(t)
	var mu sync.Mutex
	var calls []string
	o := options(bucket.NewTrace(bucket.NewMemory(), func(line string) { mu.Lock(); calls = append(calls, line); mu.Unlock() }))
	o.Images = cl
	_, err := cl.CreateTopic(ctx, cluster.TopicSpec{Name: "one", Partitions: 3})
	require.NoError(t, err)
	c, stop := start(t, o)
	s := c.until(t, func(s Status) bool { return s.Revision > 0 })
	stop()
	var verbs []string
	for _, l := range calls {
		f := strings.Fields(strings.Replace(l, fmt.Sprintf("%019d", s.Revision), "REV", 1))
		verbs = append(verbs, f[0]+" "+f[1])
	}
	require.Equal(t, []string{
		"get cluster/root", // nothing there
		"put cluster/root", // create only
		"get cluster/root", // read back
		"list cluster/inc-1/",
		"put cluster/inc-1/REV",
		"list cluster/inc-1/", // old ones to remove
	}, verbs)
}

func TestOutageDelaysSnapshots(t *testing.T) {
	ctx, b, cl := testContext(t), bucket.NewMemory(), startCluster(t)
	f := bucket.NewFault(b, nil)
	o := options(f)
	o.Images = cl
	c, stop := start(t, o)
	c.until(t, func(s Status) bool { return s.Revision > 0 })
	f.SetPlan(func(bucket.Call) bucket.Action {
		return bucket.Action{Before: bucket.NewError("x", "", bucket.ErrUnavailable, nil)}
	})
	topic, err := cl.CreateTopic(ctx, cluster.TopicSpec{Name: "one", Partitions: 3})
	require.NoError(t, err)
	s := c.until(t, func(s Status) bool { return s.Err != nil })
	require.True(t, s.Behind)
	f.SetPlan(nil)
	c.until(t, func(s Status) bool { return s.Err == nil && s.Revision >= topic.Revision })
	stop()
}

func TestLatestPassesOverDamage(t *testing.T) {
	ctx, b := testContext(t), bucket.NewMemory()
	_, _, err := Latest(ctx, b, headOp(), "inc-1")
	require.ErrorIs(t, err, ErrNoSnapshot)
	put := func(rev int64, mangle func([]byte)) {
		s := &Snapshot{ClusterID: "c", Incarnation: "inc-1", Revision: rev}
		raw, err := s.Encode()
		require.NoError(t, err)
		mangle(raw)
		_, err = b.Put(ctx, headOp(), SnapshotKey("inc-1", rev), bucket.BytesBody(raw), bucket.Condition{})
		require.NoError(t, err)
	}
	put(5, func([]byte) {})
	put(9, func([]byte) {})
	put(10, func(raw []byte) { raw[len(raw)-1] ^= 1 })
	put(300, func(raw []byte) { raw[0] = 'X' })
	s, damaged, err := Latest(ctx, b, headOp(), "inc-1")
	require.NoError(t, err)
	require.Equal(t, int64(9), s.Revision)
	require.Len(t, damaged, 2)
}

func TestDecodersRefuse(t *testing.T) {
	topic := Topic{Name: "a", Partitions: 1}
	topic.ID[3] = 7
	good := Snapshot{ClusterID: "c", Incarnation: "i", Content: Content{Topics: []Topic{topic}}}
	raw, err := good.Encode()
	require.NoError(t, err)
	_, err = DecodeSnapshot(raw)
	require.NoError(t, err)
	_, err = DecodeRoot(raw)
	require.ErrorIs(t, err, ErrCorrupt, "another kind")
	for name, change := range map[string]func(*Snapshot){
		"no cluster":    func(s *Snapshot) { s.ClusterID = "" },
		"bad name":      func(s *Snapshot) { s.Topics[0].Name = "/" },
		"no partitions": func(s *Snapshot) { s.Topics[0].Partitions = 0 },
		"no id":         func(s *Snapshot) { s.Topics[0].ID = [16]byte{} },
		"twice":         func(s *Snapshot) { s.Topics = append(s.Topics, s.Topics[0]) },
	} {
		bad := good
		bad.Topics = []Topic{topic}
		change(&bad)
		raw, err := bad.Encode()
		require.NoError(t, err)
		_, err = DecodeSnapshot(raw)
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
	for i := range raw {
		bad := append([]byte(nil), raw...)
		bad[i] ^= 0x40
		_, err := DecodeSnapshot(bad)
		require.Error(t, err, "flipped bit in byte %d", i)
		_, err = DecodeSnapshot(raw[:i])
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

func TestRootExampleOfTheDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/format/catalog.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(doc), "```hex\n")
	require.True(t, ok)
	block, _, _ := strings.Cut(rest, "```")
	var raw []byte
	for line := range strings.Lines(block) {
		body, _, _ := strings.Cut(line[10:], "|")
		b, err := hex.DecodeString(strings.Join(strings.Fields(body), ""))
		require.NoError(t, err)
		raw = append(raw, b...)
	}
	r, err := DecodeRoot(raw)
	require.NoError(t, err)
	require.Equal(t, Root{ClusterID: "dL7sQ3hBSDW1nxkYv9mZbg", Incarnation: "Qk2vM0sGQ6yT8dXrW1uJcA", CreatedAt: 1767225600000,
		Version: 1, Attempt: "mJ4c8aLfSA2k0Yp6Zt3XwQ"}, r)
	again, err := r.Encode()
	require.NoError(t, err)
	require.Equal(t, raw, again)
}

func FuzzDecode(f *testing.F) {
	root := Root{ClusterID: "c", Incarnation: "i", Version: 1, Attempt: "a"}
	raw, err := root.Encode()
	require.NoError(f, err)
	f.Add(raw)
	s := Snapshot{ClusterID: "c", Incarnation: "i"}
	if raw, err = s.Encode(); err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte("TBCL"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= headerLen {
			// Most inputs would end at the checksum: give them a right one.
			sum := sum(b)
			b[12], b[13], b[14], b[15] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
		}
		if r, err := DecodeRoot(b); err == nil {
			require.NoError(t, r.check())
		}
		if s, err := DecodeSnapshot(b); err == nil {
			require.NoError(t, s.check())
		}
	})
}
