package cluster

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sort"

	"github.com/tierbroker/tierbroker/frame"
)

// Bounds of one shard value. They are far above what is written and keep a
// damaged or hostile value from costing more than its own size.
const (
	shardVersion       = 2
	maxShardBytes      = 1 << 20
	maxShardPartitions = 4 * ShardPartitions
	maxIncarnation     = 64
	maxExtension       = 256
)

// Flags of an entry; the low three bits hold the state.
const (
	entryState     = 0x07
	entryTarget    = 0x08 // a target broker follows, and since when
	entryFailure   = 0x10 // count, time and reason of a failure follow
	entrySafe      = 0x20 // Assignment.Safe
	entryWarm      = 0x40 // Assignment.Warm; only with a target
	entryExtension = 0x80 // more flags follow, and bytes of a later version, which are kept

	// entryOf1 are the flags of version 1, whose targets have no time.
	entryOf1 = entryState | entryTarget | entryFailure | entryExtension
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// run holds the assignments of neighbouring partitions of one topic.
type run struct {
	topic   frame.TopicID
	first   int32
	entries []entry
}

func (r *run) end() int32 { return r.first + int32(len(r.entries)) }

// entry is an Assignment with what this version does not know.
type entry struct {
	Assignment
	ext []byte // the stored extension without the flags that are known
}

// shard is the decoded value of one assignment key. It is immutable once it is
// part of an Image; a transaction edits a clone.
type shard struct {
	number   uint32
	revision int64 // mod revision of the key, 0 when it does not exist yet
	runs     []run // sorted by topic and first partition, never overlapping
}

// find returns the entry of a partition, nil when it is not here.
func (s *shard) find(id frame.PartitionID) *entry {
	i := sort.Search(len(s.runs), func(i int) bool {
		c := s.runs[i].topic.Compare(id.Topic)
		return c > 0 || c == 0 && s.runs[i].end() > id.Partition
	})
	if i == len(s.runs) || s.runs[i].topic != id.Topic || id.Partition < s.runs[i].first {
		return nil
	}
	return &s.runs[i].entries[id.Partition-s.runs[i].first]
}

func (s *shard) count() int {
	n := 0
	for i := range s.runs {
		n += len(s.runs[i].entries)
	}
	return n
}

func (s *shard) clone() *shard {
	c := &shard{number: s.number, revision: s.revision, runs: slices.Clone(s.runs)}
	for i := range c.runs {
		c.runs[i].entries = slices.Clone(c.runs[i].entries)
	}
	return c
}

// each calls fn for every partition in order until it returns false.
func (s *shard) each(fn func(frame.PartitionID, *entry) bool) bool {
	for i := range s.runs {
		r := &s.runs[i]
		for j := range r.entries {
			if !fn(frame.PartitionID{Topic: r.topic, Partition: r.first + int32(j)}, &r.entries[j]) {
				return false
			}
		}
	}
	return true
}

// rebuild replaces all entries; list is sorted by it.
func (s *shard) rebuild(list []idEntry) {
	slices.SortFunc(list, func(a, b idEntry) int { return a.id.Compare(b.id) })
	s.runs = s.runs[:0:0]
	for _, e := range list {
		if n := len(s.runs); n > 0 && s.runs[n-1].topic == e.id.Topic && s.runs[n-1].end() == e.id.Partition {
			s.runs[n-1].entries = append(s.runs[n-1].entries, e.entry)
			continue
		}
		s.runs = append(s.runs, run{topic: e.id.Topic, first: e.id.Partition, entries: []entry{e.entry}})
	}
}

type idEntry struct {
	id frame.PartitionID
	entry
}

func (s *shard) list() []idEntry {
	list := make([]idEntry, 0, s.count())
	s.each(func(id frame.PartitionID, e *entry) bool {
		list = append(list, idEntry{id, *e})
		return true
	})
	return list
}

// encode returns the value of the shard's key; docs/format/etcd.md describes it.
func (s *shard) encode() []byte {
	names := map[string]uint64{"": 0}
	var table []string
	s.each(func(_ frame.PartitionID, e *entry) bool {
		if _, ok := names[e.OwnerIncarnation]; !ok {
			table = append(table, e.OwnerIncarnation)
			names[e.OwnerIncarnation] = uint64(len(table))
		}
		return true
	})
	b := make([]byte, 0, 64+len(table)*40+s.count()*8+len(s.runs)*20)
	b = append(b, shardVersion)
	b = binary.AppendUvarint(b, uint64(len(table)))
	for _, n := range table {
		b = appendString(b, n)
	}
	b = binary.AppendUvarint(b, uint64(len(s.runs)))
	for i := range s.runs {
		r := &s.runs[i]
		b = append(b, r.topic[:]...)
		b = binary.AppendUvarint(b, uint64(r.first))
		b = binary.AppendUvarint(b, uint64(len(r.entries)))
		for j := range r.entries {
			b = appendEntry(b, &r.entries[j], names)
		}
	}
	return appendSum(b)
}

func appendSum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendEntry(b []byte, e *entry, names map[string]uint64) []byte {
	flags := byte(e.State) & entryState
	if e.Target != NoBroker {
		flags |= entryTarget
	}
	if e.Failures != 0 {
		flags |= entryFailure
	}
	if e.Safe {
		flags |= entrySafe
	}
	if e.Warm && e.Target != NoBroker {
		flags |= entryWarm
	}
	ext := e.extension()
	if len(ext) > 0 {
		flags |= entryExtension
	}
	b = append(b, flags)
	// Owner and epoch start at -1; one more makes them small unsigned numbers.
	b = binary.AppendUvarint(b, uint64(int64(e.Owner)+1))
	b = binary.AppendUvarint(b, names[e.OwnerIncarnation])
	b = binary.AppendUvarint(b, uint64(int64(e.Epoch)+1))
	if flags&entryTarget != 0 {
		b = binary.AppendUvarint(b, uint64(int64(e.Target)+1))
		b = binary.AppendUvarint(b, uint64(max(e.TargetSince, 0)))
	}
	if flags&entryFailure != 0 {
		b = binary.AppendUvarint(b, uint64(e.Failures))
		b = binary.AppendUvarint(b, uint64(e.FailedAt))
		b = appendString(b, e.Reason)
	}
	if flags&entryExtension != 0 {
		b = append(binary.AppendUvarint(b, uint64(len(ext))), ext...)
	}
	return b
}

// decodeShard reads a shard value. The error says what is wrong; the caller adds
// the key.
func decodeShard(number uint32, revision int64, value []byte) (*shard, error) {
	if len(value) > maxShardBytes {
		return nil, fmt.Errorf("%d bytes, at most %d are allowed", len(value), maxShardBytes)
	}
	if len(value) < 7 {
		return nil, fmt.Errorf("%d bytes are too few", len(value))
	}
	if value[0] < 1 || value[0] > shardVersion {
		return nil, fmt.Errorf("version %d is unknown", value[0])
	}
	body, sum := value[:len(value)-4], binary.LittleEndian.Uint32(value[len(value)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("checksum does not match")
	}
	d := decoder{b: body[1:], version: value[0]}
	s := &shard{number: number, revision: revision}
	d.names(len(body))
	total := 0
	n := d.count(maxShardPartitions, "runs")
	s.runs = make([]run, 0, min(n, len(body)/20+1))
	for range n {
		r := d.run(&total)
		if d.err != nil {
			return nil, d.err
		}
		if k := len(s.runs); k > 0 && !ordered(&s.runs[k-1], &r) {
			return nil, fmt.Errorf("runs overlap or are not in order at %s/%d", r.topic, r.first)
		}
		s.runs = append(s.runs, r)
	}
	if d.err != nil {
		return nil, d.err
	}
	if len(d.b) != 0 {
		return nil, fmt.Errorf("%d bytes left over", len(d.b))
	}
	return s, nil
}

func ordered(a, b *run) bool {
	c := a.topic.Compare(b.topic)
	return c < 0 || c == 0 && a.end() <= b.first
}

// decoder reads bounded fields; after the first fault every call returns zero.
type decoder struct {
	b       []byte
	version byte
	table   []string
	err     error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
		d.b = nil
	}
}

func (d *decoder) uvarint(most uint64, what string) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > most {
		d.fail("bad %s", what)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) count(most int, what string) int { return int(d.uvarint(uint64(most), what)) }

func (d *decoder) bytes(n int, what string) []byte {
	if n > len(d.b) {
		d.fail("%s is cut off", what)
		return nil
	}
	v := d.b[:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) names(size int) {
	n := d.count(maxShardPartitions, "number of incarnations")
	d.table = make([]string, 1, min(n, size)+1)
	for range n {
		if d.err != nil {
			return
		}
		l := d.count(maxIncarnation, "incarnation length")
		d.table = append(d.table, string(d.bytes(l, "incarnation")))
	}
}

func (d *decoder) run(total *int) run {
	var r run
	copy(r.topic[:], d.bytes(len(r.topic), "topic id"))
	r.first = int32(d.uvarint(MaxPartitionsPerTopic, "first partition"))
	n := d.count(maxShardPartitions, "run length")
	*total += n
	if n == 0 || *total > maxShardPartitions || int(r.first)+n > MaxPartitionsPerTopic {
		d.fail("bad run length %d", n)
		return r
	}
	// An entry takes four bytes at least, so the value's size bounds this.
	r.entries = make([]entry, 0, min(n, len(d.b)/4+1))
	for range n {
		e := d.entry()
		if d.err != nil {
			return r
		}
		r.entries = append(r.entries, e)
	}
	return r
}

func (d *decoder) entry() entry {
	e := entry{Assignment: Assignment{Target: NoBroker}}
	flags := d.bytes(1, "entry")
	if d.err != nil {
		return e
	}
	f := flags[0]
	bad := d.version == 1 && f&^entryOf1 != 0 || f&entryWarm != 0 && f&entryTarget == 0
	if bad || f&entryState >= byte(numStates) {
		d.fail("bad entry flags %#x", f)
		return e
	}
	const most = 1 << 31 // -1 and every int32 from 0
	e.State, e.Safe, e.Warm = State(f&entryState), f&entrySafe != 0, f&entryWarm != 0
	e.Owner = int32(int64(d.uvarint(most, "owner")) - 1)
	e.OwnerIncarnation = d.name()
	e.Epoch = int32(int64(d.uvarint(most, "epoch")) - 1)
	if f&entryTarget != 0 {
		e.Target = int32(int64(d.uvarint(most, "target")) - 1)
		if d.version > 1 {
			e.TargetSince = int64(d.uvarint(1<<62, "time of the target"))
		}
		if e.Target == NoBroker {
			d.fail("a target that is none")
		}
	}
	if f&entryFailure != 0 {
		if e.Failures = int32(d.uvarint(most-1, "failure count")); e.Failures == 0 {
			d.fail("a failure that never happened")
		}
		e.FailedAt = int64(d.uvarint(1<<62, "failure time"))
		l := d.count(MaxReason, "reason length")
		e.Reason = string(d.bytes(l, "reason"))
	}
	if f&entryExtension != 0 {
		l := d.count(maxExtension, "extension length")
		d.extension(&e, d.bytes(l, "extension"))
	}
	return e
}

func (d *decoder) name() string {
	i := d.uvarint(uint64(max(len(d.table), 1)-1), "incarnation")
	if d.err != nil {
		return ""
	}
	return d.table[i]
}
