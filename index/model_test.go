package index

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tierbroker/tierbroker/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pid(n int) frame.PartitionID {
	return frame.PartitionID{Topic: frame.TopicID{0xff, byte(n / 4)}, Partition: int32(n % 4)}
}

func openMem(t require.TestingT, fs vfs.FS) *Store {
	s, err := Open(Options{Dir: "index", FS: fs})
	require.NoError(t, err)
	return s
}

// model is a partition as plain slices.
type model struct {
	entries   []Entry
	runMax    int64 // of all entries put and not truncated
	maxes     []Entry
	producers map[int64]string
}

func (m *model) from(offset int64) []Entry {
	i := 0
	for i < len(m.entries) && m.entries[i].Last < offset {
		i++
	}
	return m.entries[i:]
}

func (m *model) deleteBelow(offset int64) {
	m.entries = slices.Clone(m.from(offset))
	for len(m.maxes) > 1 && m.maxes[1].Last < offset { // the highest below offset is remembered
		m.maxes = m.maxes[1:]
	}
}

// deleteFrom also takes back the running maximum.
func (m *model) deleteFrom(offset int64) {
	m.entries = m.entries[:len(m.entries)-len(m.from(offset))]
	m.maxes = slices.DeleteFunc(m.maxes, func(e Entry) bool { return e.Last >= offset })
	m.runMax = math.MinInt64
	for _, e := range m.maxes {
		m.runMax = max(m.runMax, e.MaxTimestamp)
	}
}

func (m *model) next() int64 {
	if len(m.entries) == 0 {
		return 0
	}
	return m.entries[len(m.entries)-1].Last + 1
}

func firstOf(entries []Entry, match func(Entry) bool) (Entry, bool) {
	for _, e := range entries {
		if match(e) {
			return e, true
		}
	}
	return Entry{}, false
}

// machine drives a store and models of a few partitions.
type machine struct {
	s     *Store
	b     *Batch
	parts map[frame.PartitionID]*model
	next  map[frame.PartitionID]int64 // offsets never come back after deleteBelow
	pos   uint64
}

func newMachine(s *Store) *machine {
	m := &machine{s: s, b: s.NewBatch(), parts: map[frame.PartitionID]*model{}, next: map[frame.PartitionID]int64{}}
	for i := range 3 {
		m.parts[pid(i)] = &model{runMax: math.MinInt64, producers: map[int64]string{}}
	}
	return m
}

func (m *machine) pick(t *rapid.T) (frame.PartitionID, *model) {
	id := pid(rapid.IntRange(0, 2).Draw(t, "partition"))
	return id, m.parts[id]
}

func (m *machine) put(t *rapid.T) {
	id, p := m.pick(t)
	ts, found, err := m.b.RunningMax(id)
	require.NoError(t, err)
	require.Equal(t, p.runMax != math.MinInt64, found)
	if found {
		require.Equal(t, p.runMax, ts)
	}
	for range rapid.IntRange(1, 80).Draw(t, "entries") {
		base := max(p.next(), m.next[id]) + rapid.Int64Range(0, 3).Draw(t, "gap")
		m.pos += 100
		e := Entry{
			Base: base, Last: base + rapid.Int64Range(0, 5).Draw(t, "records"), Position: m.pos, HeaderLen: 92,
			Length: rapid.Uint32().Draw(t, "length"), MaxTimestamp: rapid.Int64Range(-1, 60).Draw(t, "ts"),
			Epoch: rapid.Int32().Draw(t, "epoch"), Records: rapid.Int32().Draw(t, "n"), AppendTime: rapid.Int64().Draw(t, "append"),
		}
		isMax := e.MaxTimestamp > p.runMax
		if isMax {
			p.runMax = e.MaxTimestamp
			p.maxes = append(p.maxes, e)
		}
		m.b.PutEntry(id, e, isMax)
		p.entries = append(p.entries, e)
		m.next[id] = e.Last + 1
	}
}

func (m *machine) someOffset(t *rapid.T, p *model) int64 {
	return rapid.Int64Range(-1, p.next()+2).Draw(t, "offset")
}

func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"put": m.put,
		"below": func(t *rapid.T) {
			id, p := m.pick(t)
			offset := m.someOffset(t, p)
			m.b.DeleteEntriesBelow(id, offset)
			p.deleteBelow(offset)
		},
		"from": func(t *rapid.T) {
			id, p := m.pick(t)
			offset := m.someOffset(t, p)
			m.b.DeleteEntriesFrom(id, offset)
			p.deleteFrom(offset)
			m.next[id] = max(0, offset)
		},
		"drop": func(t *rapid.T) {
			id, p := m.pick(t)
			m.b.DropPartition(id)
			*p = model{runMax: math.MinInt64, producers: map[int64]string{}}
			m.next[id] = 0
		},
		"producer": func(t *rapid.T) {
			id, p := m.pick(t)
			n := rapid.Int64Range(0, 5).Draw(t, "producer")
			if rapid.Bool().Draw(t, "delete") {
				m.b.DeleteProducer(id, n)
				delete(p.producers, n)
				return
			}
			val := rapid.StringN(0, 5, 5).Draw(t, "val")
			m.b.PutProducer(id, n, []byte(val))
			p.producers[n] = val
		},
		"commit": func(t *rapid.T) {
			m.b.SetCheckpoint(m.pos, nil)
			require.NoError(t, m.b.Commit())
			require.True(t, m.b.Empty())
			if rapid.Bool().Draw(t, "flush") {
				require.NoError(t, m.s.Flush())
				require.Equal(t, m.pos, m.s.FlushedCheckpoint())
			}
			m.check(t)
		},
	}
}

