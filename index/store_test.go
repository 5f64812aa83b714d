package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

// commitNumbered commits as its n-th batch what depends on n alone, over all kinds of keys.
func commitNumbered(t require.TestingT, b *Batch, n int) {
	id := pid(n % 5)
	e := Entry{Base: int64(n) * 10, Last: int64(n)*10 + 9, Position: uint64(n) * 1000, Length: 900, MaxTimestamp: int64(n)}
	b.PutEntry(id, e, true)
	b.PutProducer(id, 7, fmt.Appendf(nil, "%d", n))
	b.PutMeta(id, fmt.Appendf(nil, "meta %d", n))
	b.PutHead(id, bytes.Repeat([]byte{byte(n)}, 300))
	b.PutFileUse(uint64(n/50)*50_000, id, e.Last)
	if n%7 == 0 {
		b.DeleteEntriesBelow(id, e.Last-500)
	}
	b.SetCheckpoint(uint64(n+1)*1000, fmt.Appendf(nil, "extra %d", n))
	require.NoError(t, b.Commit())
}

// dump lists everything in the store.
func dump(t require.TestingT, s *Store) []string {
	var out []string
	it, err := s.db.NewIter(nil)
	require.NoError(t, err)
	for ok := it.First(); ok; ok = it.Next() {
		out = append(out, fmt.Sprintf("%x=%x", it.Key(), it.Value()))
	}
	require.NoError(t, it.Error())
	require.NoError(t, it.Close())
	return out
}

// TestCrashLeavesAPrefix: after a crash at any moment the store is what it was after some
// commit, its checkpoint says which, and that is not below what was promised.
func TestCrashLeavesAPrefix(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewCrashableMem()
		s, err := Open(Options{Dir: "index", FS: fs, MemTableBytes: 256 << 10})
		require.NoError(t, err)
		b := s.NewBatch()
		total := 200 + rnd.IntN(600)
		var crashed *vfs.MemFS
		var promised uint64
		crashAt := rnd.IntN(total)
		for n := range total {
			commitNumbered(t, b, n)
			if rnd.IntN(100) == 0 {
				require.NoError(t, s.Flush())
				require.Equal(t, uint64(n+1)*1000, s.FlushedCheckpoint())
			}
			if n == crashAt {
				promised = s.FlushedCheckpoint()
				crashed = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rand.New(rand.NewPCG(seed, 2))})
			}
		}
		require.NoError(t, b.Close())
		require.NoError(t, s.Close())

		s = openMem(t, crashed)
		pos, extra, ok, err := s.Checkpoint()
		require.NoError(t, err)
		require.GreaterOrEqual(t, pos, promised, "seed %d", seed)
		require.LessOrEqual(t, pos, uint64(crashAt+1)*1000)
		require.Equal(t, pos, s.FlushedCheckpoint())
		got := dump(t, s)

		again := openMem(t, vfs.NewMem())
		b = again.NewBatch()
		for n := range int(pos / 1000) {
			commitNumbered(t, b, n)
		}
		if ok {
			require.Equal(t, fmt.Sprintf("extra %d", pos/1000-1), string(extra))
		}
		require.Equal(t, dump(t, again), got, "seed %d: checkpoint %d", seed, pos)
		require.NoError(t, b.Close())
		require.NoError(t, again.Close())
		require.NoError(t, s.Close())
	}
}

// TestBackgroundFlushRaisesCheckpoint: memtables that Pebble flushes by itself count.
func TestBackgroundFlushRaisesCheckpoint(t *testing.T) {
	s, err := Open(Options{Dir: "index", FS: vfs.NewMem(), MemTableBytes: 256 << 10})
	require.NoError(t, err)
	b := s.NewBatch()
	for n := 0; s.FlushedCheckpoint() == 0; n++ {
		require.Less(t, n, 1_000_000)
		commitNumbered(t, b, n)
	}
	pos, _, _, err := s.Checkpoint()
	require.NoError(t, err)
	require.Less(t, s.FlushedCheckpoint(), pos+1)
	require.Zero(t, s.FlushedCheckpoint()%1000)
	require.NoError(t, b.Close())
	require.NoError(t, s.Close())
}

