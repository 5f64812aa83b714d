package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tierbroker/tierbroker/bench/drive"
	"github.com/tierbroker/tierbroker/bench/process"
)

// built is the folder of the program, "" while nobody has needed it.
var built string

// program builds the daemon once.
var program = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "tierbroker-bench-*"); err != nil {
		return "", err
	}
	path := filepath.Join(built, "tierbroker")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/tierbroker").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build the broker: %w\n%s", err, out)
	}
	return path, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" && os.RemoveAll(built) != nil {
		code = 1
	}
	os.Exit(code)
}

const (
	mib     = 1 << 20
	patient = 2 * time.Minute
)

// startBroker starts a broker over a directory; it is killed at the end of the benchmark unless it was stopped before.
func startBroker(b *testing.B, dir string, args ...string) *process.Broker {
	path, err := program()
	require.NoError(b, err)
	ctx, cancel := context.WithTimeout(b.Context(), patient)
	defer cancel()
	broker, err := process.Start(ctx, process.Options{Binary: path, Dir: dir, Args: append([]string{"--log-level", "warn"}, args...)})
	require.NoError(b, err)
	return broker
}

func stopBroker(b *testing.B, broker *process.Broker) {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	require.NoError(b, broker.Stop(ctx))
}

// BenchmarkStart starts brokers over fresh directories (fresh-ms) and again over what they left (again-ms), and looks at their
// memory after they were idle for a while. The aims: below 2000 ms, below 150 MiB.
func BenchmarkStart(b *testing.B) {
	var fresh, again []time.Duration
	var anonymous, file int64
	for b.Loop() {
		dir := filepath.Join(b.TempDir(), "data")
		broker := startBroker(b, dir)
		fresh = append(fresh, broker.StartUp)
		time.Sleep(2 * time.Second)
		u, err := broker.Usage()
		require.NoError(b, err)
		anonymous, file = max(anonymous, u.Anonymous), max(file, u.File)
		stopBroker(b, broker)
		broker = startBroker(b, dir)
		again = append(again, broker.StartUp)
		stopBroker(b, broker)
	}
	b.ReportMetric(float64(median(fresh).Milliseconds()), "fresh-ms")
	b.ReportMetric(float64(median(again).Milliseconds()), "again-ms")
	b.ReportMetric(float64(anonymous)/mib, "idle-anon-MiB")
	b.ReportMetric(float64(file)/mib, "idle-file-MiB")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkProcess drives a broker with a directory as its bucket; data is rolled as usual. CPU seconds are the broker's, the
// client runs on the same cores. The page cache is full, as it is on any machine after a while.
func BenchmarkProcess(b *testing.B) {
	var ballast process.Ballast
	defer func() { require.NoError(b, ballast.Close()) }()
	for _, c := range []struct {
		name   string
		change func(*drive.Options)
	}{
		{"raw/sync/batch=256KiB", func(*drive.Options) {}},
		{"raw/async/batch=256KiB", func(o *drive.Options) { o.Durability = "async" }},
		{"raw/sync/batch=16KiB/per-request=10", func(o *drive.Options) { o.Batch, o.PerRequest, o.Clients = 16<<10, 10, 4; o.Partitions = 40 }},
		{"kgo/sync", func(o *drive.Options) { o.Client, o.Batch = drive.Kgo, 1<<20 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			require.NoError(b, ballast.Fill(b.TempDir()))
			broker := startBroker(b, filepath.Join(b.TempDir(), "data"))
			defer stopBroker(b, broker)
			o := drive.Default()
			c.change(&o)
			for b.Loop() {
				require.NoError(b, drive.EnsureTopic(b.Context(), broker.Kafka, &o))
				for _, phase := range []string{drive.Produce, drive.Consume} {
					r, err := drive.Measure(b.Context(), broker, &o, phase)
					require.NoError(b, err)
					b.ReportMetric(r.MB, phase+"-MB/s")
					b.ReportMetric(r.CPUPerGB, phase+"-cpu-s/GB")
					if phase == drive.Produce {
						b.ReportMetric(r.PerGB["put"], "puts/GB")
						b.ReportMetric(r.WritePerGB, "disk-GB/GB")
					}
					b.ReportMetric(r.Anonymous, phase+"-anon-MiB")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkPartitions writes the same requests, five batches of 16 KiB in each, each to the next partitions in a round, to a broker
// with ten partitions and to one with ten thousand. Batches are equally large and a request holds as many of them on both sides, so
// what differs is the broker's own cost of a partition, and not that a producer which spreads its records over more partitions makes
// smaller batches. They take turns, who goes first too, and dirty pages are written back in between. x-ten is the speed with ten
// thousand in units of that with ten (the median of the turns), x-cpu the same for the broker's processor time; 0.8 is the aim,
// and below 1024 MiB.
func BenchmarkPartitions(b *testing.B) {
	type side struct {
		broker *process.Broker
		o      drive.Options
		r      []drive.Result
	}
	var sides [2]side
	for i, n := range []int{10, 10_000} {
		s := &sides[i]
		s.broker = startBroker(b, filepath.Join(b.TempDir(), "data"))
		defer stopBroker(b, s.broker)
		s.o = drive.Default()
		s.o.Partitions, s.o.Batch, s.o.PerRequest, s.o.Clients = n, 16<<10, 5, 2 // each client has five of the ten
		s.o.Durability, s.o.SegmentBytes = "async", 1<<30
		s.o.Warm, s.o.Run = time.Second, 3*time.Second
		require.NoError(b, drive.EnsureTopic(b.Context(), s.broker.Kafka, &s.o))
	}
	idle, err := sides[1].broker.Usage()
	require.NoError(b, err)
	for turn := 0; b.Loop(); turn++ {
		for i := range sides {
			s := &sides[(i+turn)%len(sides)]
			unix.Sync() // one side's pages are not written back at the other's expense
			r, err := drive.Measure(b.Context(), s.broker, &s.o, drive.Produce)
			require.NoError(b, err)
			s.r = append(s.r, r)
		}
	}
	var tens, rates, cpus []float64
	for i, many := range sides[1].r {
		tens = append(tens, sides[0].r[i].MB)
		rates = append(rates, many.MB/sides[0].r[i].MB)
		cpus = append(cpus, sides[0].r[i].CPUPerGB/many.CPUPerGB)
	}
	b.Logf("x-ten %.2f, x-cpu %.2f", rates, cpus)
	slices.Sort(tens)
	slices.Sort(rates)
	slices.Sort(cpus)
	last := sides[1].r[len(sides[1].r)-1]
	b.ReportMetric(tens[len(tens)/2], "ten-MB/s")
	b.ReportMetric(rates[len(rates)/2], "x-ten")
	b.ReportMetric(cpus[len(cpus)/2], "x-cpu")
	b.ReportMetric(float64(idle.Anonymous)/mib, "idle-anon-MiB")
	b.ReportMetric(last.Anonymous, "anon-MiB")
	b.ReportMetric(last.File, "file-MiB")
	b.ReportMetric(0, "ns/op")
}
