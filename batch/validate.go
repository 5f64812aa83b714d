package batch

import (
	"fmt"
	"math"
	"time"
)

// Limits are a topic's rules for what producers send. The zero value checks the format
// only.
type Limits struct {
	// MaxBytes is the largest batch, in bytes (max.message.bytes); 0 = no limit.
	MaxBytes int
	// NeedKeys refuses records without a key: the topic is compacted. Compressed batches
	// are decompressed for it.
	NeedKeys bool
	// WalkCompressed checks the records of compressed batches too.
	WalkCompressed bool
	// CreateTime: the topic keeps the producers' timestamps, so they must be within
	// MaxBefore before and MaxAfter after Now (message.timestamp.before.max.ms,
	// message.timestamp.after.max.ms; below 0: any). Now is in milliseconds since 1970.
	CreateTime          bool
	Now                 int64
	MaxBefore, MaxAfter time.Duration
}

// timeRange returns the smallest and largest timestamp allowed.
func (l *Limits) timeRange() (lo, hi int64) {
	lo, hi = math.MinInt64, math.MaxInt64
	if !l.CreateTime {
		return lo, hi
	}
	if l.MaxBefore >= 0 {
		lo = l.Now - l.MaxBefore.Milliseconds()
	}
	if l.MaxAfter >= 0 {
		hi = l.Now + l.MaxAfter.Milliseconds()
	}
	return lo, hi
}

// Validate checks that b is exactly one whole batch as a producer may send it: magic,
// length, size, CRC, counts, attributes, producer fields and timestamps; uncompressed
// records are walked one by one, compressed ones when l asks for it. For the happy path
// of an uncompressed batch nothing is allocated.
//
// When the records were walked and the header's max timestamp is not theirs, b is
// corrected in place, with its CRC, as Kafka does. The returned header is the
// corrected one. On errors b is unchanged. All errors of this package are possible;
// those of single records are a [RecordError].
func Validate(b []byte, l Limits) (Header, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return Header{}, err
	}
	if err := checkEnvelope(b, &h, &l); err != nil {
		return Header{}, err
	}
	if err := checkProducerFields(&h); err != nil {
		return Header{}, err
	}
	if h.Codec() != None && !l.NeedKeys && !l.WalkCompressed {
		return h, checkHeaderTimes(&h, &l)
	}
	maxTime, err := walkRecords(b, &h, &l)
	if err != nil {
		return Header{}, err
	}
	if maxTime != h.MaxTimestamp {
		setMaxTimestamp(b, maxTime)
		return ParseHeader(b)
	}
	return h, nil
}

// checkEnvelope checks what says that these bytes are one intact batch.
func checkEnvelope(b []byte, h *Header, l *Limits) error {
	switch n := h.Size(); {
	case l.MaxBytes > 0 && n > l.MaxBytes:
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, n, l.MaxBytes)
	case n > len(b):
		return fmt.Errorf("%w: batch of %d bytes in %d", ErrShort, n, len(b))
	case n < len(b):
		return fmt.Errorf("%w: %d bytes after the one batch", ErrRecord, len(b)-n)
	}
	return CheckCRC(b)
}

// checkProducerFields checks the header fields a producer is responsible for. The base offset is not: it is
// overwritten, whatever it is, as Kafka does.
func checkProducerFields(h *Header) error {
	switch {
	case h.RecordCount <= 0:
		return fmt.Errorf("%w: %d records", ErrCount, h.RecordCount)
	case h.LastOffsetDelta != h.RecordCount-1:
		return fmt.Errorf("%w: %d records, but the last offset delta is %d", ErrCount, h.RecordCount, h.LastOffsetDelta)
	case int64(h.RecordCount) > int64(h.Length) && h.Codec() == None:
		return fmt.Errorf("%w: %d records in %d bytes", ErrCount, h.RecordCount, h.Length)
	case h.Codec() > Zstd:
		return fmt.Errorf("%w: %d", ErrCodec, h.Codec())
	case h.IsControl():
		return fmt.Errorf("%w: clients are not allowed to write control records", ErrRecord)
	case h.Attributes&bitDeleteHorizon != 0:
		return fmt.Errorf("%w: clients are not allowed to set a delete horizon", ErrRecord)
	case h.IsLogAppendTime():
		return fmt.Errorf("%w: producers should not set the timestamp type to LogAppendTime", ErrTimestamp)
	case h.HasProducer() && (h.FirstSequence < 0 || h.ProducerEpoch < 0):
		return fmt.Errorf("%w: sequence %d and epoch %d of producer %d", ErrRecord, h.FirstSequence, h.ProducerEpoch, h.ProducerID)
	case h.IsTransactional() && !h.HasProducer():
		return fmt.Errorf("%w: transactional without a producer id", ErrRecord)
	}
	return nil
}

// checkHeaderTimes checks the timestamps of a batch whose records aren't looked at.
func checkHeaderTimes(h *Header, l *Limits) error {
	lo, hi := l.timeRange()
	for _, t := range [2]int64{h.FirstTimestamp, h.MaxTimestamp} {
		if t != -1 && (t < lo || t > hi) {
			return fmt.Errorf("%w: %d is not within [%d, %d]", ErrTimestamp, t, lo, hi)
		}
	}
	return nil
}

// walkRecords checks each record and returns the largest timestamp.
func walkRecords(b []byte, h *Header, l *Limits) (maxTime int64, err error) {
	var c cursor
	if err := c.open(b, h, DefaultMaxPlain); err != nil {
		return 0, err
	}
	defer c.close()
	lo, hi := l.timeRange()
	maxTime = math.MinInt64
	for {
		ok, err := c.next()
		if err != nil {
			return 0, err
		}
		if !ok {
			return maxTime, nil
		}
		i := c.index - 1
		t := h.FirstTimestamp + c.rec.timeDelta
		switch {
		case int(c.rec.offsetDelta) != i:
			return 0, &RecordError{Index: i, Msg: fmt.Sprintf("offset delta %d", c.rec.offsetDelta)}
		case t != -1 && (t < lo || t > hi):
			return 0, &RecordError{Index: i, Msg: fmt.Sprintf("timestamp %d is not within [%d, %d]", t, lo, hi), err: ErrTimestamp}
		case l.NeedKeys && c.rec.key == nil:
			return 0, &RecordError{Index: i, Msg: "a compacted topic needs a key"}
		}
		maxTime = max(maxTime, t)
	}
}
