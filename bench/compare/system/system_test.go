package system

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tierbroker/tierbroker/bench/compare/load"
)

// Systems of every kind take minutes and want Java; without the flag there are those that Go alone installs.
var (
	systemsFlag = flag.String("systems", "kfake,nats,tierbroker-async", `systems to try, as in "kafka,nats*", or "all"`)
	recordsFlag = flag.Int("records", 20_000, "records that each system is given")
)

const (
	patient    = 3 * time.Minute
	partitions = 16
	valueBytes = 1 << 10
)

// TestMain is also the program of brokers that are part of this one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && Serve(os.Args[1:]) {
		return
	}
	os.Exit(m.Run())
}

// TestSystems lets each system take records, keep them over an orderly end and over kill -9, and give them back in order and whole, pinned
// to one processor.
func TestSystems(t *testing.T) {
	chosen, err := Choose(*systemsFlag)
	require.NoError(t, err)
	for _, s := range chosen {
		t.Run(s.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			if s.Install != nil {
				say := func(line string) { t.Log(line) }
				require.NoError(t, s.Install(ctx, say))
				began := time.Now()
				require.NoError(t, s.Install(ctx, say))
				require.Less(t, time.Since(began), 30*time.Second, "a second time there is nothing to do")
			}
			try(ctx, t, s)
		})
	}
}

func try(ctx context.Context, t *testing.T, s System) {
	place := Place{Dir: filepath.Join(t.TempDir(), "data"), CPUs: []int{runtime.NumCPU() - 1}}
	topic := load.Topic{Name: "events", Partitions: partitions, Configs: s.TopicConfigs}
	r := start(ctx, t, s, place)
	write(ctx, t, s, r, topic, *recordsFlag)
	read(ctx, t, s, r, topic, *recordsFlag)
	if r.Tier != nil {
		began := time.Now()
		require.NoError(t, r.Tier(ctx, topic.Name))
		t.Logf("moved within %v", time.Since(began).Round(time.Millisecond))
		read(ctx, t, s, r, topic, *recordsFlag)
	}
	pids := r.PIDs()
	require.NoError(t, r.Stop(ctx))
	gone(t, pids)
	r = start(ctx, t, s, place)
	read(ctx, t, s, r, topic, *recordsFlag)
	pids = r.PIDs()
	require.NoError(t, r.Kill())
	gone(t, pids)
	r = start(ctx, t, s, place)
	read(ctx, t, s, r, topic, *recordsFlag)
	require.NoError(t, r.Kill())
}

// start starts a system and looks whether every process of it is where it should be; it is killed at the end if it still runs.
func start(ctx context.Context, t *testing.T, s System, p Place) *Running {
	t.Helper()
	began := time.Now()
	r, err := s.Start(ctx, p)
	require.NoError(t, err)
	t.Logf("ready within %v", time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		if slices.ContainsFunc(r.PIDs(), alive) {
			require.NoError(t, r.Kill())
		}
	})
	var want unix.CPUSet
	for _, n := range p.CPUs {
		want.Set(n)
	}
	require.NotEmpty(t, r.PIDs())
	for _, pid := range r.PIDs() {
		var got unix.CPUSet
		require.NoError(t, unix.SchedGetaffinity(pid, &got))
		require.Equal(t, want, got, "processors of process %d", pid)
	}
	return r
}

func alive(pid int) bool { return unix.Kill(pid, 0) == nil }

func gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		require.False(t, alive(pid), "process %d is still there", pid)
	}
}

func open(ctx context.Context, t *testing.T, s System, r *Running) load.Driver {
	t.Helper()
	require.Contains(t, load.Drivers, s.Protocol)
	d, err := load.Drivers[s.Protocol](ctx, r.Address)
	require.NoError(t, err)
	return d
}

// write sends n records, each with its place in its partition at the front.
func write(ctx context.Context, t *testing.T, s System, r *Running, topic load.Topic, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	d := open(ctx, t, s, r)
	require.NoError(t, d.CreateTopic(ctx, topic))
	p, err := d.Producer(topic, load.ProducerOptions{Acks: -1, Linger: 5 * time.Millisecond, BatchBytes: 256 << 10, Buffered: 10_000})
	require.NoError(t, err)
	var mu sync.Mutex
	var acked int
	var failed error
	began := time.Now()
	for i := range n {
		p.Send(ctx, int32(i%partitions), value(i/partitions), func(err error) {
			mu.Lock()
			defer mu.Unlock()
			acked++
			failed = cmp.Or(failed, err)
		})
	}
	require.NoError(t, p.Flush(ctx))
	took := time.Since(began)
	mu.Lock()
	defer mu.Unlock()
	require.NoError(t, failed)
	require.Equal(t, n, acked, "every record is answered once Flush returns")
	t.Logf("wrote %.0f MB/s", float64(n)*valueBytes/1e6/took.Seconds())
	require.NoError(t, p.Close())
	require.NoError(t, d.Close())
}

// value has its number in front of bytes that don't get smaller.
func value(i int) []byte {
	v := make([]byte, 8, valueBytes)
	binary.BigEndian.PutUint64(v, uint64(i))
	for x := uint64(i); len(v) < valueBytes; {
		x = x*6364136223846793005 + 1442695040888963407
		v = binary.BigEndian.AppendUint64(v, x)
	}
	return v
}

// read takes all n records, half of the partitions with a consumer each.
func read(ctx context.Context, t *testing.T, s System, r *Running, topic load.Topic, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	d := open(ctx, t, s, r)
	began := time.Now()
	for half := range 2 {
		o := load.ConsumerOptions{FromStart: true, FetchBytes: 1 << 20}
		for i := half; i < partitions; i += 2 {
			o.Partitions = append(o.Partitions, int32(i))
		}
		c, err := d.Consumer(topic, o)
		require.NoError(t, err)
		next := map[int32]int{}
		wrong := ""
		for got := 0; got < n/2; {
			m, err := c.Poll(ctx, func(partition int32, offset int64, v []byte) {
				if want := next[partition]; !bytes.Equal(v, value(want)) || !slices.Contains(o.Partitions, partition) {
					wrong = fmt.Sprintf("record %d of partition %d, at offset %d, begins %x", want, partition, offset, v[:min(len(v), 8)])
				}
				next[partition]++
			})
			require.NoError(t, err, "after %d records", got)
			got += m
		}
		require.Empty(t, wrong)
		for _, i := range o.Partitions {
			require.Equal(t, (n-int(i)+partitions-1)/partitions, next[i], "records of partition %d", i)
		}
		require.NoError(t, c.Close())
	}
	t.Logf("read %.0f MB/s", float64(n)*valueBytes/1e6/time.Since(began).Seconds())
	require.NoError(t, d.Close())
}
