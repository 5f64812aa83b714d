package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tierbroker/tierbroker/tier/bucket/faultproxy"
)

// smallLog makes a broker's log as small as its settings allow.
var smallLog = []string{"TIERBROKER_SEGMENT_FILE_BYTES=4MiB", "TIERBROKER_MAX_REQUEST_BYTES=4MiB", "TIERBROKER_DISK_MIN_FREE=1MiB"}

const smallBudget = 16 << 20

// writeUntilRefused writes records of 100 KB until the broker refuses one, and returns those that it took, by offset.
func writeUntilRefused(t *testing.T, w *wire, topic string, taken []string, most int) ([]string, []produced) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(uint64(len(taken)), 3))
	var answers []produced
	for len(answers) < most {
		v := string(randomText(rnd, fmt.Sprintf("%s/%d ", topic, len(taken)), 100_000))
		a := w.produce(topic, 0, []byte(v))
		answers = append(answers, a)
		if a.err != nil {
			require.ErrorIs(t, a.err, kerr.KafkaStorageError)
			return taken, answers
		}
		require.Equal(t, int64(len(taken)), a.offset)
		taken = append(taken, v)
	}
	t.Fatalf("%d records of 100 KB were taken and none refused", most)
	return nil, nil
}

// stayRefused checks that further writes are refused, not lost in silence and not left without an answer.
func stayRefused(t *testing.T, w *wire, topic string) {
	t.Helper()
	// As large as those before: the rest of the newest log file may have room for a small one.
	v := make([]byte, 100_000)
	for range 3 {
		require.ErrorIs(t, w.produce(topic, 0, v).err, kerr.KafkaStorageError)
	}
}

// writeAgain waits until the broker takes a write by itself and returns the records with that one.
func writeAgain(t *testing.T, n *node, w *wire, topic string, taken []string) []string {
	t.Helper()
	rnd := rand.New(rand.NewPCG(uint64(len(taken)), 4))
	n.eventually(60*time.Second, "writes are accepted again", func() bool {
		v := string(randomText(rnd, fmt.Sprintf("%s/%d after the fault ", topic, len(taken)), 100_000))
		a := w.produce(topic, 0, []byte(v))
		if a.err != nil {
			require.ErrorIs(t, a.err, kerr.KafkaStorageError)
			return false
		}
		require.Equal(t, int64(len(taken)), a.offset, "a refused record has an offset")
		taken = append(taken, v)
		return true
	})
	return taken
}

// With its disk budget used up because the bucket is down, a broker first slows its producers, then refuses them with an
// error on which they try again; it goes on serving what it has, and takes writes again when the bucket is back.
func TestBudgetWhileBucketIsDown(t *testing.T) {
	t.Parallel()
	r := newRig(t, append(smallLog, fmt.Sprintf("TIERBROKER_DISK_BUDGET=%d", smallBudget))...)
	n := r.n
	n.start()
	n.tierctl("topic", "create", "a", "b", "--partitions", "1", "--config", "segment.bytes=1048576")
	w := newWire(t, n)
	r.proxy.SetMode(faultproxy.Mode{Kind: faultproxy.Refuse})
	taken, answers := writeUntilRefused(t, w, "a", nil, 400)
	slowed := 0
	for i, a := range answers[:len(answers)-1] {
		require.Less(t, a.throttle, 5*time.Second)
		if a.throttle > 0 {
			slowed++
			require.GreaterOrEqual(t, i*100_000, smallBudget/2, "producers are slowed although the log has room")
		}
	}
	t.Logf("%d records taken, %d of them throttled, then refused", len(taken), slowed)
	require.GreaterOrEqual(t, len(taken)*100_000, smallBudget/2, "the budget isn't used")
	require.Positive(t, slowed, "no producer was slowed before writes were refused")
	stayRefused(t, w, "a")
	stayRefused(t, w, "b")
	(&reader{w: w, topic: "a", want: taken}).finish(n, 20*time.Second)

	// A usual producer waits for the end of the fault.
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.DefaultProduceTopic("b"))
	require.NoError(t, err)
	defer cl.Close()
	patient := make(chan error, 1)
	cl.Produce(ctx, kgo.StringRecord("patient"), func(r *kgo.Record, err error) {
		if err == nil && r.Offset != 0 {
			err = fmt.Errorf("offset %d", r.Offset)
		}
		patient <- err
	})
	select {
	case err := <-patient:
		t.Fatalf("the producer was answered while writes are refused: %v", err)
	case <-time.After(time.Second):
	}
	r.proxy.SetMode(faultproxy.Mode{})
	back := time.Now()
	taken = writeAgain(t, n, w, "a", taken)
	t.Logf("writes are accepted %v after the end of the fault", time.Since(back).Round(10*time.Millisecond))
	require.NoError(t, <-patient)

	// Going on for more than the budget: rolled files make room for new ones.
	rnd := rand.New(rand.NewPCG(1, 3))
	for written := 0; written < smallBudget*5/4; {
		v := string(randomText(rnd, fmt.Sprintf("a/%d ", len(taken)), 400_000))
		if a := w.produce("a", 0, []byte(v)); a.err == nil {
			taken, written = append(taken, v), written+len(v)
		} else if !errors.Is(a.err, kerr.KafkaStorageError) {
			t.Fatal(a.err)
		}
	}
	(&reader{w: w, topic: "a", want: taken}).finish(n, 40*time.Second)
	(&reader{w: w, topic: "b", want: []string{"patient"}}).finish(n, 20*time.Second)
	n.tierctl("topic", "roll", "a", "b")
	n.tierctl("archive", "verify", "--bucket", r.direct)
	n.stop()
	n.start()
	(&reader{w: newWire(t, n), topic: "a", want: taken}).finish(n, 40*time.Second)
	n.stop()
}

