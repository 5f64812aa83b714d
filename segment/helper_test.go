package segment

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tierbroker/tierbroker/frame"
)

var testTopic = frame.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// testBatch returns a v2 batch of n bytes (at least 61) at the given offset.
func testBatch(base int64, n int) []byte {
	b := make([]byte, max(n, 61))
	for i := 21; i < len(b); i++ {
		b[i] = byte(int64(i)*7 + base)
	}
	sealBatch(b, base)
	return b
}

func sealBatch(b []byte, base int64) {
	be := binary.BigEndian
	be.PutUint64(b, uint64(base))
	be.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
}

func testEntry(base int64, n int, sync bool) *Entry {
	return &Entry{
		Header: frame.Header{
			Type: frame.Data, ID: frame.PartitionID{Topic: testTopic, Partition: int32(base % 5)},
			Epoch: 1, BaseOffset: base, RecordCount: 1, AppendTime: 1790000000000,
		},
		Payload: testBatch(base, n), Sync: sync,
	}
}

func testOptions(t testing.TB, dir string) Options {
	return Options{Dir: dir, FileBytes: 64 << 10, SyncInterval: time.Hour}
}

// shown is a frame that Open visited; sum stands for its payload.
type shown struct {
	pos  uint64
	base int64
	size int
	sum  uint32
}

func show(h *frame.Header, payload []byte) shown {
	return shown{pos: h.Position, base: h.BaseOffset, size: len(payload), sum: crc32.Checksum(payload, castagnoli)}
}

// open opens the log and returns all that was visited.
func open(t testing.TB, o Options, from uint64) (*Log, Recovered, []shown) {
	t.Helper()
	var all []shown
	l, rec, err := Open(o, from, func(f Frame) error {
		all = append(all, show(&f.Header, f.Payload))
		return nil
	})
	require.NoError(t, err)
	return l, rec, all
}

// put appends an entry and waits until it is written, and synced when e.Sync is set.
func put(t testing.TB, l *Log, e *Entry) shown {
	t.Helper()
	pos, gen, err := l.Enqueue(e)
	require.NoError(t, err)
	require.NoError(t, l.Written(pos, gen))
	if e.Sync {
		require.NoError(t, waitSynced(l, pos, gen))
	}
	return show(&e.Header, e.Payload)
}

// waitSynced waits until pos is durable or lost.
func waitSynced(l *Log, pos, gen uint64) error {
	w := l.Watermarks()
	for {
		if w.Generation != gen {
			if err := l.Lost(pos); err != nil {
				return err
			}
		}
		if w.Synced > pos {
			return nil
		}
		var err error
		if w, err = l.Wait(context.Background(), w); err != nil {
			return err
		}
	}
}

// waitFor waits until the log's janitor has brought cond about.
func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 10*time.Second, time.Millisecond)
}
