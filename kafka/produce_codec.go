package kafka

import "fmt"

// Versions of Produce that the codec knows.
const (
	ProduceMinVersion = 3
	ProduceMaxVersion = 13
)

// Smallest encodings of array elements, by which announced counts are capped.
const (
	minProduceTopic     = 2 // an empty name or more, an empty array
	minProduceTopicID   = 17
	minProducePartition = 5 // index and an empty byte string
)

// DecodeProduce decodes the body of a Produce request into into, which is reused. Errors wrap
// ErrMalformed; into is then undefined but safe to reuse. Bytes after the message are ignored
// as Kafka does.
func DecodeProduce(version int16, body []byte, into *ProduceRequest) error {
	if version < ProduceMinVersion || version > ProduceMaxVersion {
		return fmt.Errorf("%w: Produce version %d", ErrMalformed, version)
	}
	w := wire{b: body, flex: version >= 9}
	into.TransactionalID = nil
	if s, ok := w.nullStr(); ok {
		into.txn = into.names.get(s)
		into.TransactionalID = &into.txn
	}
	into.Acks = w.int16()
	into.TimeoutMs = w.int32()
	size := minProduceTopic
	if version >= 13 {
		size = minProduceTopicID
	}
	into.Topics = grow(into.Topics, w.array(size))
	for i := range into.Topics {
		t := &into.Topics[i]
		t.decode(&w, version, &into.names)
		if w.err != nil {
			return w.err
		}
	}
	w.tags(nil)
	return w.err
}

func (t *ProduceTopic) decode(w *wire, version int16, names *interner) {
	t.Name, t.ID = "", [16]byte{}
	if version >= 13 {
		t.ID = w.uuid()
	} else {
		t.Name = names.get(w.str())
	}
	t.Partitions = grow(t.Partitions, w.array(minProducePartition))
	for i := range t.Partitions {
		p := &t.Partitions[i]
		p.Index = w.int32()
		p.Records = w.nullBytes()
		w.tags(nil)
		if w.err != nil {
			return
		}
	}
	w.tags(nil)
}

// AppendProduceResponse appends the body of a Produce response.
func AppendProduceResponse(dst []byte, version int16, r *ProduceResponse) []byte {
	flex := version >= 9
	dst = appendArray(dst, len(r.Topics), flex)
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= 13 {
			dst = append(dst, t.ID[:]...)
		} else {
			dst = appendStr(dst, t.Name, flex)
		}
		dst = appendArray(dst, len(t.Partitions), flex)
		for j := range t.Partitions {
			dst = t.Partitions[j].append(dst, version, flex)
		}
		dst = appendNoTags(dst, flex)
	}
	dst = appendInt32(dst, r.ThrottleMs)
	return appendEndpoints(dst, r.NodeEndpoints, flex, version >= 10)
}

func (p *ProducePartitionResult) append(dst []byte, version int16, flex bool) []byte {
	dst = appendInt32(dst, p.Index)
	dst = appendInt16(dst, p.Error)
	dst = appendInt64(dst, p.BaseOffset)
	dst = appendInt64(dst, p.LogAppendTime)
	if version >= 5 {
		dst = appendInt64(dst, p.LogStart)
	}
	if version >= 8 {
		dst = appendArray(dst, len(p.RecordErrors), flex)
		for i := range p.RecordErrors {
			e := &p.RecordErrors[i]
			dst = appendInt32(dst, e.Index)
			dst = appendNullStr(dst, e.Message, flex)
			dst = appendNoTags(dst, flex)
		}
		dst = appendNullStr(dst, p.ErrorMessage, flex)
	}
	if version < 10 || p.CurrentLeader == nil {
		return appendNoTags(dst, flex)
	}
	return appendLeader(append(dst, 1), 0, p.CurrentLeader)
}
