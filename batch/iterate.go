package batch

import (
	"fmt"
	"io"
)

// DefaultMaxPlain is how many bytes of records [Iterate] decompresses from one batch at
// most.
const DefaultMaxPlain = 256 << 20

// Iterate calls fn for each record of the whole batch b in order, until fn returns false.
// The record and all it refers to are valid during the call. Compressed records are
// streamed in bounded memory. Errors: those of [Next], ErrCodec, ErrRecord for records
// that cannot be read (fn has seen the ones before), ErrTooLarge past DefaultMaxPlain.
func Iterate(b []byte, fn func(*Record) bool) error {
	return IterateLimit(b, DefaultMaxPlain, fn)
}

// IterateLimit is Iterate with a limit for the decompressed records, in bytes.
func IterateLimit(b []byte, maxPlain int64, fn func(*Record) bool) error {
	h, one, _, err := Next(b)
	if err != nil {
		return err
	}
	var c cursor
	if err := c.open(one, &h, maxPlain); err != nil {
		return err
	}
	defer c.close()
	var out Record
	for {
		ok, err := c.next()
		if !ok || err != nil {
			return err
		}
		c.rec.fill(&h, &out)
		if !fn(&out) {
			return nil
		}
	}
}

// cursor walks the encoded records of a batch. Use: open, next until false or an error,
// close.
type cursor struct {
	count  int32   // records of the batch
	delta  int32   // the largest offset delta allowed
	index  int     // records returned so far
	plain  []byte  // what is left of an uncompressed batch
	stream *stream // nil for an uncompressed batch
	rec    record  // valid until the next call of next
}

// open starts at the first record of b, which is exactly one batch.
func (c *cursor) open(b []byte, h *Header, maxPlain int64) error {
	c.count, c.delta = h.RecordCount, h.LastOffsetDelta
	if h.Codec() == None {
		c.plain = b[HeaderLen:]
		return nil
	}
	if h.RecordCount == 0 && len(b) == HeaderLen { // emptied by compaction: nothing to decompress
		return nil
	}
	s, err := openStream(h.Codec(), b[HeaderLen:], maxPlain)
	if err != nil {
		return err
	}
	c.stream = s
	return nil
}

func (c *cursor) close() {
	if c.stream != nil {
		c.stream.close()
		c.stream = nil
	}
}

// next reads a record into c.rec. false: there are no more, and nothing is left over.
func (c *cursor) next() (bool, error) {
	if c.index == int(c.count) {
		return false, c.checkEnd()
	}
	body, err := c.body()
	if err != nil {
		return false, err
	}
	if msg := c.rec.parse(body); msg != "" {
		return false, c.bad(msg)
	}
	if c.rec.offsetDelta < 0 || c.rec.offsetDelta > c.delta {
		return false, c.bad("offset outside of the batch")
	}
	c.index++
	return true, nil
}

func (c *cursor) bad(msg string) error { return &RecordError{Index: c.index, Msg: msg} }

// body cuts off the next record and returns what its length counts.
func (c *cursor) body() ([]byte, error) {
	if c.stream != nil {
		return c.streamBody()
	}
	size, n := varint(c.plain)
	if n == 0 || size < 0 || int(size) > len(c.plain)-n {
		return nil, c.bad("bad length")
	}
	end := n + int(size)
	body := c.plain[n:end]
	c.plain = c.plain[end:]
	return body, nil
}

func (c *cursor) streamBody() ([]byte, error) {
	head, err := c.stream.peek(5) // the longest length
	if err != nil {
		return nil, err
	}
	size, n := varint(head)
	if n == 0 || size < 0 {
		return nil, c.bad("bad length")
	}
	end := n + int(size)
	all, err := c.stream.peek(end)
	if err != nil {
		return nil, err
	}
	if len(all) < end {
		return nil, c.bad("bad length")
	}
	c.stream.skip(end)
	return all[n:end], nil
}

// checkEnd makes sure that the batch holds no more than its records.
func (c *cursor) checkEnd() error {
	left := len(c.plain)
	if c.stream != nil {
		more, err := c.stream.peek(1)
		if err != nil {
			return err
		}
		left = len(more)
	}
	if left > 0 {
		return fmt.Errorf("%w: data after the %d records", ErrRecord, c.count)
	}
	return nil
}

// stream is the window through which decompressed records are seen: it grows to the
// largest record, as its bytes really come.
type stream struct {
	dec    decoder
	buf    []byte
	r, w   int   // buf[r:w] is read and not used
	left   int64 // how many bytes may still come
	atEnd  bool
	maxLen int64
}

const (
	windowBytes = 64 << 10 // first size of a window
	keepBytes   = 1 << 20  // larger buffers are left to the garbage collector
)

// peek returns at least the next n bytes, or less at the end of the records. They are
// valid until the next peek.
func (s *stream) peek(n int) ([]byte, error) {
	for s.w-s.r < n && !s.atEnd {
		if s.r > 0 {
			s.w = copy(s.buf, s.buf[s.r:s.w])
			s.r = 0
		}
		if s.w == len(s.buf) {
			bigger := make([]byte, 2*len(s.buf))
			copy(bigger, s.buf)
			s.buf = bigger
		}
		got, err := s.dec.Read(s.buf[s.w:])
		s.w += got
		s.left -= int64(got)
		switch {
		case s.left < 0:
			return nil, fmt.Errorf("%w: more than %d bytes decompressed", ErrTooLarge, s.maxLen)
		case err == io.EOF:
			s.atEnd = true
		case err != nil:
			return nil, fmt.Errorf("%w: decompress: %w", ErrRecord, err)
		}
	}
	return s.buf[s.r:s.w], nil
}

func (s *stream) skip(n int) { s.r += n }
