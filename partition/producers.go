package partition

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/tierbroker/tierbroker/batch"
)

// keptBatches is how many batches of a producer are remembered: Kafka's idempotent producers have at most five in
// flight, so a retry is always one of the last five.
const keptBatches = 5

// producedBatch is one batch of an idempotent producer.
type producedBatch struct {
	firstSeq, lastSeq int32
	base, last        int64
	end               uint64 // log position behind the frame, 0 when it was durable before this run
	gen               uint64 // log generation of end
}

// producer is what the sequence check of KIP-98 needs to know of one producer id.
type producer struct {
	epoch  int16
	n      uint8
	seen   int64 // append time of the newest batch, ms: expiry counts from here
	at     int   // the commit loop's own: where its entry in Set.touchedProducers is, if it has one
	recent [keptBatches]producedBatch
}

func (s *producer) newest() *producedBatch {
	if s.n == 0 {
		return nil
	}
	return &s.recent[s.n-1]
}

// lastOffset is that of the newest batch, -1 when none is known.
func (s *producer) lastOffset() int64 {
	if b := s.newest(); b != nil {
		return b.last
	}
	return -1
}

func (s *producer) push(b producedBatch) {
	if s.n == keptBatches {
		copy(s.recent[:], s.recent[1:])
		s.n--
	}
	s.recent[s.n] = b
	s.n++
}

// producers is the table of one partition. The partition holds two: live (as appended) and settled (as committed to
// the index), so that a failed write can return to the settled state.
type producers map[int64]*producer

// verdict of a sequence check.
type verdict uint8

const (
	accept verdict = iota
	duplicate
)

// nextSequence is Kafka's sequence arithmetic: it wraps from the largest int32 to 0.
func nextSequence(seq int32) int32 {
	if seq == 1<<31-1 {
		return 0
	}
	return seq + 1
}

// before says whether sequence a lies before b on the circle on which they wrap: whichever way is shorter.
func before(a, b int32) bool { return a != b && uint32(b-a)&(1<<31-1) < 1<<30 }

// check decides about a batch with a producer id. For a duplicate it returns the batch that was stored first.
func (t producers) check(h *batch.Header) (verdict, producedBatch, error) {
	s := t[h.ProducerID]
	if s == nil {
		// A producer never seen here may start anywhere: its state may have expired, or its
		// earlier records may be gone (Kafka does the same since KIP-360).
		return accept, producedBatch{}, nil
	}
	if h.ProducerEpoch < s.epoch {
		return accept, producedBatch{}, fmt.Errorf("%w: producer %d epoch %d, latest %d", ErrProducerFenced, h.ProducerID, h.ProducerEpoch, s.epoch)
	}
	if h.ProducerEpoch > s.epoch {
		if h.FirstSequence != 0 {
			return accept, producedBatch{}, fmt.Errorf("%w: producer %d starts epoch %d at sequence %d", ErrOutOfOrderSequence, h.ProducerID, h.ProducerEpoch, h.FirstSequence)
		}
		return accept, producedBatch{}, nil
	}
	last := h.LastSequence()
	for i := range s.recent[:s.n] {
		if b := s.recent[i]; b.firstSeq == h.FirstSequence && b.lastSeq == last {
			return duplicate, b, nil
		}
	}
	newest := s.newest()
	if newest == nil || h.FirstSequence == nextSequence(newest.lastSeq) {
		return accept, producedBatch{}, nil
	}
	if oldest := s.recent[0]; before(last, oldest.firstSeq) {
		return accept, producedBatch{}, fmt.Errorf("%w: producer %d sequence %d, oldest remembered %d", ErrDuplicateSequence, h.ProducerID, h.FirstSequence, oldest.firstSeq)
	}
	return accept, producedBatch{}, fmt.Errorf("%w: producer %d sequence %d, expected %d", ErrOutOfOrderSequence, h.ProducerID, h.FirstSequence, nextSequence(newest.lastSeq))
}

