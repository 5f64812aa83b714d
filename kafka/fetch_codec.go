package kafka

import (
	"fmt"
	"math"
	"net"
)

// Versions of Fetch that the codec knows.
const (
	FetchMinVersion = 4
	FetchMaxVersion = 18
)

// Smallest encodings of array elements, by which announced counts are capped.
const (
	minFetchTopic     = 2
	minFetchTopicID   = 17
	minFetchPartition = 16 // index, offset, max bytes
)

// DecodeFetch decodes the body of a Fetch request into into, which is reused. Errors wrap
// ErrMalformed; into is then undefined but safe to reuse. Bytes after the message are ignored
// as Kafka does.
func DecodeFetch(version int16, body []byte, into *FetchRequest) error {
	if version < FetchMinVersion || version > FetchMaxVersion {
		return fmt.Errorf("%w: Fetch version %d", ErrMalformed, version)
	}
	w := wire{b: body, flex: version >= 12}
	r := into
	r.ReplicaID, r.ReplicaEpoch, r.ClusterID = -1, -1, nil
	if version <= 14 {
		r.ReplicaID = w.int32()
	}
	r.MaxWaitMs = w.int32()
	r.MinBytes = w.int32()
	r.MaxBytes = w.int32()
	r.IsolationLevel = w.int8()
	r.SessionID, r.SessionEpoch = 0, -1
	if version >= 7 {
		r.SessionID = w.int32()
		r.SessionEpoch = w.int32()
	}
	size := minFetchTopic
	if version >= 13 {
		size = minFetchTopicID
	}
	r.Topics = grow(r.Topics, w.array(size))
	for i := range r.Topics {
		r.Topics[i].decode(&w, version, &r.names)
		if w.err != nil {
			return w.err
		}
	}
	r.Forgotten = r.Forgotten[:0]
	if version >= 7 {
		r.Forgotten = grow(r.Forgotten, w.array(size))
		for i := range r.Forgotten {
			r.Forgotten[i].decode(&w, version, &r.names)
			if w.err != nil {
				return w.err
			}
		}
	}
	r.Rack = ""
	if version >= 11 {
		r.Rack = r.names.get(w.str())
	}
	r.decodeTags(&w, version)
	return w.err
}

func (r *FetchRequest) decodeTags(w *wire, version int16) {
	w.tags(func(tag uint32, f *wire) {
		switch {
		case tag == 0:
			if s, ok := f.nullStr(); ok {
				r.cluster = r.names.get(s)
				r.ClusterID = &r.cluster
			}
		case tag == 1 && version >= 15:
			r.ReplicaID = f.int32()
			r.ReplicaEpoch = f.int64()
			f.tags(nil)
		}
	})
}

// topic reads a topic's name or id.
func (w *wire) topic(version int16, names *interner) (name string, id [16]byte) {
	if version >= 13 {
		return "", w.uuid()
	}
	return names.get(w.str()), id
}

func (t *FetchRequestTopic) decode(w *wire, version int16, names *interner) {
	t.Name, t.ID = w.topic(version, names)
	t.Partitions = grow(t.Partitions, w.array(minFetchPartition))
	for i := range t.Partitions {
		t.Partitions[i].decode(w, version)
		if w.err != nil {
			return
		}
	}
	w.tags(nil)
}

func (p *FetchRequestPartition) decode(w *wire, version int16) {
	*p = FetchRequestPartition{CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1, HighWatermark: math.MaxInt64}
	p.Index = w.int32()
	if version >= 9 {
		p.CurrentLeaderEpoch = w.int32()
	}
	p.Offset = w.int64()
	if version >= 12 {
		p.LastFetchedEpoch = w.int32()
	}
	if version >= 5 {
		p.LogStartOffset = w.int64()
	}
	p.MaxBytes = w.int32()
	if w.flex && w.left() > 0 && w.b[w.off] == 0 {
		w.off++ // no tags: the usual case, without the closure
		return
	}
	w.tags(func(tag uint32, f *wire) {
		switch {
		case tag == 0 && version >= 17:
			p.ReplicaDirectoryID = f.uuid()
		case tag == 1 && version >= 18:
			p.HighWatermark = f.int64()
		}
	})
}

func (t *ForgottenTopic) decode(w *wire, version int16, names *interner) {
	t.Name, t.ID = w.topic(version, names)
	t.Partitions = grow(t.Partitions, w.array(4))
	for i := range t.Partitions {
		t.Partitions[i] = w.int32()
	}
	w.tags(nil)
}

