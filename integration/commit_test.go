package integration

import (
	"context"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var commitKills = flag.Int("commit-kills", 20, "how often TestCommitSurvivesKill kills the broker")

// keeper commits and reads a group's offsets by a client that is quick to try again.
type keeper struct {
	t   *testing.T
	cl  *kgo.Client
	adm *kadm.Client
}

func newKeeper(t *testing.T, n *node) *keeper {
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.MetadataMinAge(10*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return &keeper{t: t, cl: cl, adm: kadm.NewClient(cl)}
}

// insist calls f until it works; only what a client may repeat is repeated.
func (k *keeper) insist(ctx context.Context, f func() error) {
	k.t.Helper()
	for {
		err := f()
		if err == nil {
			return
		}
		require.NoError(k.t, ctx.Err(), "last: %v", err)
		require.True(k.t, kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err), "%v", err)
	}
}

// commit returns when the broker has acknowledged offset at+p for each partition p of the topic work.
func (k *keeper) commit(ctx context.Context, group string, at int64) {
	k.t.Helper()
	var os kadm.Offsets
	for p := range int32(groupPartitions) {
		os.AddOffset("work", p, at+int64(p), -1)
	}
	k.insist(ctx, func() error {
		resp, err := k.adm.CommitOffsets(ctx, group, os)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
}

// committed returns the offsets of the topic work by partition.
func (k *keeper) committed(ctx context.Context, group string) map[int32]int64 {
	k.t.Helper()
	got := map[int32]int64{}
	k.insist(ctx, func() error {
		resp, err := k.adm.FetchOffsets(ctx, group)
		if err == nil {
			err = resp.Error()
		}
		resp.Each(func(o kadm.OffsetResponse) { got[o.Partition] = o.At })
		return err
	})
	return got
}

func wholeCommit(at int64) map[int32]int64 {
	all := map[int32]int64{}
	for p := range int32(groupPartitions) {
		all[p] = at + int64(p)
	}
	return all
}

// TestCommitSurvivesKill: an acknowledged commit is there after kill -9, every time, and so is that of every earlier group.
func TestCommitSurvivesKill(t *testing.T) {
	t.Parallel()
	n := groupNode(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+time.Duration(*commitKills)*10*time.Second)
	defer cancel()
	groups := []string{"first", "second", "third"}
	want := map[string]int64{}
	commits, began := 0, time.Now()
	k := newKeeper(t, n)
	for round := range *commitKills {
		group := groups[round%len(groups)]
		for i := range 1 + round%5 {
			want[group] = int64(1000*round + i)
			k.commit(ctx, group, want[group])
			commits++
		}
		n.kill() // right behind the acknowledgement
		k.cl.Close()
		n.start()
		k = newKeeper(t, n)
		for g, at := range want {
			require.Equal(t, wholeCommit(at), k.committed(ctx, g), "round %d, group %s", round, g)
		}
	}
	took := time.Since(began)
	t.Logf("%d kills, %d commits of %d partitions, %v, %v for each kill", *commitKills, commits, groupPartitions,
		took.Round(100*time.Millisecond), (took / time.Duration(max(1, *commitKills))).Round(time.Millisecond))
}

// loseData removes all of a stopped broker's data directory but the cluster's state, which is etcd's and not the broker's.
func (n *node) loseData() {
	n.t.Helper()
	entries, err := os.ReadDir(n.dir)
	require.NoError(n.t, err)
	for _, e := range entries {
		if e.Name() != "etcd" {
			require.NoError(n.t, os.RemoveAll(filepath.Join(n.dir, e.Name())))
		}
	}
}

// TestCommitsInTheBucket: a broker that loses its commit log and index has every commit that was rolled.
func TestCommitsInTheBucket(t *testing.T) {
	t.Parallel()
	n := newNode(t, "--bucket", "file://"+filepath.Join(t.TempDir(), "bucket"))
	n.env = []string{"TIERBROKER_LEASE_TTL=2s", "TIERBROKER_KAFKA_CONFIG=offsets.topic.num.partitions=8"}
	n.start()
	n.tierctl("topic", "create", "work", "--partitions", "12")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	rolled := map[string]int64{"alpha": 1000, "beta": 2000, "gamma": 3000, "delta": 4000}
	k := newKeeper(t, n)
	for _, g := range slices.Sorted(maps.Keys(rolled)) {
		for i := range int64(20) {
			k.commit(ctx, g, rolled[g]-19+i)
		}
	}
	n.tierctl("topic", "roll", "work")
	n.tierctl("topic", "roll", "__consumer_offsets")
	later := map[string]int64{"alpha": 5000, "epsilon": 6000}
	for g, at := range later {
		k.commit(ctx, g, at)
	}
	k.cl.Close()
	n.kill()
	n.loseData()
	n.start()
	k = newKeeper(t, n)
	for g, at := range rolled {
		got := k.committed(ctx, g)
		require.Len(t, got, groupPartitions, "group %s", g)
		for p, o := range got {
			// A commit of after the roll may have reached the bucket as well.
			if o != later[g]+int64(p) || later[g] == 0 {
				require.Equal(t, at+int64(p), o, "group %s, partition %d", g, p)
			}
		}
	}
	n.eventually(time.Minute, "the log says what is lost", func() bool {
		return strings.Contains(n.out.String(), "what groups committed after the newest record that was recovered is gone") &&
			strings.Contains(n.out.String(), "recovered_until")
	})
	// It goes on from there, over another loss.
	k.commit(ctx, "alpha", 7000)
	n.tierctl("topic", "roll", "__consumer_offsets")
	k.cl.Close()
	n.stop()
	n.loseData()
	n.start()
	k = newKeeper(t, n)
	require.Equal(t, wholeCommit(7000), k.committed(ctx, "alpha"))
	for _, g := range []string{"beta", "gamma", "delta"} {
		require.Equal(t, wholeCommit(rolled[g]), k.committed(ctx, g), "group %s", g)
	}
}
