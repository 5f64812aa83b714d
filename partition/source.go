package partition

import (
	"fmt"
	"io"

	"github.com/tierbroker/tierbroker/batch"
	"github.com/tierbroker/tierbroker/index"
	"github.com/tierbroker/tierbroker/segment"
	"github.com/tierbroker/tierbroker/tier"
)

// rollSource reads the batches of one data object from the log. An upload reads the headers, which promise a checksum
// for the object, and then streams the bytes once; who stores them compares both, so damage never leaves the machine.
// Memory stays small however large the object is.
type rollSource struct {
	log     *segment.Log
	entries []index.Entry
	bytes   int64
	buf     []byte
}

var _ tier.FileSource = (*rollSource)(nil)

// logReader reads from the log and keeps a reference on the file that it read last.
type logReader struct {
	log *segment.Log
	ref *segment.Ref
}

// read fills b with the bytes of e's batch from off on.
func (r *logReader) read(b []byte, e *index.Entry, off int) error {
	if r.ref == nil || !r.ref.Holds(e.Position) {
		r.close()
		ref, ok := r.log.Acquire(e.Position)
		if !ok {
			return fmt.Errorf("offset %d at log position %d: %w", e.Base, e.Position, errFileGone)
		}
		r.ref = ref
	}
	if err := r.ref.ReadAt(b, e.Position+uint64(e.HeaderLen)+uint64(off)); err != nil {
		return fmt.Errorf("%w: read offset %d: %w", ErrStorage, e.Base, err)
	}
	return nil
}

func (r *logReader) close() {
	if r.ref != nil {
		r.ref.Release()
		r.ref = nil
	}
}

// Batches implements tier.Source. Every batch's CRC is checked.
func (s *rollSource) Batches(yield func(b []byte, e tier.BatchInfo) error) error {
	return s.each(func(e *index.Entry) int { return int(e.Length) }, yield)
}

// wholeBytes is up to which size a batch is read as a whole where its header would do: the call costs more than the
// bytes.
const wholeBytes = 4 << 10

// Headers implements tier.FileSource.
func (s *rollSource) Headers(yield func(b []byte, e tier.BatchInfo) error) error {
	return s.each(func(e *index.Entry) int {
		if e.Length <= wholeBytes {
			return int(e.Length)
		}
		return batch.HeaderLen
	}, yield)
}

// each reads the first size(e) bytes of each batch.
func (s *rollSource) each(size func(*index.Entry) int, yield func(b []byte, e tier.BatchInfo) error) error {
	r := logReader{log: s.log}
	defer r.close()
	for i := range s.entries {
		e := &s.entries[i]
		b, err := s.read(&r, e, size(e))
		if err != nil {
			return err
		}
		info := tier.BatchInfo{Base: e.Base, Last: e.Last, MaxTimestamp: e.MaxTimestamp, AppendTime: e.AppendTime, Epoch: e.Epoch, Records: e.Records, Size: int(e.Length)}
		if err := yield(b, info); err != nil {
			return err
		}
	}
	return nil
}

// read returns the first n bytes of a batch, its header at least, and compares them with what the index says; the CRC
// is checked when they are the whole batch. They are valid until the next call.
func (s *rollSource) read(r *logReader, e *index.Entry, n int) ([]byte, error) {
	if cap(s.buf) < n {
		s.buf = make([]byte, max(n, wholeBytes))
	}
	b := s.buf[:n]
	if err := r.read(b, e, 0); err != nil {
		return nil, err
	}
	h, err := batch.ParseHeader(b)
	if err == nil && (h.BaseOffset != e.Base || h.LeaderEpoch != e.Epoch || h.Size() != int(e.Length)) {
		err = fmt.Errorf("it holds offset %d of epoch %d in %d bytes", h.BaseOffset, h.LeaderEpoch, h.Size())
	}
	if err == nil && n == int(e.Length) {
		err = batch.CheckCRC(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: batch at offset %d, log position %d: %w", ErrCorrupt, e.Base, e.Position, err)
	}
	return b, nil
}

// check reads everything and returns what is wrong with it, nil if nothing is.
func (s *rollSource) check() error {
	return s.Batches(func([]byte, tier.BatchInfo) error { return nil })
}

// Stream implements tier.FileSource.
func (s *rollSource) Stream() (io.ReadCloser, error) {
	return &rollStream{r: logReader{log: s.log}, left: s.entries}, nil
}

// rollStream reads batches one after the other straight into the caller's buffer.
type rollStream struct {
	r    logReader
	left []index.Entry
	off  int // bytes of the first one that were read
}

// Read implements io.Reader. It fills p unless the batches end.
func (s *rollStream) Read(p []byte) (n int, err error) {
	for n < len(p) && len(s.left) > 0 {
		e := &s.left[0]
		k := min(len(p)-n, int(e.Length)-s.off)
		if err := s.r.read(p[n:n+k], e, s.off); err != nil {
			return n, err
		}
		n += k
		if s.off += k; s.off == int(e.Length) {
			s.left, s.off = s.left[1:], 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (s *rollStream) Close() error {
	s.r.close()
	s.left = nil
	return nil
}
