package index

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// TestDamagedFiles damages each file of a store: it opens and reads right, or says that it
// is corrupt.
func TestDamagedFiles(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "good")
	s, err := Open(Options{Dir: dir, ReserveBytes: -1})
	require.NoError(t, err)
	b := s.NewBatch()
	for n := range 500 {
		commitNumbered(t, b, n)
		if n == 250 {
			require.NoError(t, s.Flush())
		}
	}
	require.NoError(t, s.Flush())
	want := dump(t, s)
	require.NoError(t, b.Close())
	require.NoError(t, s.Close())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	rnd := rand.New(rand.NewPCG(3, 4))
	refused := 0
	for i, f := range files {
		for how := range 4 {
			broken := filepath.Join(base, fmt.Sprintf("%d-%d", i, how))
			require.NoError(t, os.CopyFS(broken, os.DirFS(dir)))
			path := filepath.Join(broken, f.Name())
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			switch {
			case how == 0:
				require.NoError(t, os.Remove(path))
			case how == 1:
				require.NoError(t, os.WriteFile(path, data[:len(data)/2], 0o644))
			case len(data) > 0:
				data[rnd.IntN(len(data))] ^= 0x55
				require.NoError(t, os.WriteFile(path, data, 0o644))
			}
			got, err := openAndDump(broken)
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt, "%s %d", f.Name(), how)
				refused++
				continue
			}
			if len(got) > 0 { // without its manifest, a store looks new: empty, and that is right too
				require.Equal(t, want, got, "%s %d", f.Name(), how)
			}
		}
	}
	require.Positive(t, refused)
}

// openAndDump reads a whole store through its own calls.
func openAndDump(dir string) (out []string, err error) {
	s, err := Open(Options{Dir: dir, ReserveBytes: -1})
	if err != nil {
		return nil, err
	}
	sp := spans.Get().(*span)
	sp.o.LowerBound, sp.o.UpperBound = []byte{0}, []byte{0xff}
	err = s.read("dump", sp, func(it *pebble.Iterator) error {
		for ok := it.First(); ok; ok = it.Next() {
			val, err := it.ValueAndErr()
			if err != nil {
				return readError("dump", err)
			}
			out = append(out, fmt.Sprintf("%x=%x", it.Key(), val))
		}
		return nil
	})
	if len(out) == 1 { // only the version
		out = nil
	}
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return out, err
}

// switchFS fails writes with ENOSPC while full is set; manifest says for which files.
func switchFS(full *atomic.Bool, manifest bool) vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		isManifest := bytes.Contains([]byte(op.Path), []byte("MANIFEST"))
		if !full.Load() || manifest != isManifest {
			return nil
		}
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			return syscall.ENOSPC
		}
		return nil
	}))
}

func TestFullDisk(t *testing.T) {
	var full atomic.Bool
	s, err := Open(Options{Dir: "index", FS: switchFS(&full, false), MemTableBytes: 256 << 10})
	require.NoError(t, err)
	b := s.NewBatch()
	n := 0
	for ; n < 10; n++ {
		commitNumbered(t, b, n)
	}
	require.NoError(t, s.Flush())
	full.Store(true)
	commitNumbered(t, b, n)
	for range 100 { // asking again and again takes no room from commits
		require.ErrorIs(t, s.Flush(), ErrStalled)
		n++
		commitNumbered(t, b, n)
	}
	require.Equal(t, uint64(10_000), s.FlushedCheckpoint())
	require.Error(t, s.Metrics().BackgroundError)
	require.Eventually(t, func() bool { // commits go on until memory is full, and do not hang
		n++
		id := pid(n % 5)
		b.PutHead(id, make([]byte, 30_000))
		b.SetCheckpoint(uint64(n+1)*1000, nil)
		err := b.Commit()
		if err != nil {
			require.ErrorIs(t, err, ErrStalled)
			return true
		}
		return false
	}, 20*time.Second, time.Microsecond)
	_, ok, err := s.Find(pid(0), 0)
	require.NoError(t, err)
	require.True(t, ok, "reads go on")
	full.Store(false)
	require.Eventually(t, func() bool { return b.Commit() == nil }, 20*time.Second, time.Millisecond)
	require.NoError(t, s.Flush())
	require.Equal(t, uint64(n+1)*1000, s.FlushedCheckpoint())
	require.NoError(t, s.Metrics().BackgroundError)
	require.NoError(t, b.Close())
	require.NoError(t, s.Close())
}