// EncodeFetchResponse returns the body of a Fetch response as slices: the records are those of
// r, everything else is in one new slice between them. Records of one partition must not
// exceed 2 GiB.
func EncodeFetchResponse(version int16, r *FetchResponse) net.Buffers {
	e := newFetchEncoder(r)
	flex := version >= 12
	e.meta = appendInt32(e.meta, r.ThrottleMs)
	if version >= 7 {
		e.meta = appendInt16(e.meta, r.Error)
		e.meta = appendInt32(e.meta, r.SessionID)
	}
	e.meta = appendArray(e.meta, len(r.Topics), flex)
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= 13 {
			e.meta = append(e.meta, t.ID[:]...)
		} else {
			e.meta = appendStr(e.meta, t.Name, flex)
		}
		e.meta = appendArray(e.meta, len(t.Partitions), flex)
		for j := range t.Partitions {
			e.partition(version, flex, &t.Partitions[j])
		}
		e.meta = appendNoTags(e.meta, flex)
	}
	e.meta = appendEndpoints(e.meta, r.NodeEndpoints, flex, version >= 16)
	e.cut()
	return e.bufs
}

// fetchEncoder collects slices. meta never grows past its capacity (newFetchEncoder sized it
// for the worst), so slices of it that are already in bufs stay valid.
type fetchEncoder struct {
	bufs net.Buffers
	meta []byte
	from int // start of the part of meta that is not in bufs yet
}

// Worst-case sizes of the encodings, for newFetchEncoder.
const (
	maxFetchResponse  = 32
	maxFetchTopic     = 32
	maxFetchPartition = 4 + 2 + 8 + 8 + 8 + 5 + 4 + 5 + 1 + (1 + 1 + 13) + (1 + 1 + 9) + (1 + 1 + 13)
	maxAborted        = 17
	maxEndpoint       = 4 + 5 + 4 + 5 + 1
)

func newFetchEncoder(r *FetchResponse) fetchEncoder {
	size, pieces := maxFetchResponse, 1
	for i := range r.Topics {
		t := &r.Topics[i]
		size += maxFetchTopic + len(t.Name) + len(t.Partitions)*maxFetchPartition
		for j := range t.Partitions {
			p := &t.Partitions[j]
			size += len(p.AbortedTransactions) * maxAborted
			if len(p.Records) > 0 {
				pieces += len(p.Records) + 1
			}
		}
	}
	if len(r.NodeEndpoints) > 0 {
		size += maxEndpoint
	}
	for i := range r.NodeEndpoints {
		n := &r.NodeEndpoints[i]
		size += maxEndpoint + len(n.Host)
		if n.Rack != nil {
			size += len(*n.Rack)
		}
	}
	return fetchEncoder{bufs: make(net.Buffers, 0, pieces), meta: make([]byte, 0, size)}
}

// cut moves what was appended to meta since the last cut into bufs.
func (e *fetchEncoder) cut() {
	if len(e.meta) > e.from {
		e.bufs = append(e.bufs, e.meta[e.from:len(e.meta):len(e.meta)])
		e.from = len(e.meta)
	}
}

func (e *fetchEncoder) partition(version int16, flex bool, p *FetchPartition) {
	m := appendInt32(e.meta, p.Index)
	m = appendInt16(m, p.Error)
	m = appendInt64(m, p.HighWatermark)
	m = appendInt64(m, p.LastStableOffset)
	if version >= 5 {
		m = appendInt64(m, p.LogStartOffset)
	}
	if p.AbortedTransactions == nil {
		if flex {
			m = append(m, 0)
		} else {
			m = appendInt32(m, -1)
		}
	} else {
		m = appendArray(m, len(p.AbortedTransactions), flex)
	}
	for _, a := range p.AbortedTransactions {
		m = appendInt64(m, a.ProducerID)
		m = appendInt64(m, a.FirstOffset)
		m = appendNoTags(m, flex)
	}
	if version >= 11 {
		m = appendInt32(m, p.PreferredReadReplica)
	}
	total := 0
	for _, b := range p.Records {
		total += len(b)
	}
	e.meta = appendArray(m, total, flex) // a byte string's length is coded like a count
	if total > 0 {
		e.cut()
		for _, b := range p.Records {
			if len(b) > 0 {
				e.bufs = append(e.bufs, b)
			}
		}
	}
	e.meta = p.appendTags(e.meta, flex)
}

func (p *FetchPartition) appendTags(m []byte, flex bool) []byte {
	if !flex {
		return m
	}
	count := byte(0)
	at := len(m)
	m = append(m, 0)
	if d := p.DivergingEpoch; d != nil {
		count++
		m = append(m, 0, 13)
		m = appendInt32(m, d.Epoch)
		m = appendInt64(m, d.EndOffset)
		m = append(m, 0)
	}
	if p.CurrentLeader != nil {
		count++
		m = appendLeader(m, 1, p.CurrentLeader)
	}
	if s := p.SnapshotID; s != nil {
		count++
		m = append(m, 2, 13)
		m = appendInt64(m, s.EndOffset)
		m = appendInt32(m, s.Epoch)
		m = append(m, 0)
	}
	m[at] = count
	return m
}