// produced is the one change that a batch makes to a producer table, live, at commit and at replay.
type produced struct {
	id    int64
	epoch int16
	seen  int64
	batch producedBatch
}

func (t producers) apply(d produced) *producer {
	s := t[d.id]
	if s == nil {
		s = &producer{epoch: d.epoch}
		t[d.id] = s
	}
	if s.epoch != d.epoch {
		*s = producer{epoch: d.epoch}
	}
	s.seen = d.seen
	s.push(d.batch)
	return s
}

func (t producers) clone() producers {
	c := make(producers, len(t))
	for id, s := range t {
		v := *s
		c[id] = &v
	}
	return c
}

// Encoding of one producer in the index and in snapshots: version, count, epoch, seen, then per batch first and last
// sequence, base and last offset, all big endian (docs/format/index.md).
const (
	producerVersion  = 1
	producerFixed    = 1 + 1 + 2 + 8
	producedBatchLen = 4 + 4 + 8 + 8
)

func (s *producer) encode(dst []byte) []byte {
	dst = append(dst, producerVersion, s.n)
	dst = binary.BigEndian.AppendUint16(dst, uint16(s.epoch))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.seen))
	for _, b := range s.recent[:s.n] {
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.firstSeq))
		dst = binary.BigEndian.AppendUint32(dst, uint32(b.lastSeq))
		dst = binary.BigEndian.AppendUint64(dst, uint64(b.base))
		dst = binary.BigEndian.AppendUint64(dst, uint64(b.last))
	}
	return dst
}

// decodeProducer reads one producer and returns what follows it.
func decodeProducer(b []byte) (*producer, []byte, error) {
	if len(b) < producerFixed || b[0] != producerVersion || b[1] > keptBatches {
		return nil, nil, fmt.Errorf("%w: producer state", ErrCorrupt)
	}
	s := &producer{n: b[1], epoch: int16(binary.BigEndian.Uint16(b[2:])), seen: int64(binary.BigEndian.Uint64(b[4:]))}
	b = b[producerFixed:]
	if len(b) < int(s.n)*producedBatchLen {
		return nil, nil, fmt.Errorf("%w: producer state is cut short", ErrCorrupt)
	}
	for i := range s.recent[:s.n] {
		s.recent[i] = producedBatch{
			firstSeq: int32(binary.BigEndian.Uint32(b)), lastSeq: int32(binary.BigEndian.Uint32(b[4:])),
			base: int64(binary.BigEndian.Uint64(b[8:])), last: int64(binary.BigEndian.Uint64(b[16:])),
		}
		b = b[producedBatchLen:]
	}
	return s, b, nil
}

// encodeSnapshot writes the table as of offset end: batches at or above end are left out, and so is a producer of
// whom nothing else is known.
func (t producers) encodeSnapshot(end int64) []byte {
	var dst []byte
	for _, id := range slices.Sorted(maps.Keys(t)) {
		s := t[id]
		cut := producer{epoch: s.epoch, seen: s.seen}
		for _, b := range s.recent[:s.n] {
			if b.last < end {
				cut.push(b)
			}
		}
		if cut.n == 0 {
			continue
		}
		dst = binary.BigEndian.AppendUint64(dst, uint64(id))
		dst = cut.encode(dst)
	}
	return dst
}

// decodeSnapshot is the reverse of encodeSnapshot. Its memory is bounded by len(b).
func decodeSnapshot(b []byte) (producers, error) {
	t := producers{}
	for len(b) > 0 {
		if len(b) < 8 {
			return nil, fmt.Errorf("%w: producer snapshot is cut short", ErrCorrupt)
		}
		id := int64(binary.BigEndian.Uint64(b))
		s, rest, err := decodeProducer(b[8:])
		if err != nil {
			return nil, err
		}
		t[id], b = s, rest
	}
	return t, nil
}

// ProducerInfo describes one idempotent producer for DescribeProducers and tools.
type ProducerInfo struct {
	ID           int64
	Epoch        int16
	LastSequence int32
	LastSeen     int64 // append time of its newest batch, ms
}
