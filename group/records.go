package group

import (
	"encoding/binary"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The kinds of records, as the first two bytes of a key say.
const (
	kindOffsetOld       int16 = 0
	kindOffset          int16 = 1
	kindClassic         int16 = 2
	kindEpoch           int16 = 3
	kindTopicsOld       int16 = 4
	kindMember          int16 = 5
	kindTargetEpoch     int16 = 6
	kindTarget          int16 = 7
	kindCurrent         int16 = 8
	kindRegex           int16 = 16
	offsetValueVersion        = 4
	classicValueVersion       = 3
	maxName                   = math.MaxInt16 // bytes of a string in a key
)

// Apply changes the durable state as the record says. It is for replay: live, the machine applies its own records. A
// record that can't be read is counted and skipped. It keeps nothing of r.
func (m *Machine) Apply(r Record) {
	k := keyReader{r.Key}
	ok := false
	switch kind, some := k.int16(); {
	case !some:
	case kind == kindOffset || kind == kindOffsetOld:
		ok = m.applyOffset(&k, r.Value)
	case kind == kindClassic:
		ok = m.applyClassic(&k, r.Value)
	case kind == kindTopicsOld:
		ok = true
	case kind >= kindEpoch && kind <= kindCurrent || kind == kindRegex:
		ok = m.applyConsumer(kind, &k, r.Value)
	}
	if !ok {
		m.badRecords++
	}
}

// keyReader reads the fields of a key; once it ran out, every further read fails.
type keyReader struct{ b []byte }

func (k *keyReader) int16() (int16, bool) {
	if len(k.b) < 2 {
		k.b = nil
		return 0, false
	}
	v := int16(binary.BigEndian.Uint16(k.b))
	k.b = k.b[2:]
	return v, true
}

func (k *keyReader) int32() (int32, bool) {
	if len(k.b) < 4 {
		k.b = nil
		return 0, false
	}
	v := int32(binary.BigEndian.Uint32(k.b))
	k.b = k.b[4:]
	return v, true
}

// bytes reads a string in place.
func (k *keyReader) bytes() ([]byte, bool) {
	n, ok := k.int16()
	if !ok || n < 0 || int(n) > len(k.b) {
		k.b = nil
		return nil, false
	}
	v := k.b[:n]
	k.b = k.b[n:]
	return v, true
}

// end tells whether the key was read to its end.
func (k *keyReader) end(ok bool) bool { return ok && len(k.b) == 0 }

func appendKey(b []byte, kind int16, names ...string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(kind))
	for _, s := range names {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return b
}

// cut returns what was appended to the arena since start as a slice of its own. Records of one step share arenas, so that a
// commit of many partitions costs few allocations.
func (m *Machine) cut(start int) []byte { return m.arena[start:len(m.arena):len(m.arena)] }

// room makes sure that the arena has space, without moving records that were cut from it.
func (m *Machine) room(n int) {
	if cap(m.arena)-len(m.arena) < n {
		m.arena = make([]byte, 0, max(n, 512, min(2*cap(m.arena), 64<<10)))
	}
}

func (m *Machine) emitOffset(group, topic string, partition int32, o *offset) {
	m.room(96 + 2*len(group) + len(topic))
	start := len(m.arena)
	m.arena = appendOffsetKey(m.arena, group, topic, partition)
	r := Record{Key: m.cut(start)}
	if o != nil {
		m.room(64 + len(o.metadata))
		start = len(m.arena)
		m.arena = o.append(m.arena)
		r.Value = m.cut(start)
	}
	m.emit(r)
}

func appendOffsetKey(b []byte, group, topic string, partition int32) []byte {
	b = appendKey(b, kindOffset, group, topic)
	return binary.BigEndian.AppendUint32(b, uint32(partition))
}

// emitKey emits a record of a kind whose key is made of names; value nil is a tombstone.
func (m *Machine) emitKey(kind int16, value []byte, names ...string) {
	m.emit(Record{Key: appendKey(nil, kind, names...), Value: value})
}

// append appends the offset as a value.
func (o *offset) append(b []byte) []byte {
	v := kmsg.OffsetCommitValue{
		Version: offsetValueVersion, Offset: o.at, LeaderEpoch: o.epoch, Metadata: o.metadata,
		CommitTimestamp: o.committed, TopicID: o.topic,
	}
	if o.expires >= 0 {
		// Only version 1 has a time of its own to expire.
		v.Version, v.ExpireTimestamp = 1, o.expires
	}
	return v.AppendTo(b)
}
