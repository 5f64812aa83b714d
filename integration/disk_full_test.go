package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sys/unix"
)

// disk is a small file system of its own.
type disk struct {
	t    *testing.T
	path string
}

// newDisk mounts a tmpfs of so many MiB for the length of the test.
func newDisk(t *testing.T, mib int) *disk {
	t.Helper()
	d := &disk{t: t, path: filepath.Join(t.TempDir(), "disk")}
	require.NoError(t, os.Mkdir(d.path, 0o755))
	if err := unix.Mount("tmpfs", d.path, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Fatalf("this test fills a file system of its own and may not mount one: run it as root, with the right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.path, 0); err != nil {
			t.Errorf("unmount %s: %v", d.path, err)
		}
	})
	return d
}

func (d *disk) free() int64 {
	d.t.Helper()
	var s unix.Statfs_t
	require.NoError(d.t, unix.Statfs(d.path, &s))
	return int64(s.Bavail) * s.Bsize
}

func (d *disk) foreign() string { return filepath.Join(d.path, "foreign-file") }

// stuff writes a file that is none of the broker's until no byte is left.
func (d *disk) stuff() {
	d.t.Helper()
	f, err := os.OpenFile(d.foreign(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(d.t, err)
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(block)
	}
	require.ErrorIs(d.t, err, syscall.ENOSPC)
	require.NoError(d.t, f.Close())
}

// spare takes some bytes off that file.
func (d *disk) spare(n int64) {
	d.t.Helper()
	st, err := os.Stat(d.foreign())
	require.NoError(d.t, err)
	require.NoError(d.t, os.Truncate(d.foreign(), st.Size()-n))
}

// release deletes that file.
func (d *disk) release() {
	d.t.Helper()
	require.NoError(d.t, os.Remove(d.foreign()))
}

// awaitRefusal writes until the broker refuses, and returns what it took.
func awaitRefusal(t *testing.T, n *node, w *wire, topic string, taken []string) []string {
	t.Helper()
	rnd := rand.New(rand.NewPCG(uint64(len(taken)), 5))
	n.eventually(60*time.Second, "writes are refused", func() bool {
		v := string(randomText(rnd, fmt.Sprintf("%s/%d ", topic, len(taken)), 100_000))
		a := w.produce(topic, 0, []byte(v))
		if a.err != nil {
			require.ErrorIs(t, a.err, kerr.KafkaStorageError)
			return true
		}
		require.Equal(t, int64(len(taken)), a.offset)
		taken = append(taken, v)
		return false
	})
	return taken
}

// Somebody else fills the broker's disk, and the bucket's too: writes are refused with KAFKA_STORAGE_ERROR, reads stay right,
// the process lives, and a killed one comes up again on the full disk. When only the bucket has space again, what it takes
// makes room for writes; when the disk has, they are accepted without that. Nothing that was acknowledged is lost or doubled.
func TestDiskFilledByOthers(t *testing.T) {
	t.Parallel()
	d, b := newDisk(t, 160), newDisk(t, 128)
	url := "file://" + filepath.Join(b.path, "bucket")
	n := newNode(t, "--bucket", url)
	n.dir, n.env = filepath.Join(d.path, "data"), smallLog
	n.start()
	n.tierctl("topic", "create", "probe", "--partitions", "1", "--config", "segment.bytes=1048576")
	n.tierctl("topic", "create", "load", "--partitions", "2", "--config", "segment.bytes=1048576")
	w := newWire(t, n)
	l := &ledger{acked: map[string]int64{}}
	producing, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	l.steady(producing, t, n.kafka, "load", &wg)
	n.eventually(20*time.Second, "records are acknowledged", func() bool { return l.count() > 500 })

	b.stuff()
	d.stuff()
	taken := awaitRefusal(t, n, w, "probe", nil)
	stayRefused(t, w, "probe")
	(&reader{w: w, topic: "probe", want: taken}).finish(n, 10*time.Second)
	// The cluster's state is on the same disk: it may refuse changes, but not end the process.
	if out, err := n.tryTierctl("topic", "create", "another"); err != nil {
		t.Logf("a topic can't be created on the full disk: %s", out)
	}
	n.kill()
	d.stuff()
	require.Zero(t, d.free())
	d.spare(4 << 20) // with nothing at all the start waits: TestStartOnFullDisk
	n.start()
	w = newWire(t, n)
	(&reader{w: w, topic: "probe", want: taken}).finish(n, 10*time.Second)
	taken = awaitRefusal(t, n, w, "probe", taken)
	stayRefused(t, w, "probe")

	b.release()
	began := time.Now()
	taken = writeAgain(t, n, w, "probe", taken)
	t.Logf("writes are accepted %v after the bucket has space", time.Since(began).Round(10*time.Millisecond))
	acked := l.count()
	n.eventually(20*time.Second, "the load goes on", func() bool { return l.count() > acked+500 })
	b.stuff()
	d.stuff()
	taken = awaitRefusal(t, n, w, "probe", taken)

	d.release()
	began = time.Now()
	taken = writeAgain(t, n, w, "probe", taken)
	t.Logf("writes are accepted %v after the disk has space", time.Since(began).Round(10*time.Millisecond))
	acked = l.count()
	n.eventually(20*time.Second, "the load goes on", func() bool { return l.count() > acked+500 })
	b.release()
	stop()
	wg.Wait()
	require.Zero(t, l.fails.Load())
	l.verify(t, readTopic(t, n.kafka, "load"))
	n.tierctl("topic", "roll", "load", "probe")
	n.tierctl("topic", "evict", "load", "probe")
	l.verify(t, readTopic(t, n.kafka, "load"))
	(&reader{w: w, topic: "probe", want: taken}).finish(n, 10*time.Second)
	n.tierctl("archive", "verify", "--bucket", url)
	n.stop()
}

// The broker fills its disk by itself, its bucket being on the same one: nothing can be given up there. A larger disk (here:
// a file that goes away) is all it takes.
func TestDiskFilledByProducing(t *testing.T) {
	t.Parallel()
	d := newDisk(t, 160)
	require.NoError(t, os.WriteFile(d.foreign(), make([]byte, 32<<20), 0o600))
	n := newNode(t)
	n.dir, n.env = filepath.Join(d.path, "data"), smallLog
	n.start()
	n.tierctl("topic", "create", "a", "b", "--partitions", "1", "--config", "segment.bytes=1048576")
	w := newWire(t, n)
	taken, _ := writeUntilRefused(t, w, "a", nil, 3000)
	t.Logf("%d records of 100 KB taken, %d bytes free", len(taken), d.free())
	stayRefused(t, w, "b")
	(&reader{w: w, topic: "a", want: taken}).finish(n, 20*time.Second)
	n.kill()
	n.launch()
	w = newWire(t, n)
	n.eventually(30*time.Second, "the broker is up on the full disk", func() bool {
		status, _ := n.get("/readyz")
		return status == 200
	})
	(&reader{w: w, topic: "a", want: taken}).finish(n, 20*time.Second)

	d.release()
	taken = writeAgain(t, n, w, "a", taken)
	(&reader{w: w, topic: "a", want: taken}).finish(n, 20*time.Second)
	// What is rolled takes space before its local copy gives some back, so the disk is full once more, for a moment.
	n.eventually(30*time.Second, "all that waited is rolled", func() bool {
		_, err := n.tryTierctl("topic", "roll", "a")
		return err == nil
	})
	n.tierctl("topic", "evict", "a")
	n.tierctl("archive", "verify", "--bucket", "file://"+filepath.Join(n.dir, "bucket"))
	(&reader{w: w, topic: "a", want: taken}).finish(n, 20*time.Second)
	n.stop()
	if _, err := os.Stat(filepath.Join(n.dir, "log", "quarantine")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("records were quarantined: %v", err)
	}
}

// A killed broker starts on a disk without a free byte, and the index has used up its reserve: the start waits, says so, and goes
// on by itself when there is space.
func TestStartOnFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisk(t, 160)
	n := newNode(t, "--bucket", "file://"+filepath.Join(t.TempDir(), "bucket"))
	n.dir, n.env = filepath.Join(d.path, "data"), smallLog
	n.start()
	n.tierctl("topic", "create", "a", "--partitions", "1")
	w := newWire(t, n)
	require.NoError(t, w.produce("a", 0, []byte("before")).err)
	n.kill()
	require.NoError(t, os.RemoveAll(filepath.Join(n.dir, "index", "reserve"))) // there may be none on so small a disk
	d.stuff()
	n.launch()
	n.eventually(30*time.Second, "readiness and the log name the disk", func() bool {
		_, body := n.get("/readyz")
		return strings.Contains(body, "the disk is full") && strings.Contains(n.out.String(), "the start waits until it has space")
	})
	d.release()
	n.awaitReady(60 * time.Second)
	w = newWire(t, n)
	a := w.produce("a", 0, []byte("after"))
	require.NoError(t, a.err)
	require.EqualValues(t, 1, a.offset)
	n.stop()
}