// A broker that knows its bucket starts while that is down: it takes writes and serves what is local, and the rest when
// the bucket is back. Without its index it needs the bucket to know where its partitions stand, and waits for it.
func TestStartWhileBucketIsDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := r.n
	n.start()
	n.tierctl("topic", "create", "cold", "--partitions", "2")
	n.tierctl("topic", "create", "hot", "--partitions", "1")
	first, second, hot := r.fill("cold", 0, 200, 1000), r.fill("cold", 1, 200, 1000), r.fill("hot", 0, 50, 1000)
	n.tierctl("topic", "roll", "cold")
	n.tierctl("topic", "evict", "cold")
	n.stop()

	r.proxy.SetMode(faultproxy.Mode{Kind: faultproxy.Refuse})
	n.start()
	_, health := n.get("/readyz")
	require.Contains(t, health, `"bucket"`, "the fault is not reported")
	w := newWire(t, n)
	for range 10 {
		v := fmt.Sprintf("hot/%d", len(hot))
		a := w.produce("hot", 0, []byte(v))
		require.NoError(t, a.err)
		require.Equal(t, int64(len(hot)), a.offset)
		hot = append(hot, v)
	}
	(&reader{w: w, topic: "hot", want: hot}).finish(n, 10*time.Second)
	cold := &reader{w: w, topic: "cold", want: first}
	for range 3 {
		cold.step()
	}
	require.Zero(t, cold.next)
	r.proxy.SetMode(faultproxy.Mode{})
	cold.finish(n, 20*time.Second)
	n.eventually(20*time.Second, "the bucket is no longer reported", func() bool {
		_, health := n.get("/readyz")
		return !strings.Contains(health, `"bucket"`)
	})
	n.kill()

	require.NoError(t, os.RemoveAll(filepath.Join(n.dir, "index")))
	r.proxy.SetMode(faultproxy.Mode{Kind: faultproxy.SlowDown})
	n.launch()
	n.eventually(20*time.Second, "the admin server answers", func() bool {
		status, _ := n.get("/healthz")
		return status != 0
	})
	<-time.After(time.Second)
	r.proxy.SetMode(faultproxy.Mode{})
	n.awaitReady(40 * time.Second)
	w = newWire(t, n)
	(&reader{w: w, topic: "cold", partition: 0, want: first}).finish(n, 20*time.Second)
	(&reader{w: w, topic: "cold", partition: 1, want: second}).finish(n, 20*time.Second)
	(&reader{w: w, topic: "hot", want: hot}).finish(n, 20*time.Second)
	n.stop()
}