func (m *machine) check(t *rapid.T) {
	require.LessOrEqual(t, m.s.FlushedCheckpoint(), m.pos)
	for i := range 3 {
		checkPartition(t, m.s, pid(i), m.parts[pid(i)])
	}
}

func checkPartition(t *rapid.T, s *Store, id frame.PartitionID, p *model) {
	same := func(what string, want Entry, wantOK bool, got Entry, ok bool, err error) {
		require.NoError(t, err, what)
		require.Equal(t, wantOK, ok, what)
		require.Equal(t, want, got, what)
	}
	always := func(Entry) bool { return true }
	var all []Entry
	require.NoError(t, s.Scan(id, -1, func(e Entry) bool { all = append(all, e); return true }))
	require.Equal(t, len(p.entries), len(all))
	if len(all) > 0 {
		require.Equal(t, p.entries, all)
	}
	for range 6 {
		offset := rapid.Int64Range(-1, p.next()+1).Draw(t, "find")
		ts := rapid.Int64Range(-2, 61).Draw(t, "time")
		rest := p.from(offset)
		want, ok := firstOf(rest, always)
		got, found, err := s.Find(id, offset)
		same("find", want, ok, got, found, err)

		want, ok = firstOf(rest, func(e Entry) bool { return e.MaxTimestamp >= ts })
		got, found, err = s.FindTime(id, ts, offset)
		same(fmt.Sprintf("time %d from %d", ts, offset), want, ok, got, found, err)

		want, ok = firstOf(rest, func(e Entry) bool {
			return e.MaxTimestamp == slices.MaxFunc(rest, func(a, b Entry) int { return int(a.MaxTimestamp - b.MaxTimestamp) }).MaxTimestamp
		})
		got, found, err = s.MaxTimestamp(id, offset)
		same("max", want, ok, got, found, err)
	}
	want, ok := firstOf(p.entries, always)
	got, found, err := s.First(id)
	same("first", want, ok, got, found, err)
	want = Entry{}
	if ok {
		want = p.entries[len(p.entries)-1]
	}
	got, found, err = s.Last(id)
	same("last", want, ok, got, found, err)
	ts, found, err := s.RunningMax(id)
	require.NoError(t, err)
	require.Equal(t, p.runMax != math.MinInt64, found)
	if found {
		require.Equal(t, p.runMax, ts)
	}
	producers := map[int64]string{}
	require.NoError(t, s.Producers(id, func(pid int64, val []byte) bool { producers[pid] = string(val); return true }))
	require.Equal(t, p.producers, producers)
}

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := openMem(t, vfs.NewMem())
		m := newMachine(s)
		t.Repeat(m.actions())
		require.NoError(t, m.b.Commit())
		m.check(t)
		require.NoError(t, m.b.Close())
		require.NoError(t, s.Close())
	})
}

// TestEachRangeSize crosses the line between deleting keys and deleting ranges.
func TestEachRangeSize(t *testing.T) {
	for _, total := range []int64{1, fewKeys - 1, fewKeys, fewKeys + 1, fewKeys + 2, 3 * fewKeys} {
		for _, below := range []bool{true, false} {
			s := openMem(t, vfs.NewMem())
			b := s.NewBatch()
			id := pid(0)
			for i := range total {
				b.PutEntry(id, Entry{Base: i, Last: i, MaxTimestamp: i}, true)
			}
			b.PutEntry(pid(1), Entry{Base: 0, Last: 0}, true) // a neighbour
			require.NoError(t, b.Commit())
			cut := total - 1
			if below {
				b.DeleteEntriesBelow(id, cut)
			} else {
				b.DeleteEntriesFrom(id, 1)
			}
			require.NoError(t, b.Commit())
			n := 0
			require.NoError(t, s.Scan(id, 0, func(Entry) bool { n++; return true }))
			require.Equal(t, 1, n, "%d entries", total)
			_, ok, err := s.Find(pid(1), 0)
			require.NoError(t, err)
			require.True(t, ok)
			times := 0
			sp := kindSpan(kindTime, id)
			require.NoError(t, s.each("count", sp, timeKeyLen, func(_, _ []byte) bool { times++; return true }))
			if below {
				require.LessOrEqual(t, times, 2, "the last deleted one stays")
			} else {
				require.Equal(t, 1, times)
			}
			require.NoError(t, b.Close())
			require.NoError(t, s.Close())
		}
	}
}