func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "index")
	s, err := Open(Options{Dir: dir})
	require.NoError(t, err)
	_, err = Open(Options{Dir: dir})
	require.ErrorIs(t, err, ErrLocked)
	_, _, ok, err := s.Checkpoint()
	require.NoError(t, err)
	require.False(t, ok)
	require.Zero(t, s.FlushedCheckpoint())
	b := s.NewBatch()
	for n := range 100 {
		commitNumbered(t, b, n)
	}
	want := dump(t, s)
	require.NoError(t, b.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Close(), ErrClosed)
	_, _, err = s.Find(pid(0), 0)
	require.ErrorIs(t, err, ErrClosed)

	s, err = Open(Options{Dir: dir})
	require.NoError(t, err)
	require.Equal(t, want, dump(t, s))
	require.Equal(t, uint64(100_000), s.FlushedCheckpoint())

	var ids []frame.PartitionID
	require.NoError(t, s.Partitions(func(id frame.PartitionID, meta []byte) bool {
		ids = append(ids, id)
		require.Contains(t, string(meta), "meta ")
		return true
	}))
	require.Equal(t, []frame.PartitionID{pid(0), pid(1), pid(2), pid(3), pid(4)}, ids)
	uses, err := s.FileUses()
	require.NoError(t, err)
	require.Equal(t, []uint64{0, 50_000}, uses)
	n := 0
	require.NoError(t, s.FileUse(50_000, func(id frame.PartitionID, last int64) bool {
		n++
		require.GreaterOrEqual(t, last, int64(950))
		return true
	}))
	require.Equal(t, 5, n)
	head, ok, err := s.Head(pid(1))
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, head, 300)
	_, ok, err = s.Meta(pid(9))
	require.NoError(t, err)
	require.False(t, ok)

	b = s.NewBatch()
	b.DropFileUse(0)
	b.DropPartition(pid(0))
	require.NoError(t, b.Commit())
	uses, err = s.FileUses()
	require.NoError(t, err)
	require.Equal(t, []uint64{50_000}, uses)
	_, ok, err = s.First(pid(0))
	require.NoError(t, err)
	require.False(t, ok)
	_, ok, err = s.First(pid(1))
	require.NoError(t, err)
	require.True(t, ok)
	require.Positive(t, s.Metrics().DiskBytes)
	require.NoError(t, b.Close())
	require.NoError(t, s.Close())
}

func TestNewerVersionIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	s := openMem(t, fs)
	require.NoError(t, s.db.Set([]byte{kindVersion}, binary.BigEndian.AppendUint32(nil, FormatVersion+1), pebble.NoSync))
	require.NoError(t, s.db.Flush())
	require.NoError(t, s.Close())
	_, err := Open(Options{Dir: "index", FS: fs})
	require.ErrorIs(t, err, ErrVersion)
	require.NotErrorIs(t, err, ErrCorrupt)
}

func TestBadPutsFailTheCommit(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	b := s.NewBatch()
	b.PutEntry(pid(0), Entry{Base: 5, Last: 4}, false)
	require.False(t, b.Empty())
	require.Error(t, b.Commit())
	require.Error(t, b.Commit())
	b.Reset()
	require.True(t, b.Empty())
	require.NoError(t, b.Commit())
	require.NoError(t, b.Close())
	require.NoError(t, s.Close())
}

// TestReadersBesideCommits: reads see whole commits while the store is written, and Close
// waits for them.
func TestReadersBesideCommits(t *testing.T) {
	s, err := Open(Options{Dir: "index", FS: vfs.NewMem(), MemTableBytes: 256 << 10})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				e, ok, err := s.Last(pid(0))
				if err != nil {
					require.ErrorIs(t, err, ErrClosed)
					return
				}
				if !ok {
					continue
				}
				again, ok, err := s.FindTime(pid(0), e.MaxTimestamp, e.Base)
				if err == nil {
					require.True(t, ok)
					require.GreaterOrEqual(t, again.Base, e.Base) // it may be deleted by now
				}
				require.NoError(t, ignoreClosed(s.Scan(pid(0), 0, func(Entry) bool {
					_, ok, err := s.Head(pid(0)) // callbacks may call the store
					return err == nil && ok
				})))
			}
		})
	}
	b := s.NewBatch()
	for n := range 3000 {
		commitNumbered(t, b, n)
	}
	require.NoError(t, b.Close())
	require.NoError(t, s.Close())
	wg.Wait()
}

func ignoreClosed(err error) error {
	if err == ErrClosed {
		return nil
	}
	return err
}
