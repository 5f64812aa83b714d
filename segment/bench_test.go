package segment

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

const benchFile = 64 << 20

// bare is what the log is measured against: writers that pwrite into preallocated files,
// with one file allocated ahead in the background, as the log does.
type bare struct {
	dir    string
	spares chan File
	mu     sync.Mutex
	f      File
	off    int64
	used   []File
}

func newBare(b *testing.B, dir string) *bare {
	w := &bare{dir: dir, spares: make(chan File)}
	var made sync.WaitGroup
	stop := make(chan struct{})
	made.Go(func() {
		for i := 0; ; i++ {
			f, err := OSFS{}.Open(filepath.Join(dir, fmt.Sprintf("bare-%d", i)), true)
			if err == nil {
				err = f.Allocate(benchFile)
			}
			if err != nil {
				b.Error(err)
				return
			}
			select {
			case w.spares <- f:
			case <-stop:
				w.used = append(w.used, f)
				return
			}
		}
	})
	b.Cleanup(func() {
		close(stop)
		made.Wait()
		w.clear(b)
	})
	w.f = <-w.spares
	return w
}

func (w *bare) write(p [][]byte, size int64, sync bool) error {
	w.mu.Lock()
	if w.off+size > benchFile {
		w.used = append(w.used, w.f)
		w.f, w.off = <-w.spares, 0
	}
	f, off := w.f, w.off
	w.off += size
	w.mu.Unlock()
	if _, err := f.Writev(p, off); err != nil || !sync {
		return err
	}
	return f.Sync()
}

// clear removes the files that are full.
func (w *bare) clear(b *testing.B) {
	for _, f := range w.used {
		require.NoError(b, f.Truncate(0))
		require.NoError(b, f.Close())
	}
	w.used = nil
}

// countFS counts what the log does with its files.
type countFS struct {
	FS
	writes, syncs atomic.Int64
}

func (c *countFS) Open(path string, create bool) (File, error) {
	f, err := c.FS.Open(path, create)
	return countFile{File: f, c: c}, err
}

type countFile struct {
	File
	c *countFS
}

func (f countFile) Writev(b [][]byte, off int64) (int, error) {
	f.c.writes.Add(1)
	return f.File.Writev(b, off)
}

func (f countFile) Sync() error {
	f.c.syncs.Add(1)
	return f.File.Sync()
}

// cost is what a run took: time on the wall, and of the processors in this process.
type cost struct{ wall, cpu time.Duration }

func (c *cost) add(o cost) { c.wall, c.cpu = c.wall+o.wall, c.cpu+o.cpu }

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// run lets writers share n calls of fn.
func run(b *testing.B, writers, n int, fn func(w int) error) cost {
	var next atomic.Int64
	var wg sync.WaitGroup
	cpu, start := cpuTime(b), time.Now()
	for w := range writers {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				if err := fn(w); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return cost{wall: time.Since(start), cpu: cpuTime(b) - cpu}
}

// BenchmarkAppend appends batches and compares with bare writes of the same sizes by as
// many goroutines, in turns within the same run, both in newly allocated files.
// x-bare is the log's speed in units of the bare writes' (1 = the same) when these write as
// many bytes as a frame takes; x-cpu is the same for processor time, which other
// processes on the machine disturb less. x-payload-cpu is for bare writes of the payload
// alone, which have whole pages to themselves: on a 16 KiB payload that alone saves the
// kernel a quarter. With sync, the bare writer does an fdatasync for each of its writes.
func BenchmarkAppend(b *testing.B) {
	for _, sync := range []bool{false, true} {
		for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 1 << 20} {
			for _, writers := range []int{1, 4, 16} {
				name := map[bool]string{false: "async", true: "sync"}[sync]
				b.Run(fmt.Sprintf("%s/size=%d/writers=%d", name, size, writers), func(b *testing.B) {
					benchAppend(b, sync, size, writers)
				})
			}
		}
	}
}

func benchAppend(b *testing.B, sync bool, size, writers int) {
	dir := b.TempDir()
	fs := &countFS{FS: OSFS{}}
	l, _, err := Open(Options{Dir: filepath.Join(dir, "log"), FileBytes: benchFile, FS: fs}, 0, nil)
	require.NoError(b, err)
	base := newBare(b, dir)
	entries := make([]*Entry, writers)
	frames := make([][][]byte, writers)   // as many bytes as a frame takes
	payloads := make([][][]byte, writers) // as many as its payload
	for w := range entries {
		entries[w] = testEntry(int64(w), size, sync)
		frames[w] = [][]byte{make([]byte, FrameLen(frame.HeaderLen, size))}
		payloads[w] = [][]byte{entries[w].Payload}
	}
	appendOne := func(w int) error {
		e := entries[w]
		pos, gen, err := l.Enqueue(e)
		if err == nil {
			err = l.Written(pos, gen)
		}
		if err == nil && sync {
			err = waitSynced(l, pos, gen)
		}
		return err
	}
	bareOne := func(bufs [][][]byte) func(int) error {
		return func(w int) error { return base.write(bufs[w], int64(len(bufs[w][0])), sync) }
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var logTime, bareTime, payloadTime cost
	fs.writes.Store(0)
	fs.syncs.Store(0)
	b.ResetTimer()
	const rounds = 4
	for r := range rounds {
		n := b.N*(r+1)/rounds - b.N*r/rounds
		logTime.add(run(b, writers, n, appendOne))
		b.StopTimer()
		settle(b, l, base)
		bareTime.add(run(b, writers, n, bareOne(frames)))
		settle(b, l, base)
		payloadTime.add(run(b, writers, n, bareOne(payloads)))
		settle(b, l, base)
		b.StartTimer()
	}
	b.StopTimer()
	b.ReportMetric(float64(bareTime.wall)/float64(logTime.wall), "x-bare")
	b.ReportMetric(float64(bareTime.cpu)/float64(logTime.cpu), "x-cpu")
	b.ReportMetric(float64(payloadTime.cpu)/float64(logTime.cpu), "x-payload-cpu")
	b.ReportMetric(float64(fs.writes.Load())/float64(b.N), "writes/op")
	b.ReportMetric(float64(fs.syncs.Load())/float64(b.N), "syncs/op")
	require.NoError(b, l.Close())
}

// settle writes back what is dirty, so that nobody pays for the other's pages, and
// removes full files. The log's are not recycled, as the bare writer's aren't.
func settle(b *testing.B, l *Log, base *bare) {
	require.NoError(b, l.Sync(b.Context()))
	for fs := l.Files(); len(fs) > 1; fs = l.Files() {
		l.mu.Lock()
		(*l.files.Load())[0].bad = true
		l.mu.Unlock()
		require.NoError(b, l.Drop(fs[0].Base))
	}
	require.NoError(b, base.f.Sync())
	for _, f := range base.used {
		require.NoError(b, f.Sync())
	}
	base.clear(b)
}

// BenchmarkRecover scans a log of 64 MiB.
func BenchmarkRecover(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			o := Options{Dir: b.TempDir(), FileBytes: benchFile}
			l, _, err := Open(o, 0, nil)
			require.NoError(b, err)
			total := 0
			for i := 0; total+size < 60<<20; i++ {
				e := testEntry(int64(i), size, false)
				pos, gen, err := l.Enqueue(e)
				require.NoError(b, err)
				require.NoError(b, l.Written(pos, gen))
				total += FrameLen(frame.HeaderLen, size)
			}
			require.NoError(b, l.Close())
			b.SetBytes(int64(total))
			for b.Loop() {
				_, err := Inspect(o, 0, func(Frame) error { return nil })
				require.NoError(b, err)
			}
		})
	}
}