func TestFailedManifestEndsTheStore(t *testing.T) {
	var full atomic.Bool
	fs := switchFS(&full, true)
	s, err := Open(Options{Dir: "index", FS: fs, MemTableBytes: 256 << 10})
	require.NoError(t, err)
	b := s.NewBatch()
	commitNumbered(t, b, 0)
	require.NoError(t, s.Flush())
	full.Store(true)
	commitNumbered(t, b, 1)
	require.ErrorIs(t, s.Flush(), ErrCorrupt)
	full.Store(false)
	require.ErrorIs(t, b.Commit(), ErrCorrupt)
	_, _, err = s.Find(pid(0), 0)
	require.ErrorIs(t, err, ErrCorrupt)
	require.Equal(t, uint64(1000), s.FlushedCheckpoint())
	require.NoError(t, b.Close())
	require.ErrorIs(t, s.Close(), ErrCorrupt)
}

// fullButReserve is a file system that has no space while full is set and the reserve is there.
func fullButReserve(full *atomic.Bool) (*vfs.MemFS, vfs.FS) {
	mem := vfs.NewMem()
	return mem, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpCreate {
			if _, err := mem.Stat("index/reserve"); err == nil {
				return syscall.ENOSPC
			}
		}
		return nil
	}))
}

// TestReserveOfARunBefore: a store that was left on a full disk opens on it.
func TestReserveOfARunBefore(t *testing.T) {
	var full atomic.Bool
	_, fs := fullButReserve(&full)
	s, err := Open(Options{Dir: "index", FS: fs})
	require.NoError(t, err)
	b := s.NewBatch()
	commitNumbered(t, b, 0)
	require.NoError(t, b.Close())
	require.NoError(t, s.Close())
	full.Store(true)
	s, err = Open(Options{Dir: "index", FS: fs})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func TestReserve(t *testing.T) {
	var full atomic.Bool
	mem, fs := fullButReserve(&full)
	s, err := Open(Options{Dir: "index", FS: fs})
	require.NoError(t, err)
	_, err = mem.Stat("index/reserve")
	require.NoError(t, err)
	full.Store(true)
	b := s.NewBatch()
	commitNumbered(t, b, 0)
	require.NoError(t, s.Flush(), "the reserve makes room")
	full.Store(false)
	commitNumbered(t, b, 1)
	require.NoError(t, s.Flush())
	_, err = mem.Stat("index/reserve")
	require.NoError(t, err, "it is back")
	require.NoError(t, b.Close())
	require.NoError(t, s.Close())
}

// fullFS is a file system that says how much space it has.
type fullFS struct {
	vfs.FS
	free atomic.Uint64
}

func (f *fullFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: f.free.Load()}, nil
}

// TestOpenOnFullDisk: a store without a reserve does not open on a full disk, where Pebble would wait for ever, and opens when
// there is space.
func TestOpenOnFullDisk(t *testing.T) {
	disk := &fullFS{FS: vfs.NewMem()}
	_, err := Open(Options{Dir: "index", FS: disk})
	require.ErrorIs(t, err, ErrStalled)
	require.ErrorContains(t, err, "the disk is full")
	_, err = disk.Stat("index/reserve")
	require.Error(t, err, "none is made on a full disk")
	disk.free.Store(1 << 30)
	s, err := Open(Options{Dir: "index", FS: disk})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	disk.free.Store(0)
	s, err = Open(Options{Dir: "index", FS: disk})
	require.NoError(t, err, "the reserve is there")
	require.NoError(t, s.Close())
}
