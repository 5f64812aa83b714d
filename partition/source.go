package partition

import (
	"fmt"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
)

// rollSource reads the batches of one data object from the log, as often as the upload needs them: memory stays at
// one batch however large the object is. Every batch's CRC is checked, so damage never leaves the machine.
type rollSource struct {
	log     *segment.Log
	entries []index.Entry
	bytes   int64
	buf     []byte
}

// Batches implements tier.Source.
func (s *rollSource) Batches(yield func(b []byte, e tier.BatchInfo) error) error {
	var ref *segment.Ref
	defer func() {
		if ref != nil {
			ref.Release()
		}
	}()
	for i := range s.entries {
		e := &s.entries[i]
		if ref == nil || !ref.Holds(e.Position) {
			if ref != nil {
				ref.Release()
			}
			var ok bool
			if ref, ok = s.log.Acquire(e.Position); !ok {
				ref = nil
				return fmt.Errorf("offset %d at log position %d: %w", e.Base, e.Position, errFileGone)
			}
		}
		b, err := s.read(ref, e)
		if err != nil {
			return err
		}
		info := tier.BatchInfo{Base: e.Base, Last: e.Last, MaxTimestamp: e.MaxTimestamp, AppendTime: e.AppendTime, Epoch: e.Epoch, Records: e.Records, Size: len(b)}
		if err := yield(b, info); err != nil {
			return err
		}
	}
	return nil
}

func (s *rollSource) read(ref *segment.Ref, e *index.Entry) ([]byte, error) {
	if cap(s.buf) < int(e.Length) {
		s.buf = make([]byte, max(int(e.Length), 256<<10))
	}
	b := s.buf[:e.Length]
	if err := ref.ReadAt(b, e.Position+uint64(e.HeaderLen)); err != nil {
		return nil, fmt.Errorf("%w: read offset %d: %w", ErrStorage, e.Base, err)
	}
	h, err := batch.ParseHeader(b)
	if err == nil && (h.BaseOffset != e.Base || h.Size() != len(b)) {
		err = fmt.Errorf("it holds offset %d in %d bytes", h.BaseOffset, h.Size())
	}
	if err == nil {
		err = batch.CheckCRC(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: batch at offset %d, log position %d: %w", ErrCorrupt, e.Base, e.Position, err)
	}
	return b, nil
}
